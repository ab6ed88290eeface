"""The worker of a mix as one side of a race: it has built the mix's programs, and runs units of the loop on command."""

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf
from statistics import median

from bakeoff.export.warmup import WarmCall
from bakeoff.machine import build_cache
from bakeoff.models.pipelines.schedule import SEQUENTIAL
from bakeoff.pipeline.plan import MixPlan
from bakeoff.pipeline.session import PipelineSession
from bakeoff.process.jobs import MeasureJob, PipelineJob
from bakeoff.process.phases import Block, UnitStamp
from bakeoff.process.supervisor import Event, LiveWorker, Outcome, spent_s
from bakeoff.race import not_idle, take_turns
from bakeoff.record.deadline import Viewer
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.pipeline import PipelineMeasurement, Sustained
from bakeoff.record.schema import MEASURED
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.row import References, measure_job

UNIT = "unit"
"""Command that runs units of the loop, as in `unit 8 2`: eight, after two that follow the pause."""
_TURN_NS = 25_000_000
"""Approximate length of a turn of short units in the slowest mix, in ns."""
_RESUMING_NS, _LONG_NS = 5_000_000, 100_000_000
"""How long units of the fastest mix run before those that count, after each pause, and the length of a unit from which
none do, in ns. The first unit after a pause finds threads asleep and caches cold. On two cores of a Xeon, one of 1 to
5 ms took 1.4 to 2.9 times as long, the second 1.05 to 1.25 times, and the third or fourth as long as all later ones."""
_MOST_UNITS = 1_000_000
"""Largest number of units of a sustained run, which bounds the size of its record: 35 bytes a unit."""
_LEAST_TURNS = 8
"""Smallest number of turns with steady units of each mix, if so many units are requested: the turns spread over
different states of the machine."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that end the rounds."""

    units: int
    """Steady units that each mix needs."""
    unsettled: int
    """Number of consecutive units without a steady one after which a mix is given up."""
    seconds: float
    """Time limit of all rounds together."""
    steady_s: float = inf
    """Seconds of steady units that suffice for a mix, however few or many they are."""


def open_caches(mix: MixPlan) -> None:
    """Make the folders in which the programs of a mix are built."""
    build_cache.open_folder(mix.cache_folder)
    for row in mix.rows.values():
        row.cache_folder.mkdir(parents=True, exist_ok=True)


def in_threads(job: MeasureJob, threads: int | None) -> MeasureJob:
    """Return the job of a program that is built and called with so many threads; None: as the job says."""
    return job if threads is None else replace(job, subject=replace(job.subject, threads=threads), engine="")


