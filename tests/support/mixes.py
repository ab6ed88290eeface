"""Mixes of the toy pipeline, checked and run in the test's process by the code of the worker."""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from lab import FAST

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import by_options
from bakeoff.models.options import options_of
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.models.types import Device
from bakeoff.process.jobs import (
    BackendStep,
    DescribeLoopJob,
    LoopReferenceJob,
    LoopSubject,
    MeasureJob,
    PipelineJob,
    ReferenceJob,
)
from bakeoff.process.phases import Block, UnitStamp
from bakeoff.record.pipeline import PipelineMeasurement
from bakeoff.variant import parse_use, parse_variant, split_outside_brackets
from bakeoff.worker.pipeline import promise
from bakeoff.worker.pipeline.describe import describe_loop
from bakeoff.worker.pipeline.parity import program_subject
from bakeoff.worker.pipeline.reference import make_loop_reference
from bakeoff.worker.pipeline.serve import serve_units
from bakeoff.worker.reference.make import make_reference

UNITS = 3
"""Of the loop's reference."""


@dataclass
class Heard:
    """A Reporter that keeps what is reported."""

    phases: list[str] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    then: Mapping[int, Callable[[], object]] = field(default_factory=dict)
    """What to do after so many units."""
    stamps: list[UnitStamp] = field(default_factory=list)

    def __call__(self, phase: str, _detail: str = "", /) -> None:
        self.phases.append(phase)

    def ready(self) -> None:
        self("ready")

    def unit(self, block: Block) -> None:
        self.blocks.append(block)
        self.then.get(len(self.blocks), lambda: None)()

    def stamp(self, stamp: UnitStamp) -> None:
        self.stamps.append(stamp)
        self.then.get(len(self.stamps), lambda: None)()


@cache
def loop_of(pipeline: str, preset: str = "tiny", **options: Any) -> Loop:
    """What a pipeline's first units say of it."""
    loop = describe_loop(DescribeLoopJob(pipeline, preset, options, "cpu", 1, 0, ""), Heard())
    return replace(loop, reference=pipeline)


def make_job(
    folder: Path,
    ways: dict[str, str],
    preset: str = "tiny",
    weight_seed: int = 0,
    device: Device = "cpu",
    pipeline: str = "toy_loops:Toy",
) -> PipelineJob:
    """A job for `backends/dtype` by slot, with its references, which later jobs in the same folder use again."""
    subject = LoopSubject(loop_of(pipeline, preset), weight_seed, 0, {}, device, 1)
    programs = []
    for key in subject.loop.programs:
        text, _, dtype = ways[key.slot].rpartition("/")
        uses = [parse_use(part) for part in split_outside_brackets(text, "+")]
        steps = tuple(BackendStep(name, dict(pairs or {})) for name, pairs in uses)
        one = program_subject(subject, key)
        reference = folder / f"reference-{key.slot}-{key.program}"
        make_reference(ReferenceJob(one, (dtype,), str(reference)), Heard())
        backends = [(resolve_backend(step.backend), step.options) for step in steps]
        quantised = [by_options(backend.quantises, options_of(backend, chosen)) for backend, chosen in backends]
        names = "+".join(backend.name for backend, _ in backends)
        measure = MeasureJob(
            one,
            str(parse_variant(f"{one.component}:{one.preset}.{one.workload}/{names}/{dtype}@{device}")),
            steps,
            dtype,  # type: ignore[arg-type]
            FAST,
            str(reference),
            str(folder / "cache"),
            next(filter(None, quantised), ""),
            hashes(reference),
        )
        programs.append((key.slot, measure))
    dtypes = {slot: str(measure.dtype) for slot, measure in programs}
    loop_folder = folder / "reference-loop"
    make_loop_reference(LoopReferenceJob(subject, (dtypes,), UNITS, str(loop_folder)), Heard())
    return PipelineJob(
        subject,
        tuple(programs),
        replace(FAST, settle_ratio=1e9),  # the machine is shared
        str(loop_folder),
        hashes(loop_folder),
    )


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def run_mix(
    job: PipelineJob,
    work: Path,
    units: int = 14,
    then: Mapping[int, Callable[[], object]] | None = None,
    heard: Heard | None = None,
) -> tuple[PipelineMeasurement, Heard]:
    """Serve this many units in a working folder of its own; `then` is what to do after so many of them."""
    work.mkdir()
    heard = heard or Heard(then=then or {})
    reading, writing = os.pipe()
    if job.sustained is None:
        os.write(writing, b"unit 1\n" * units + b"stop\n")
        os.close(writing)
    else:
        os.write(writing, b"unit\n")
        heard.then = {**heard.then, units: lambda: os.close(writing)}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        patch.setattr(promise, "_UNITS_NS", 100_000_000)
        return serve_units(job, heard, reading), heard  # type: ignore[arg-type]
