"""Opens artifacts: programs that are called with named tensors, and streams that carry state between calls."""

import os
import warnings
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from bakeoff.backends import resolve_backend
from bakeoff.backends.format import ArtifactFormat, BadArtifact, Opening, Run
from bakeoff.export import requirements
from bakeoff.export.folder import artifact_format_of, check_content, read_manifest
from bakeoff.export.manifest import MANIFEST, Manifest, Port
from bakeoff.export.manifest import Program as About
from bakeoff.export.mix import read_mix, read_warmup
from bakeoff.export.sample import Reader, sizes
from bakeoff.export.torch_flags import differing_flags
from bakeoff.export.warmup import inputs_of
from bakeoff.machine import host
from bakeoff.models.component import Carry, laid_out
from bakeoff.models.errors import BakeoffError, ErrorCode
from bakeoff.models.types import Scalar
from bakeoff.models.words import some_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Mismatch(BakeoffError):
    """This host does not meet the artifact's requirements; the message names them."""

    def __init__(self, message: str, code: ErrorCode = "host-mismatch") -> None:
        super().__init__(message, code)


class MismatchWarning(UserWarning):
    """An artifact was opened with `allow_mismatch` on a host that does not meet a requirement."""


class FlagsWarning(UserWarning):
    """A program is called while torch's global flags differ from those under which it was verified."""


def load(
    folder: str | Path,
    *,
    threads: int = 0,
    allow_mismatch: bool = False,
    count_outside: bool = False,
    warm_up: bool = False,
) -> "Artifact":
    """Check an artifact's manifest, file hashes and host requirements, open its main program, and return the artifact.

    `threads` is the thread count of ONNX Runtime and OpenVINO, 0 for all cores; for torch use torch.set_num_threads.
    Raises BadArtifact if the folder differs from the export, Mismatch if this host does not meet a requirement, and
    BakeoffError if a library is missing or cannot open the program. With `allow_mismatch` a Mismatch becomes a
    MismatchWarning, and the requirement is listed in `Artifact.mismatches`. With `count_outside`, calls of the main
    program whose inputs are outside of what was checked are counted (`Artifact.outside`).

    With `warm_up`, programs of an artifact in a mix are called as the mix's warmup.json says, so that its loop makes
    them compile, allocate or capture nothing more. Raises BadArtifact if there is no such plan.

    The first call of a program issues a FlagsWarning if torch's global flags differ from those under which it was
    verified, such as TF32 in convolutions, which torch allows by default. The warning lists the statements that set
    them. Flags apply to the whole process, so they are left to the caller. Artifacts that store no flags cause no
    warning.
    """
    if find_spec("torch") is None:
        raise BakeoffError(
            "load needs torch, which is not installed; run pip install torch, or run an ONNX artifact without bakeoff",
            code="missing-library",
        )
    path = Path(folder).absolute()
    manifest = read_manifest(path)
    found = check_here(path, manifest, allow_mismatch)
    for one in found:
        warnings.warn(f"{path.name} was made for another host, and opened here: {one}", MismatchWarning, 2)
    counter = Outside(manifest) if count_outside else None
    opened = Artifact(path, manifest, artifact_format_of(manifest), threads or host.usable_cores(), found, counter)
    opened.program(manifest.main)
    if warm_up:
        mix = read_mix(path.parent)
        for call in read_warmup(path.parent, mix).calls:
            name = call.program.rpartition(".")[2]
            if mix.artifacts.get(call.program) == path.name:
                opened.program(name)(**inputs_of(call, Reader(path, manifest).inputs(0, name, manifest.device)))
    return opened


def check_here(path: Path, manifest: Manifest, allow_mismatch: bool) -> tuple[str, ...]:
    """Check the hashes of an artifact's files; return a sentence for each requirement that this host does not meet.

    Raises BadArtifact if a file differs, and, without `allow_mismatch`, Mismatch if a requirement is not met.
    """
    check_content(path, manifest)
    found = requirements.unmet(manifest.needs, requirements.facts())
    missing = host.missing_device(manifest.device)
    if missing is not None:
        found = (f"{missing.partition('; ')[0]}; the artifact runs on a GPU", *found)  # no option changes that
    if found and not allow_mismatch:
        raise Mismatch(f"{path.name} was made for another host: {'. '.join(found)}")
    return found


_SPREAD = 1.25
"""Factor beyond the checked values that still counts as within: two draws of one distribution differ."""


