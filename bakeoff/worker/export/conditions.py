"""Calls an opened artifact under one condition of use, and compares its outputs with those of plain calls.

Of a component with state a call is a stream of a few frames; where its programs do not fit into memory together, it is
one of the main program.
"""

import asyncio
import gc
import multiprocessing
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bakeoff.export import Artifact, load
from bakeoff.export.manifest import HELD, Condition, ConditionResult
from bakeoff.export.sample import Reader, calls, limits_of, thinned
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.process.jobs import ConditionJob
from bakeoff.worker.checks.growth import confirmed_leak
from bakeoff.worker.checks.memory import kept_bytes
from bakeoff.worker.device import held_bytes
from bakeoff.worker.export.verify import lacking_memory
from bakeoff.worker.failures import first_line
from bakeoff.worker.reference.error import apart, difference
from bakeoff.worker.reporter import Report
from bakeoff.worker.torch_flags import flags

_SETS = 4
"""Sets of inputs: the sample, and the sample with the values of each free input moved on by one, two, three places."""
_CALLS, _CALLS_S = 100, 2.0
"""Most calls in a thread or process, and the time for which that many would be made one after the other."""
_MANY, _MANY_S, _READINGS = 10_000, 20.0, 40
"""Most of many calls, their longest time, and how often their memory is read."""
_SLOWER = 1.5
_WORST_FIRST: tuple[ConditionResult, ...] = ("wrong", "crashed", "refused")
_FRAMES = 2
"""Frames of a stream that make up a call."""
Named = Mapping[tuple[int, str, str], Tensor]
"""Tensors by frame, program and port: inputs of all frames, outputs of the last one."""


def check_condition(job: ConditionJob, report: Report) -> Condition:
    """Load an artifact, make plain calls and then calls under the condition, and return how these differ.

    Raises BakeoffError if the artifact cannot be loaded.
    """
    report("open")
    artifact = load(job.folder, threads=job.threads, allow_mismatch=job.allow_mismatch)
    with _as_verified(artifact):
        trial = Trial(artifact, job.condition)
        report("conditions", job.condition)
        row = None
        with trial.noting():
            if job.condition == "idle":
                time.sleep(job.idle_s)
            row = CHECKS[job.condition](trial)
    return row or trial.condition()


