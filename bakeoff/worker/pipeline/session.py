"""The timed part of a mix: one unit for each command, what is watched meanwhile, and the time of a stamp."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch

from bakeoff.backends.torch_internals import snapshot
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.models.words import counted
from bakeoff.process.phases import Block
from bakeoff.worker.clocks.clock import now_ns
from bakeoff.worker.clocks.cpu_usage import CpuMeter
from bakeoff.worker.device import GpuWatch, held_bytes
from bakeoff.worker.failures import call_stage
from bakeoff.worker.pipeline.clocks import UNATTRIBUTED, make_clock
from bakeoff.worker.pipeline.programs import LoopProgram
from bakeoff.worker.pipeline.runner import LoopRunner, UnitSample
from bakeoff.worker.pipeline.units import Counters, UnitLog, check_account
from bakeoff.worker.reporter import Reporter, read_lines, wait_for_idle_threads

_STAMPS, _STAMP_BLOCKS = 200, 15


@dataclass(slots=True)
class TimedUnits:
    """The units of a mix as they are asked for."""

    runner: LoopRunner
    loop: Loop
    log: UnitLog
    watch: GpuWatch
    device: str
    report: Reporter
    cpu: CpuMeter = field(default_factory=CpuMeter)
    opened_ns: list[int] = field(default_factory=list)
    held_bytes: list[int] = field(default_factory=list)
    """After each steady unit."""
    problem: str = ""
    """The first output that was not finite."""

    def serve(self, commands: int) -> None:
        """Run a unit for each line `unit` on this descriptor, and report it; until `stop`, or until it is closed.

        Raises StageError where a program fails, and RuntimeError where the account of a unit does not add up.
        """
        idle_since = time.process_time()
        for line in read_lines(commands):
            if line == b"stop":
                return
            idle_cpu_s = time.process_time() - idle_since
            with self.cpu.interval():
                sample = self.next_unit()
            kind = self.log.add(sample)
            self._look(sample)
            if kind == "steady":
                self.held_bytes.append(held_bytes(self.device))
            self.watch.read()
            wait_for_idle_threads()
            idle_since = time.process_time()
            self.report.unit(Block((sample.wall_ns,), idle_cpu_s, kind))

    def next_unit(self) -> UnitSample:
        """Run the next unit, of a new session where none is open or the last one is at its end."""
        if self.runner.session < 0 or self.runner.at_end:
            self.report("opening")
            self.opened_ns.append(call_stage(self.runner.open))
        sample = call_stage(self.runner.unit)
        check_account(sample)
        return sample

    def _look(self, sample: UnitSample) -> None:
        for name, value in self.runner.values(output.name for output in self.loop.outputs).items():
            if not self.problem and not torch.isfinite(value).all():
                bad = int((~torch.isfinite(value)).sum())
                where = f"unit {sample.unit} of session {sample.session}"
                self.problem = (
                    f"{name}: {bad} of {counted(value.numel(), 'value is', 'values are')} not finite ({where})"
                )


def counters(programs: Sequence[LoopProgram]) -> Counters:
    """What counts compilations and captures: of each engine by itself; counters that several engines may share; and
    all graphs that dynamo captured."""

    def each(read: Callable[[LoopProgram], object]) -> Mapping[str, int]:
        return {".".join(program.key): hash(read(program)) for program in programs}

    def read() -> Sequence[Mapping[str, int]]:
        return (
            each(lambda program: program.checked.built.engine.compilations()),
            each(lambda program: tuple(sorted(program.checked.built.engine.activity().items()))),
            {"torch.compile": snapshot().captured},
        )

    return read


def stamp_ns(device: str) -> int:
    """Median time of one mark of a unit's account, in nanoseconds."""
    return round(median(stamp_samples(device)))


def stamp_samples(device: str) -> tuple[int, ...]:
    """Nanoseconds of one mark, the mean of each of several blocks of marks."""
    clock = make_clock(device, UNATTRIBUTED + 1)
    found = []
    for _ in range(_STAMP_BLOCKS):
        clock.begin()
        started = now_ns()
        for _ in range(_STAMPS):
            clock.mark(UNATTRIBUTED)
        found.append(round((now_ns() - started) / _STAMPS))
        clock.end()
    return tuple(found)