class Outside:
    """Counts calls with an input whose root mean square or largest absolute value is outside of the checked ones.

    A call does not wait for the device. Values that are not finite are outside.
    """

    def __init__(self, manifest: Manifest) -> None:
        """Raises BakeoffError if the manifest has no checked values."""
        ports = manifest.program(manifest.main).inputs
        self._checked = {port.name: port.checked for port in ports if port.checked is not UNSET}
        if not self._checked:
            raise BakeoffError(
                f"{manifest.variant}: {MANIFEST} has no checked values of an input, so no call is outside of them; "
                "load it without count_outside, or export it again if it is from an earlier version",
                code="unsupported",
            )
        self.calls = 0
        """Calls so far."""
        self._outside: Tensor | int = 0

    def add(self, inputs: "Mapping[str, Tensor]") -> None:
        within: Tensor | bool = True
        for name, (least, most, largest) in self._checked.items():
            size, top = sizes(inputs[name])
            within = within & (size * _SPREAD >= least) & (size <= most * _SPREAD) & (top <= largest * _SPREAD)
        self.calls += 1
        self._outside = self._outside + ~within

    def __int__(self) -> int:
        """Return how many calls were outside; waits for the device."""
        return int(self._outside)


@dataclass(frozen=True, slots=True)
class Program:
    """One program of an artifact: a callable from named tensors to named tensors. Not thread-safe.

    One of AOTInductor, OpenVINO or TensorRT belongs to the thread of its first call, whichever thread opened it: its
    calls share a runner, a request or a mode that no lock protects. Programs of ONNX Runtime and torch.export share
    nothing between calls, and take them from any thread. All belong to the process that opened them: a library's
    threads are not in its forks.
    """

    about: About
    device: str
    run: Run
    """The program itself: takes tensors in the order of `about.inputs`, without any check."""
    flags: "Mapping[str, Scalar]" = field(default_factory=dict)
    """torch's global flags under which the program was verified."""
    outside: Outside | None = None
    """Counts calls outside of what was checked; None if they are not counted."""
    _expected: "tuple[tuple[str, torch.dtype, tuple[int, ...], tuple[int, ...]], ...]" = field(init=False, repr=False)
    _names: frozenset[str] = field(init=False, repr=False)
    _output_names: tuple[str, ...] = field(init=False, repr=False)
    _checked: list[bool] = field(default_factory=list, init=False, repr=False)
    """Not empty once the outputs of a call were checked; a list, because the class is frozen."""
    _process: int = field(default_factory=os.getpid, init=False, repr=False)

    def __post_init__(self) -> None:
        import torch

        expected = tuple(
            (port.name, getattr(torch, port.dtype), port.shape, port.order or ()) for port in self.about.inputs
        )
        object.__setattr__(self, "_expected", expected)
        object.__setattr__(self, "_names", frozenset(name for name, *_ in expected))
        object.__setattr__(self, "_output_names", tuple(port.name for port in self.about.outputs))

    def __call__(self, *unnamed: "Tensor", **inputs: "Tensor") -> "dict[str, Tensor]":
        """Run the program on inputs given by name, and return its outputs by name.

        Raises BakeoffError for an input that is given without its name, missing, unknown, or of another dtype, shape
        or device: `run` does not check these and would compute wrong outputs; for one that needs a gradient while torch
        records them; also in a thread or process that the program does not belong to. Raises BadArtifact if the first
        outputs differ from the manifest in number, dtype or shape.
        """
        self.refuse(unnamed)
        if os.getpid() != self._process:
            raise BakeoffError(
                f"{self.about.name} was opened in process {self._process}, of which this one is a fork without its "
                "threads; start processes by spawn, and load the artifact in each",
                code="other-process",
            )
        if inputs.keys() != self._names:
            raise BakeoffError(self._name_problem(inputs), code="bad-input")
        device, tensors = self.device, []
        for name, dtype, shape, order in self._expected:
            tensor = inputs[name]
            if tensor.dtype != dtype or tensor.shape != shape or tensor.device.type != device:
                raise BakeoffError(self._layout_problem(name, tensor), code="bad-input")
            if tensor.requires_grad:
                tensor = self._detached(name, tensor)
            tensors.append(laid_out(tensor, order))
        if self.outside is not None:
            self.outside.add(inputs)
        if not self._checked:
            self._check_flags()
        outputs = self.run(tensors)
        if not self._checked:
            self._check_outputs(outputs)
            self._checked.append(True)
        return dict(zip(self._output_names, outputs, strict=True))

    def refuse(self, unnamed: "Sequence[Tensor]") -> None:
        """Raise BakeoffError if any inputs are given without names."""
        if unnamed:
            known = some_of([name for name, *_ in self._expected], 6)
            text = f"{self.about.name} takes its inputs by name and got {len(unnamed)} without; give {known}"
            raise BakeoffError(text, code="bad-input")

    def _detached(self, name: str, tensor: "Tensor") -> "Tensor":
        import torch

        if torch.is_grad_enabled():
            text = f"{name} needs a gradient, which {self.about.name} does not record; give {name}.detach()"
            raise BakeoffError(f"{text}, or call it under torch.no_grad()", code="needs-gradient")
        return tensor.detach()

    def _check_flags(self) -> None:
        lines = differing_flags(self.flags)
        if lines:
            text = (
                f"{self.about.name} was verified under other flags of torch; set {'; '.join(lines)} before calling it"
            )
            warnings.warn(text, FlagsWarning, 3)

    def _check_outputs(self, outputs: "Sequence[Tensor]") -> None:
        """Raise BadArtifact if number, dtypes or shapes of the outputs differ from the manifest."""
        found = [f"{str(one.dtype).removeprefix('torch.')} {list(one.shape)}" for one in outputs]
        expected = [f"{port.dtype} {list(port.shape)}" for port in self.about.outputs]
        if found != expected:
            raise BadArtifact(
                f"{self.about.name} returns {some_of(found, 6)}, but {MANIFEST} has {some_of(expected, 6)}; "
                "export the artifact again",
                code="wrong-output",
            )

    def _name_problem(self, inputs: "Mapping[str, Tensor]") -> str:
        missing = [name for name, *_ in self._expected if name not in inputs]
        unknown = sorted(inputs.keys() - self._names)
        problems = [
            f"{problem} {some_of(names, 6)}"
            for problem, names in (("lack", missing), ("have the unknown", unknown))
            if names
        ]
        known = some_of([name for name, *_ in self._expected], 6)
        return f"the inputs of {self.about.name} {' and '.join(problems)}; give {known}"

    def _layout_problem(self, name: str, tensor: "Tensor") -> str:
        port = next(port for port in self.about.inputs if port.name == name)
        found = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)} on {tensor.device.type}"
        expected = f"{port.dtype} {list(port.shape)} on {self.device}"
        advice = "convert it" if tensor.shape == port.shape else "give a tensor of that shape"
        return f"{self.about.name} takes {name} as {expected} and got {found}; {advice}"


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact whose files were checked. Calling it calls its main program."""

    folder: Path
    manifest: Manifest
    artifact_format: ArtifactFormat
    threads: int
    mismatches: tuple[str, ...]
    """Requirements that this host does not meet; empty unless it was loaded with `allow_mismatch`."""
    outside: Outside | None = None
    """Counts calls of the main program outside of what was checked: `int(outside)` of `outside.calls`. None if it was
    not loaded with `count_outside`."""
    _opened: dict[str, Program] = field(default_factory=dict, repr=False)

    def __call__(self, *unnamed: "Tensor", **inputs: "Tensor") -> "dict[str, Tensor]":
        return self.program(self.manifest.main)(*unnamed, **inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder's path: whoever unpickles it, such as a spawned process, loads the artifact again."""
        counts, mismatch = self.outside is not None, bool(self.mismatches)
        return partial(load, threads=self.threads, allow_mismatch=mismatch, count_outside=counts), (self.folder,)

    def sample(self) -> "dict[str, Tensor]":
        """Return new input tensors for the main program, by name, read from the artifact's stored sample.

        Shapes, dtypes, device and kinds of values are those of the export. Raises BadArtifact if an input is
        missing or does not fit.
        """
        return Reader(self.folder, self.manifest).inputs(0, self.manifest.main, self.manifest.device)

    def program(self, name: str) -> Program:
        """Return the program of this name, which is opened at its first use.

        Raises BakeoffError for an unknown name, and if the library cannot open the program.
        """
        if name not in self._opened:
            known = [program.name for program in self.manifest.programs]
            if name not in known:
                raise BakeoffError(
                    f"{self.folder.name} has no program '{name}'; it has {', '.join(known)}", code="unknown-name"
                )
            self._opened[name] = self._open(self.manifest.program(name))
        return self._opened[name]

    def close(self, name: str) -> None:
        """Release a program; `program` opens it again."""
        self._opened.pop(name, None)

    def stream(self) -> "Stream":
        """Return a new stream, not yet begun. Raises BakeoffError for an artifact without state between calls."""
        if self.manifest.stream is None:
            raise BakeoffError(
                f"{self.manifest.variant} has no state between calls; call the artifact itself", code="unsupported"
            )
        return Stream(self)

    def _open(self, about: About) -> Program:
        import msgspec

        manifest = self.manifest
        try:
            options: Any = msgspec.convert(manifest.options, type=resolve_backend(manifest.backend).options)
        except msgspec.ValidationError as error:
            raise BadArtifact(
                f"{MANIFEST} has invalid options of {manifest.backend}: {error}; export the artifact again"
            ) from error
        opening = Opening(manifest.device, manifest.dtype, self.threads, options)
        constants = [self.folder / name for name in about.constants]
        try:
            run = self.artifact_format.read(self.folder / about.file, constants, opening)
        except BakeoffError:
            raise
        except Exception as error:  # each library has its own exceptions for a file that it cannot open
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise BakeoffError(
                f"{self.folder.name}: {about.file} cannot be opened: {reason}; export the artifact again",
                code="bad-artifact",
            ) from error
        flags = {} if manifest.flags is msgspec.UNSET else manifest.flags
        return Program(about, manifest.device, run, flags, self.outside if about.name == manifest.main else None)


