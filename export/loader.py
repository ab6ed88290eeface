"""An artifact opened: programs that are called with named tensors, and streams that carry their state."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends import resolve_backend
from bakeoff.backends.format import ArtifactFormat, BadArtifact, Opening, Run
from bakeoff.export import requirements
from bakeoff.export.folder import check_content, form_of, read_manifest
from bakeoff.export.manifest import MANIFEST, Manifest, Port
from bakeoff.export.manifest import Program as About
from bakeoff.export.state import State, carry
from bakeoff.machine import host
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Mismatch(BakeoffError):
    """This host is not one that the artifact was made for; the message says in what."""


class MismatchWarning(UserWarning):
    """The artifact was opened all the same."""


def load(folder: str | Path, *, threads: int = 0, allow_mismatch: bool = False) -> "Artifact":
    """Check an artifact's manifest, every file's hash and this host, then open the program that it is named after.

    `threads` are ONNX Runtime's and OpenVINO's, 0 for all cores; torch keeps its own (torch.set_num_threads).
    Raises BadArtifact where the folder is not what was exported, and Mismatch where this host is not one it was made
    for; with `allow_mismatch` that is a MismatchWarning, and kept in `Artifact.mismatches`. Raises BakeoffError where
    the library that opens it cannot.
    """
    if find_spec("torch") is None:
        raise BakeoffError("tensors are handed over as torch's: pip install torch (an ONNX artifact runs without it)")
    place = Path(folder).absolute()
    manifest = read_manifest(place)
    check_content(place, manifest)
    found = requirements.unmet(manifest.needs, requirements.facts())
    missing = host.missing_device(manifest.device)
    if missing is not None:
        found = (missing, *found)
    if found and not allow_mismatch:
        raise Mismatch(f"{place.name} was made for another host: {'. '.join(found)}")
    for one in found:
        warnings.warn(f"{place.name} is opened on a host that it was not made for: {one}", MismatchWarning, 2)
    opened = Artifact(place, manifest, form_of(manifest), threads or host.usable_cores(), found)
    opened.program(manifest.main)
    return opened


@dataclass(frozen=True, slots=True)
class Program:
    """One callable of an artifact: named tensors in, named tensors out. Not thread-safe."""

    about: About
    device: str
    run: Run
    """What it was opened as: tensors in the order of `about.inputs`, unchecked."""
    _wanted: "tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]" = field(init=False, repr=False)
    _names: frozenset[str] = field(init=False, repr=False)
    _gives: tuple[str, ...] = field(init=False, repr=False)
    _seen: list[bool] = field(default_factory=list, init=False, repr=False)
    """Something, once the outputs of a call were looked at."""

    def __post_init__(self) -> None:
        import torch

        wanted = tuple((port.name, getattr(torch, port.dtype), port.shape) for port in self.about.inputs)
        object.__setattr__(self, "_wanted", wanted)
        object.__setattr__(self, "_names", frozenset(name for name, _, _ in wanted))
        object.__setattr__(self, "_gives", tuple(port.name for port in self.about.outputs))

    def __call__(self, **inputs: "Tensor") -> "dict[str, Tensor]":
        """Outputs by name. Raises BakeoffError for an input that is missing, unknown, or of another dtype, shape or
        device: what is behind looks at none of them, and would compute something."""
        if inputs.keys() != self._names:
            raise BakeoffError(self._misnamed(inputs))
        device, tensors = self.device, []
        for name, dtype, shape in self._wanted:
            tensor = inputs[name]
            if tensor.dtype != dtype or tensor.shape != shape or tensor.device.type != device:
                raise BakeoffError(self._unlike(name, tensor))
            tensors.append(tensor if tensor.is_contiguous() else tensor.contiguous())
        outputs = self.run(tensors)
        if not self._seen:
            self._check(outputs)
            self._seen.append(True)
        return dict(zip(self._gives, outputs, strict=True))

    def _check(self, outputs: "Sequence[Tensor]") -> None:
        """Raises BadArtifact where the first call gives something else than the manifest says."""
        found = [f"{str(one.dtype).removeprefix('torch.')} {list(one.shape)}" for one in outputs]
        wanted = [f"{port.dtype} {list(port.shape)}" for port in self.about.outputs]
        if found != wanted:
            raise BadArtifact(f"{self.about.name} gives {_some(found)}; {MANIFEST} says {_some(wanted)}")

    def _misnamed(self, inputs: "Mapping[str, Tensor]") -> str:
        missing = [name for name, _, _ in self._wanted if name not in inputs]
        unknown = sorted(inputs.keys() - self._names)
        said = [f"{what} {_some(names)}" for what, names in (("lacks", missing), ("knows no", unknown)) if names]
        return f"{self.about.name} {' and '.join(said)}; its inputs are {_some([name for name, _, _ in self._wanted])}"

    def _unlike(self, name: str, tensor: "Tensor") -> str:
        port = next(port for port in self.about.inputs if port.name == name)
        found = f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)} on {tensor.device.type}"
        return (
            f"{self.about.name} takes {name} as {port.dtype} {list(port.shape)} on {self.device}, it was given {found}"
        )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:6])
    return f"{shown} and {len(names) - 6} more" if len(names) > 6 else shown


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact whose files were checked. Called, it runs the program that it is named after."""

    folder: Path
    manifest: Manifest
    form: ArtifactFormat
    threads: int
    mismatches: tuple[str, ...]
    """In what this host is not one that it was made for; only where that was allowed."""
    _opened: dict[str, Program] = field(default_factory=dict, repr=False)

    def __call__(self, **inputs: "Tensor") -> "dict[str, Tensor]":
        return self.program(self.manifest.main)(**inputs)

    def program(self, name: str) -> Program:
        """One of the artifact's programs, opened when it is first asked for. Raises BakeoffError for an unknown one."""
        if name not in self._opened:
            known = [program.name for program in self.manifest.programs]
            if name not in known:
                raise BakeoffError(f"{self.folder.name} has no program '{name}'; it has {', '.join(known)}")
            self._opened[name] = self._open(self.manifest.program(name))
        return self._opened[name]

    def close(self, name: str) -> None:
        """Let a program go; it is opened anew when it is asked for."""
        self._opened.pop(name, None)

    def stream(self) -> "Stream":
        """A stream that has not begun. Raises BakeoffError where calls of this artifact know nothing of each other."""
        if self.manifest.stream is None:
            raise BakeoffError(f"{self.manifest.variant} carries no state: call it")
        return Stream(self)

    def _open(self, about: About) -> Program:
        import msgspec

        manifest = self.manifest
        try:
            options: Any = msgspec.convert(manifest.options, type=resolve_backend(manifest.backend).options)
        except msgspec.ValidationError as error:
            raise BadArtifact(f"{MANIFEST}: options of {manifest.backend}: {error}") from error
        opening = Opening(manifest.device, manifest.dtype, self.threads, options)
        constants = [self.folder / name for name in about.constants]
        try:
            run = self.form.read(self.folder / about.file, constants, opening)
        except BakeoffError:
            raise
        except Exception as error:  # whatever a library says of a file that it cannot open
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise BakeoffError(f"{self.folder.name}: {about.file} cannot be opened: {said}") from error
        return Program(about, manifest.device, run)