@contextmanager
def _as_verified(artifact: Artifact) -> Iterator[None]:
    manifest = artifact.manifest
    with flags(manifest.dtype, artifact.threads, search=manifest.device == "cuda"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of forks
        yield


class Trial:
    """An opened artifact, sets of inputs with the outputs of plain calls for them, and how other calls ended."""

    def __init__(self, artifact: Artifact, name: str) -> None:
        """Make the plain calls, and note it if the first differs from the sample's reference."""
        self.artifact, self.name = artifact, name
        self.load = partial(load, threads=artifact.threads, allow_mismatch=bool(artifact.mismatches))
        self.notes: dict[ConditionResult, str] = {}
        """The first text of each kind."""
        self.ends: list[bool] = []
        """Whether each call was right."""
        self.times_s: list[float] = []
        self.inputs: list[Named] = []
        self.wanted: list[Named] = []
        manifest, reader = artifact.manifest, Reader(artifact.folder, artifact.manifest)
        self.streams = manifest.stream is not None and not lacking_memory(artifact)
        """Whether a call is a whole stream."""
        self._frames = [*calls(manifest, range(_FRAMES))] if self.streams else [(0, manifest.main)]
        programs = [manifest.program(name) for name in dict.fromkeys(name for _, name in self._frames)]
        self._limits = {one.name: limits_of(manifest, one.name) for one in programs}
        held = {(one.name, port.name) for one in programs for port in one.inputs if port.values == HELD}
        sample = {
            (*call, port): tensor
            for call in self._frames
            for port, tensor in reader.inputs(*call, manifest.device).items()
        }
        self.free = {key for key in sample if key[1:] not in held}
        """Inputs that may have other values than those of the sample."""
        for place in range(_SETS):
            self.add({key: one.roll(place) if key in self.free else one.clone() for key, one in sample.items()})
        for (frame, name, port), found in self.wanted[0].items():
            output = thinned(found, manifest.sample.every.get(f"{name}/{port}", 1))
            reference = reader.outputs(frame, name)[port].flatten().to(output.device)
            if _distance(output, reference) > self._limits[name][port]:
                self.note("wrong", f"{port} differs from the sample in a plain call")
        self.calls = _SETS
        for _ in range(2):  # the second time as many as the condition will
            self.repeat()
            self.plain_s = self.typical_s()
            self.calls = max(_SETS, min(_CALLS, int(_CALLS_S / self.plain_s)))
            self.ends, self.times_s = [], []

    def add(self, inputs: Named) -> None:
        """Add a set of inputs, and what a plain call returns for it."""
        self.inputs.append(inputs)
        (outputs,) = self.call(self.artifact, inputs)
        self.wanted.append({key: tensor.clone() for key, tensor in outputs.items()})

    def call(self, engine: Artifact, *given: Named) -> list[Named]:
        """Call with each set of inputs, streams of them frame by frame in turns; return the last frame's outputs of
        each."""
        outputs: list[dict[tuple[int, str, str], Tensor]] = [{} for _ in given]
        streams = [engine.stream() if self.streams else None for _ in given]
        for frame, name in self._frames:
            for found, inputs, stream in zip(outputs, given, streams, strict=True):
                named = {port: one for (*call, port), one in inputs.items() if call == [frame, name]}
                if stream is None:
                    made = engine.program(name)(**named)
                else:
                    stream.fill({(name, port): tensor for port, tensor in named.items()})
                    made = stream.call(name)
                if frame == self._frames[-1][0]:
                    found |= {(frame, name, port): tensor for port, tensor in made.items()}
        return [*outputs]

    def note(self, result: ConditionResult, text: str) -> None:
        self.notes.setdefault(result, text)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note what the block raises instead of raising it."""
        try:
            yield
        except BakeoffError as error:
            self.note("refused", error.code)
        except Exception as error:  # noqa: BLE001  # whatever an engine raises
            self.note("crashed", first_line(error))

    def attempt(
        self, place: int = 0, engine: Artifact | None = None, given: Named | None = None, beside: bool = False
    ) -> None:
        """Call with a set of inputs, which `given` has in another form, and note how that ends; if it is a stream, and
        `beside`, in turns with one of the next set."""
        place, right = place % len(self.inputs), False
        began = time.perf_counter()
        with self.noting():
            others = [self.inputs[(place + 1) % _SETS]] if beside and self.streams else []
            outputs, *_ = self.call(engine or self.artifact, given or self.inputs[place], *others)
            if self.artifact.manifest.device == "cuda":
                torch.cuda.synchronize()
            self.times_s.append(time.perf_counter() - began)
            right = self.same(outputs, place)
        self.ends.append(right)

    def same(self, outputs: Named, place: int, when: str = "") -> bool:
        """Return whether outputs are near those of a plain call, and note it if one is not."""
        for key, wanted in self.wanted[place].items():
            (_, program, name), output = key, outputs[key]
            limit = self._limits[program][name]
            if not torch.equal(output, wanted) and (distance := _distance(output, wanted)) > limit:
                self.note("wrong", f"{name} differs from a plain call's by {distance:.1e}, over {limit:.1e}{when}")
                return False
        return True

    def repeat(self, first: int = 0) -> None:
        """Call with one set of inputs after the other, beginning with the set `first`."""
        for place in range(first, first + self.calls):
            self.attempt(place)

    def typical_s(self) -> float:
        """Return the lower quartile of the last calls' times: on a busy host a few take a thousand times as long."""
        return statistics.quantiles(self.times_s[-_CALLS:], n=4)[0]

    def condition(self) -> Condition:
        """Return the worst that was noted; else whether calls took longer than plain ones."""
        calls = counted(len(self.ends), "stream" if self.streams else "call", form=",")
        for result in _WORST_FIRST:
            if result in self.notes:
                return Condition(self.name, result, f"{self.notes[result]}; {sum(self.ends):,} of {calls} right")
        factor = self.typical_s() / self.plain_s
        return Condition(self.name, "slower" if factor > _SLOWER else "right", calls, factor)


def _distance(output: Tensor, wanted: Tensor) -> float:
    """Return the relative L2 distance of an output, or the share of indices that differ, as a verification does."""
    if output.is_floating_point():
        return apart(output, wanted)
    return difference(output, wanted, wanted.dtype).rel_l2


def _threads_at_once(trial: Trial) -> None:
    trial.plain_s *= _SETS  # of each, where one after the other is served
    with ThreadPoolExecutor(_SETS) as pool:
        list(pool.map(trial.repeat, range(_SETS)))


def _threads_in_turn(trial: Trial) -> None:
    for place in range(_SETS):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(trial.repeat, place)


def _executor(trial: Trial) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(_SETS))
        await asyncio.gather(*(asyncio.to_thread(trial.attempt, place) for place in range(trial.calls)))
        trial.attempt()  # in the loop's own thread

    trial.plain_s *= _SETS
    asyncio.run(serve())