class Stream:
    """A stream of frames: calls the artifact's programs and carries state from call to call.

    `begin` makes the first call. Then `call` each of the other programs of `manifest.stream.opening` once, in order,
    and after them those of `manifest.stream.each`, in order, again and again.
    """

    def __init__(self, artifact: Artifact) -> None:
        contract = artifact.manifest.stream
        assert contract is not None
        self._artifact, self._contract = artifact, contract
        self.state: State = {}
        self._awaited: tuple[str, ...] = ()
        """Programs of the opening that are still to be called."""

    def begin(self, *unnamed: "Tensor", **inputs: "Tensor") -> "dict[str, Tensor]":
        """Set the initial state to zeros, call the first program of the stream's opening, and return its outputs.

        Call `begin` once, before any `call`. `inputs` are that program's inputs that do not begin as zeros. If the
        stream has no opening, no program is called and {} is returned.
        """
        first = self._contract.workloads[0]
        self._artifact.program(first).refuse(unnamed)
        self.fill({(first, name): self._zeros(self._port(first, name)) for name in self._contract.zeros})
        self._awaited = self._contract.opening
        return self.call(first, **inputs) if self._awaited else {}

    def fill(self, state: "Mapping[tuple[str, str], Tensor]") -> None:
        """Set carried tensors by (program, input), to continue a stream instead of calling `begin`."""
        self.state.update(state)

    def call(self, name: str, *unnamed: "Tensor", **inputs: "Tensor") -> "dict[str, Tensor]":
        """Call a program with the carried state and the given inputs, update the state, return the outputs.

        Raises BakeoffError if another program of the opening must be called first.
        """
        if self._awaited and name != self._awaited[0]:
            order = f"{', '.join(self._contract.opening)}, and then {', '.join(self._contract.each)}"
            raise BakeoffError(
                f"the stream calls {order}; it got {name} where {self._awaited[0]} is next", code="bad-input"
            )
        carried = {port: tensor for (program, port), tensor in self.state.items() if program == name}
        outputs = self._artifact.program(name)(*unnamed, **{**carried, **inputs})
        if self._awaited:
            self._awaited = self._awaited[1:]
            for port in carried:  # an opening's program is called once: its state is of no further use
                del self.state[name, port]
        carry(self.state, self._contract.carries, name, outputs)
        return outputs

    def _port(self, program: str, name: str) -> Port:
        return next(port for port in self._artifact.manifest.program(program).inputs if port.name == name)

    def _zeros(self, port: Port) -> "Tensor":
        import torch

        return torch.zeros(port.shape, dtype=getattr(torch, port.dtype), device=self._artifact.manifest.device)


State = MutableMapping[tuple[str, str], "Tensor"]
"""The carried tensor for the next call of a program, by (program, input)."""


def carry(state: State, carries: Iterable[Carry], program: str, outputs: Mapping[str, "Tensor"]) -> None:
    """Update `state` with the outputs of a call of `program`. Raises KeyError for a sliding window without value."""
    import torch

    made: dict[tuple[int, int], Tensor] = {}
    for one in carries:
        if one.workload != program:
            continue
        target, output = (one.to, one.input), outputs[one.output]
        if one.axis is None:
            state[target] = output
            continue
        window = state[target]
        key = (id(window), id(output))  # two programs that share a window share the new window too
        if key not in made:
            kept = window.narrow(one.axis, output.shape[one.axis], window.shape[one.axis] - output.shape[one.axis])
            made[key] = torch.cat((kept, output), one.axis)
        state[target] = made[key]