class Stream:
    """One stream of frames through an artifact: state that is carried is held here, and given to each call."""

    def __init__(self, artifact: Artifact) -> None:
        contract = artifact.manifest.stream
        assert contract is not None
        self._artifact, self._contract = artifact, contract
        self.state: State = {}

    def begin(self, **inputs: "Tensor") -> "dict[str, Tensor]":
        """Prime the stream, with zeros for what begins as zeros; what the prime gives. Once, before the first frame."""
        first = self._contract.prime or self._contract.each[0]
        self.fill({(first, name): self._zeros(self._port(first, name)) for name in self._contract.zeros})
        return self.call(self._contract.prime, **inputs) if self._contract.prime else {}

    def fill(self, state: "Mapping[tuple[str, str], Tensor]") -> None:
        """Go on from a state, (program, input) to tensor, in place of a prime."""
        self.state.update(state)

    def call(self, name: str, **inputs: "Tensor") -> "dict[str, Tensor]":
        """Call a program with what is carried and what is given, and carry what it gives."""
        held = {port: tensor for (program, port), tensor in self.state.items() if program == name}
        outputs = self._artifact.program(name)(**{**held, **inputs})
        carry(self.state, self._contract.carries, name, outputs)
        return outputs

    def _port(self, program: str, name: str) -> Port:
        return next(port for port in self._artifact.manifest.program(program).inputs if port.name == name)

    def _zeros(self, port: Port) -> "Tensor":
        import torch

        return torch.zeros(port.shape, dtype=getattr(torch, port.dtype), device=self._artifact.manifest.device)