_forked: list[Trial] = []


def _in_process(trial: Trial) -> Condition:
    """Make the calls in a process that is started by the method of multiprocessing that the condition names."""
    _forked.append(trial)
    given = trial.artifact if trial.name == "spawn" else None
    with ProcessPoolExecutor(1, multiprocessing.get_context(trial.name)) as pool:
        return pool.submit(_repeated, given, trial.name).result()


def _repeated(artifact: Artifact | None, name: str) -> Condition:
    with _as_verified(artifact or _forked[0].artifact):
        trial = Trial(artifact, name) if artifact else _forked[0]
        trial.repeat()
        return trial.condition()


def _second_artifact(trial: Trial) -> None:
    second = trial.load(trial.artifact.folder)
    trial.plain_s *= 1 + trial.streams  # of each, with the one beside it
    for place in range(trial.calls):
        trial.attempt(place, beside=True)
        trial.attempt(place + 1, second, beside=True)
    del second
    gc.collect()
    for place in range(trial.calls):
        trial.attempt(place, beside=True)


def _threads_changed(trial: Trial) -> None:
    torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
    trial.repeat()


def _grad_modes(trial: Trial) -> None:
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            trial.repeat()
            for place, inputs in enumerate(trial.inputs):
                wants = mode is not torch.inference_mode
                own = {
                    name: one.clone().requires_grad_(wants and one.is_floating_point()) for name, one in inputs.items()
                }
                trial.attempt(place, given=own)


def _layouts(trial: Trial) -> None:
    layouts: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda tensor: torch.stack((tensor, torch.zeros_like(tensor)), -1)[..., 0],
        lambda tensor: torch.cat((tensor.flatten()[:1], tensor.flatten()))[1:].view(tensor.shape),  # not aligned
    )
    for place, inputs in enumerate(trial.inputs):
        for layout in layouts:
            laid = {name: layout(tensor) for name, tensor in inputs.items()}
            trial.attempt(place, given=laid)
            if not all(torch.equal(laid[name], tensor) for name, tensor in inputs.items()):
                trial.note("wrong", "a call writes into its inputs")
    (kept,) = trial.call(trial.artifact, trial.inputs[0])
    trial.attempt(1)
    trial.same(kept, 0, " once another call was made")
    alike: dict[object, Tensor] = {}
    shared = {
        key: alike.setdefault((one.shape, one.dtype), one) if key in trial.free and one.is_floating_point() else one
        for key, one in trial.inputs[0].items()
    }
    trial.add({name: tensor.clone() for name, tensor in shared.items()})
    trial.attempt(-1, given=shared)


def _files_changed(trial: Trial) -> None:
    """Overwrite the files of an open copy in place, all but the sample, which no program reads."""
    manifest = trial.artifact.manifest
    with tempfile.TemporaryDirectory() as place:
        folder = Path(shutil.copytree(trial.artifact.folder, Path(place) / "artifact"))
        opened = trial.load(folder)
        trial.attempt(0, opened)
        for name, file in manifest.files.items():
            if file.bytes and name != manifest.sample.file:
                (folder / name).chmod(0o600)
                content = np.memmap(folder / name, np.uint8, "r+")
                np.invert(content, out=content)
        for number in range(trial.calls):
            trial.attempt(number, opened)


def _many_calls(trial: Trial) -> None:
    each = max(1, min(_MANY, int(_MANY_S / trial.plain_s)) // _READINGS)
    until, sizes, device = time.monotonic() + _MANY_S, list[int](), trial.artifact.manifest.device
    while (made := len(trial.ends)) < _MANY and time.monotonic() < until:
        trial.attempt(made // each)
        sizes += [held_bytes(device)] if made % each == 0 else []
    again = partial(kept_bytes, trial.attempt, device=device)
    if leaked := confirmed_leak(sizes, made, 1, int(trial.plain_s * 1e9), again):
        trial.note("wrong", f"half of the calls keep {leaked >> 20} MiB of memory")


CHECKS: Mapping[str, Callable[[Trial], Condition | None]] = {
    "four threads at once": _threads_at_once,
    "four threads in turn": _threads_in_turn,
    "fork": _in_process,
    "spawn": _in_process,
    "asyncio's executor": _executor,
    "a second artifact alive": _second_artifact,
    "another number of threads": _threads_changed,
    "grad modes": _grad_modes,
    "strides and aliases": _layouts,
    "files changed under it": _files_changed,
    "10,000 calls": _many_calls,
    "idle": Trial.repeat,
}
"""By the names of `jobs.CONDITIONS`. Those that return nothing noted in the trial how its calls ended."""
