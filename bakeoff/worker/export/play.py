"""Plays a pipeline's loop on the artifacts of an exported mix, as a deployment would, and notes what feeds what."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from msgspec import UNSET
from safetensors.torch import load_file, save_file
from torch import Tensor

from bakeoff.backends.backend import ModuleEngine
from bakeoff.backends.port import Port
from bakeoff.export import Artifact, load
from bakeoff.export.loader import Program
from bakeoff.export.manifest import OutputCheck
from bakeoff.export.mix import OUTPUTS, Fed, MixCall
from bakeoff.machine.processes import peak_bytes
from bakeoff.models.component import laid_out
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Key, Pipeline
from bakeoff.process.jobs import PlayJob, PlayResult
from bakeoff.worker.export.verify import worst_of
from bakeoff.worker.pipeline.feeder import ProgramEngine
from bakeoff.worker.pipeline.parity import compared, pipeline_of
from bakeoff.worker.pipeline.runner import LoopRunner, flat
from bakeoff.worker.reference.error import Difference
from bakeoff.worker.reporter import Report
from bakeoff.worker.torch_flags import flags, read_flags


def play_mix(job: PlayJob, report: Report) -> PlayResult:
    """Open the artifacts, play units, and record or compare their outputs.

    Raises BakeoffError if an artifact was changed or cannot be opened, or if the loop calls what the folder lacks.
    """
    folder = Path(job.folder)
    report("open")
    opened = {
        name: load(folder / name, threads=job.subject.threads, allow_mismatch=job.allow_mismatch)
        for name in dict.fromkeys(job.artifacts.values())
    }
    programs: dict[Key, ProgramEngine] = {}
    for text, name in job.artifacts.items():
        slot, _, program = text.rpartition(".")
        programs[Key(slot, program)] = _engine(job, opened[name], program)
    watch = _Watch(pipeline_of(job.subject))
    runner = LoopRunner(watch, job.subject, programs, job.dtypes)
    runner.on_call = watch.called
    calls: dict[int, tuple[MixCall, ...]] = {}
    played: dict[str, Tensor] = {}
    with flags("fp32", job.subject.threads, search=job.subject.device == "cuda"):
        for unit, values in _units(runner, job.units):
            report("sample", f"unit {unit + 1} of {job.units}")
            played |= {f"{unit}/{name}": value.to("cpu", copy=True).contiguous() for name, value in values.items()}
            calls[unit] = watch.taken()
    checked: tuple[OutputCheck, ...] = ()
    if job.limit:
        checked = tuple(_checked(played, load_file(folder / OUTPUTS), job.limit))
    else:
        save_file(played, folder / OUTPUTS)
    mismatches = dict.fromkeys(text for one in opened.values() for text in one.mismatches)
    return PlayResult(calls[0], calls[max(calls)], checked, tuple(mismatches), peak_bytes())


def _units(runner: LoopRunner, units: int) -> Iterator[tuple[int, Mapping[str, Tensor]]]:
    """Yield the outputs of the first units; a new session is opened at the end of one."""
    for unit in range(units):
        if runner.at_end:
            runner.open()
        runner.unit()
        yield unit, runner.outputs


def _engine(job: PlayJob, artifact: Artifact, name: str) -> ProgramEngine:
    """Return a program of an artifact in the form that a runner takes."""
    program: Program = artifact.program(name)
    about, device = program.about, artifact.manifest.device
    inputs = {
        port.name: laid_out(torch.zeros(port.shape, dtype=getattr(torch, port.dtype), device=device), port.order or ())
        for port in about.inputs
    }
    outputs = [port.name for port in about.outputs]
    call = None if about.call is UNSET or about.result is UNSET else (about.call, about.result)
    with flags(artifact.manifest.dtype, job.subject.threads, search=device == "cuda"):
        own = read_flags()
    engine = ModuleEngine(lambda *tensors: tuple(program.run(list(tensors))))
    return ProgramEngine(engine, outputs, inputs, own, call)


class _Watch(Pipeline):
    """The pipeline, whose inputs and states are noted, so that it can be said what feeds which call."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._held: list[Tensor] = []
        """Keeps what was noted in memory, so that its address is not used again."""
        self._names: dict[int, str] = {}
        self._calls: list[MixCall] = []

    def taken(self) -> tuple[MixCall, ...]:
        """Return the calls since the last time, and forget them and all addresses."""
        found = tuple(self._calls)
        self._calls, self._names, self._held = [], {}, []
        return found

    def modules(self) -> Mapping[str, Any]:
        return self._pipeline.modules()

    def start(self, given: Any, run: Any) -> Any:
        return self._pipeline.start(given, run)

    def given(self, unit: int, draw: Any) -> Any:
        found = self._pipeline.given(unit, draw)
        self._note("given", flat(found))
        return found

    def step(self, state: Any, given: Any, run: Any) -> Any:
        self._note("state", flat(state))
        return self._pipeline.step(state, given, run)

    def _note(self, what: str, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, Tensor):
                self._held.append(value)
                self._names.setdefault(value.untyped_storage().data_ptr(), f"{what} {name}")

    def called(self, key: Key, port: Port, values: Mapping[str, Tensor]) -> None:
        inputs = tuple(
            _fed(name, value, self._names.get(value.untyped_storage().data_ptr(), "")) for name, value in values.items()
        )
        outputs = tuple(_fed(name, value) for name, value in port.outputs.items())
        for name, value in port.outputs.items():
            self._held.append(value)
            self._names[value.untyped_storage().data_ptr()] = f"call {len(self._calls)} {name}"
        self._calls.append(MixCall(*key, inputs, outputs))


def _fed(name: str, value: Tensor, source: str = "") -> Fed:
    return Fed(name, str(value.dtype).removeprefix("torch."), tuple(value.shape), source)


def _checked(played: Mapping[str, Tensor], recorded: Mapping[str, Tensor], limit: float) -> Iterator[OutputCheck]:
    """Yield the check of each output in the unit with the largest error. Raises BakeoffError if outputs differ in
    name."""
    if played.keys() != recorded.keys():
        odd = min(played.keys() ^ recorded.keys())
        raise BakeoffError(f"{odd} is played or recorded, but not both. Export the mix again.", code="bad-artifact")
    found: dict[str, list[tuple[int, Difference]]] = {}
    for text, value in played.items():
        number, _, name = text.partition("/")
        found.setdefault(name, []).append((int(number), compared(value, recorded[text])))
    for name, entries in found.items():
        yield worst_of("loop", name, limit, entries)
