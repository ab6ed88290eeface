"""A mix as one side of a race: its worker has built its programs, and runs units of the loop on command."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from statistics import median

from bakeoff.machine import build_cache
from bakeoff.pipeline.plan import MixPlan
from bakeoff.pipeline.session import PipelineSession
from bakeoff.process.jobs import PipelineJob, SlotProgramJob
from bakeoff.process.phases import Block
from bakeoff.process.supervisor import Event, LiveWorker, Outcome
from bakeoff.race import not_idle, take_turns
from bakeoff.record.pipeline import PipelineMeasurement
from bakeoff.record.schema import MEASURED, Finding
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.row import References, measure_job

UNIT = "unit"
"""The command that asks for units of the loop, as in `unit 1`."""
_TURN_NS = 25_000_000
"""A turn of short units takes about so long in the slowest mix: the first unit after a pause finds threads asleep and
caches cold, and may take several times as long as the ones after it."""
_LEAST_TURNS = 8
"""Turns with steady units that each mix is to have at least, where so many units are asked for: each meets the machine
as it is at another time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits at which the rounds end."""

    units: int
    """Steady units that each mix is to have."""
    unsettled: int
    """Units without a steady one, after which a mix is given up."""
    seconds: float
    """Time of all rounds."""


@dataclass(slots=True)
class MixWorker:
    """The parent's handle of it, a side of a race. A context manager: leaving it kills the worker."""

    session: PipelineSession
    mix: MixPlan
    references: Mapping[str, References]
    """References of the programs, by `slot.program`."""
    loop: References
    """References of the loop."""
    heap_offset: int
    limits: Limits
    running: Running
    blocks: list[Block] = field(default_factory=list)
    """Blocks of each turn so far; each unit is a sample."""
    units_a_turn: int = 1
    span_s: float = 0.0
    """Seconds from the commands to their answers, by this process's clock."""
    beside: int = 0
    """Each mix times its programs alone when it is built."""
    _worker: LiveWorker = field(init=False)
    _outcome: Outcome | None = None

    def __enter__(self) -> "MixWorker":
        session, mix = self.session, self.mix
        build_cache.open_folder(mix.cache_folder)
        for program in mix.programs:
            program.row.cache_folder.mkdir(parents=True, exist_ok=True)
        request = session.plan.request
        programs = tuple(
            SlotProgramJob(program.slot, measure_job(program.row, request.policy, self.references[program.name]))
            for program in mix.programs
        )
        job = PipelineJob(
            subject=session.plan.subject,
            mix=str(mix.mix),
            programs=programs,
            policy=request.policy,
            reference_folder=str(self.loop.folder),
            reference_hashes=self.loop.hashes,
            cache_folder=str(mix.cache_folder),
            heap_offset_bytes=self.heap_offset,
            profile=session.profile_of(mix),
        )
        timed = (UNIT,) if request.monitor else ()
        launch = replace(session.launch_of(mix, self.running), on_event=self._on_event, timed=timed)
        self._worker = LiveWorker(job, launch)
        self._worker.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._worker.__exit__(None, None, None)

    @property
    def label(self) -> str:
        return self.mix.label

    def _on_event(self, event: Event) -> None:
        if event.phase not in (UNIT, "opening"):  # the rounds are what is said of them
            self.running.event(Event(event.phase, f"{self.label} {event.detail}".strip()))

    @property
    def live(self) -> bool:
        """Whether it takes part in further rounds: it has not ended, and is not given up."""
        return self._outcome is None and not self.given_up

    @property
    def given_up(self) -> bool:
        """Whether so many units ran since the last steady one."""
        kinds = ["steady", *(block.kind for block in self.blocks)]
        return kinds[::-1].index("steady") >= self.limits.unsettled

    @property
    def steady(self) -> int:
        """Steady units so far."""
        return sum(len(block.samples_ns) for block in self.blocks if block.kind == "steady")

    @property
    def enough(self) -> bool:
        """Whether it has all its steady units, from turns enough."""
        turns = sum(block.kind == "steady" for block in self.blocks)
        return self.steady >= self.limits.units and turns >= min(self.limits.units, _LEAST_TURNS)

    def warm_up(self) -> None:
        """Nothing is left to do: it has timed its programs."""

    def block(self) -> Block | None:
        """Run a turn; None where the worker ended or took too long instead."""
        started = time.monotonic()
        self._worker.tell(f"{UNIT} {self.units_a_turn}")
        event = self._worker.wait(UNIT)
        if event is None or event.block is None:
            self._end()
            return None
        self.span_s += time.monotonic() - started
        self.blocks.append(event.block)
        return event.block

    def finish(self) -> Outcome:
        """Stop the worker, and say how it went.

        It may have idled for long while other mixes ended, so its patience begins anew with what it announces first.
        """
        if self._outcome is None:
            self._worker.tell("stop")
            if self._worker.wait("loop check") is not None:
                self._worker.wait()
        return self._end()

    def _end(self) -> Outcome:
        if self._outcome is None:
            self._outcome = self._worker.finish(PipelineMeasurement)
            if self._outcome.kind == "result" and self._outcome.value.status in MEASURED:
                build_cache.mark_finished(self.mix.cache_folder)
        return self._outcome


def wait_until_ready(workers: Sequence[MixWorker]) -> None:
    """Afterwards each is `live`, unless a program of it could not be built or checked."""
    for worker in workers:
        if worker._worker.wait("ready") is None:
            worker._end()


def run_rounds(workers: Sequence[MixWorker], limits: Limits, order: random.Random, running: Running) -> list[Finding]:
    """Run units until each mix has enough steady ones, fails, does not settle, or the time is over.

    Once all are steady each turn has equally many units of each mix, so that units of one number are a pair. Returns
    findings that hold for all.
    """
    started, sides = time.monotonic(), dict(enumerate(workers))

    def goes_on(_done: int) -> bool:
        racing = [worker for worker in workers if worker.live]
        counts = ", ".join(f"{worker.label} {worker.steady}/{limits.units}" for worker in racing)
        running.event(Event("rounds", counts))
        units = _units_a_turn(racing)
        for worker in racing:
            worker.units_a_turn = units
        return time.monotonic() - started <= limits.seconds and not all(worker.enough for worker in racing)

    return not_idle(sides, take_turns(sides, order, goes_on))


def _units_a_turn(racing: Sequence[MixWorker]) -> int:
    """One, until the last turn of each mix was steady; then so many that the slowest mix's turn is long enough."""
    last = [worker.blocks[-1] for worker in racing if worker.blocks]
    if len(last) < len(racing) or any(block.kind != "steady" for block in last):
        return 1
    slowest_ns = max(median(block.samples_ns) for block in last)
    return ceil(_TURN_NS / slowest_ns)