@dataclass(slots=True)
class MixWorker:
    """The parent's handle of a mix's worker, as a side of a race.

    A context manager: entering it starts the worker, leaving it kills the worker.
    """

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
    """Block of each turn so far; each unit is a sample."""
    units_a_turn: tuple[int, int] = (1, 0)
    """Units of the next turn that count, and those before them that follow the pause."""
    stamps: list[UnitStamp] = field(default_factory=list)
    """Units of a sustained run so far."""
    span_s: float = 0.0
    """Seconds between the commands and their answers, summed over all turns, by this process's clock."""
    cold: bool = False
    """Whether the time from the start of its process counts."""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    """Folder of the artifact with each `slot.program`, to be loaded instead of built."""
    warm: tuple[WarmCall, ...] = ()
    """Calls to make before the first session."""
    beside: int = 0
    """0: mixes open one after the other, since what one builds is in the others' way as they check their loops."""
    _worker: LiveWorker = field(init=False)
    _outcome: Outcome | None = None
    _began: float = 0.0
    """When a sustained run began."""

    def __enter__(self) -> "MixWorker":
        session, mix = self.session, self.mix
        open_caches(mix)
        request = session.plan.request
        programs = tuple(
            (key.slot, in_threads(measure_job(row, request.policy, self.references[str(key)]), mix.threads.get(key)))
            for key, row in mix.rows.items()
        )
        job = PipelineJob(
            subject=session.plan.subject,
            programs=programs,
            policy=request.policy,
            reference_folder=str(self.loop.folder),
            reference_hashes=self.loop.hashes,
            heap_offset_bytes=self.heap_offset,
            profile=session.profile_of(mix),
            horizon_db=request.horizon_db,
            sustained=request.sustained,
            cold=self.cold,
            artifacts=dict(self.artifacts),
            warm=self.warm,
            schedule=mix.mix.schedule or (SEQUENTIAL if request.schedules else ""),
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

    def until_first_s(self) -> Mapping[str, float]:
        """Return the seconds of each phase until the first unit was reported, by this process's clock."""
        phases = [phase for phase, _ in self._worker.timeline]
        return spent_s(self._worker.timeline[: phases.index(UNIT) + 1])

    def _on_event(self, event: Event) -> None:
        if event.stamp is not None:
            self.stamps.append(event.stamp)
            self.span_s = time.monotonic() - self._began
        if event.phase not in (UNIT, "opening"):  # the rounds are what is said of them
            self.running.event(Event(event.phase, f"{self.label} {event.detail}".strip()))

    @property
    def live(self) -> bool:
        """Whether the worker takes part in further rounds: it has neither ended nor been given up."""
        return self._outcome is None and not self.given_up

    @property
    def given_up(self) -> bool:
        """Whether too many units (`Limits.unsettled`) ran since the last steady one."""
        kinds = ["steady", *(block.kind for block in self.blocks)]
        return kinds[::-1].index("steady") >= self.limits.unsettled

    @property
    def steady(self) -> int:
        """Number of steady units so far."""
        return sum(len(block.samples_ns) - block.resumed for block in self.blocks if block.kind == "steady")

    @property
    def enough(self) -> bool:
        """Whether the mix has all its steady units, from enough turns."""
        counted = [block.samples_ns[block.resumed :] for block in self.blocks if block.kind == "steady"]
        turns = [samples_ns for samples_ns in counted if samples_ns]
        if self.limits.steady_s < inf:
            return len(turns) >= _LEAST_TURNS and sum(map(sum, turns)) >= self.limits.steady_s * 1e9
        return self.steady >= self.limits.units and len(turns) >= min(self.limits.units, _LEAST_TURNS)

    def warm_up(self) -> None:
        """Do nothing: the worker has already timed its programs."""

    def block(self) -> Block | None:
        """Run a turn and return its block; None if the worker ended or exceeded its deadline instead."""
        started = time.monotonic()
        self._worker.tell(" ".join(map(str, (UNIT, *self.units_a_turn))))
        event = self._worker.wait(UNIT)
        if event is None or event.block is None:
            self._end()
            return None
        self.span_s += time.monotonic() - started
        self.blocks.append(event.block)
        return event.block

    def sustained(self) -> Iterator[UnitStamp]:
        """Let the worker run one unit after the other, and yield each; end if the worker does, or exceeds its deadline.

        The worker runs on until `finish`.
        """
        self._began, yielded = time.monotonic(), 0
        self._worker.tell(UNIT)
        while self._worker.wait(UNIT) is not None:
            while yielded < len(self.stamps):
                yielded += 1
                yield self.stamps[yielded - 1]
            self._worker.go_on()
        self._end()

    def finish(self) -> Outcome:
        """Stop the worker and return its outcome.

        The worker may have been idle for long while other mixes ended, so its deadline starts again with its next
        announcement.
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
    """Wait until each worker is ready, or has ended because a program could not be built or checked."""
    for worker in workers:
        if worker._worker.wait("ready") is None:
            worker._end()


def run_rounds(workers: Sequence[MixWorker], limits: Limits, order: random.Random, running: Running) -> list[Finding]:
    """Run units until each mix has enough steady ones, fails or does not settle, or the time is over; return findings.

    When all mixes are steady, each turn has equally many units of each mix, so that units with the same number form a
    pair. The findings hold for all mixes. The first turn runs however short the time is.
    """
    started, sides = time.monotonic(), dict(enumerate(workers))

    def goes_on(done: int) -> bool:
        racing = [worker for worker in workers if worker.live]
        counts = ", ".join(f"{worker.label} {worker.steady}/{limits.units}" for worker in racing)
        running.event(Event("rounds", counts))
        units = _units_a_turn(racing)
        for worker in racing:
            worker.units_a_turn = units
        in_time = done == 0 or time.monotonic() - started <= limits.seconds
        return in_time and not all(worker.enough for worker in racing)

    return not_idle(sides, take_turns(sides, order, goes_on))


def run_sustained(
    worker: MixWorker, limits: Limits, how: Sustained, stop: Callable[[], bool], running: Running
) -> Sequence[Finding]:
    """Run units until `limits.seconds` after the first steady one, until the mix fails, or until `stop`.

    Returns a finding if the time was not over.
    """
    viewer, since = Viewer(how), 0.0
    for count, stamp in enumerate(worker.sustained(), 1):
        if since or stamp.kind == "steady":
            viewer.add(stamp.started_ns, stamp.wall_ns, stamp.frames, stamp.opened_ns if since else 0)
            since = since or time.monotonic()
        running.event(Event("rounds", _seen_by(viewer)))
        passed_s = time.monotonic() - since if since else 0.0
        if stop() or count >= _MOST_UNITS:
            asked = f"{limits.seconds / 60:g} minutes"
            why = "the command was told to end" if stop() else f"a run has at most {_MOST_UNITS:,} units"
            return (new_finding("few-units", f"{passed_s / 60:.2g} of {asked}: {why}"),)
        if passed_s >= limits.seconds or (not since and count >= limits.unsettled):
            break
    return ()


def _seen_by(viewer: Viewer) -> str:
    if not viewer.units:
        return "warming up"
    passed_ns = viewer.units[-1].ready_ns - viewer.units[0].submit_ns
    return f"{viewer.frames * 1e9 / passed_ns:.2f} fps, {viewer.misses:,} late at {viewer.how.fps:g}"


def _units_a_turn(racing: Sequence[MixWorker]) -> tuple[int, int]:
    """Return how many units of the next turn count, as many as fill a turn of the slowest mix, and how many follow the
    pause before them. Until the last turn of each mix was steady a turn has one unit, which counts if it is long."""
    last = [worker.blocks[-1] for worker in racing if worker.blocks]
    units_ns = [median(block.samples_ns[block.resumed :] or block.samples_ns) for block in last]
    if len(last) < len(racing) or max(units_ns) >= _LONG_NS:
        return 1, 0
    if any(block.kind != "steady" for block in last):
        return 0, 1
    return ceil(_TURN_NS / max(units_ns)), ceil(_RESUMING_NS / min(units_ns))
