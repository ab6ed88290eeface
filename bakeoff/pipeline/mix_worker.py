"""The workers of mixes: each has built its programs, and runs units of the loop in turns with the others."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bakeoff.machine import build_cache
from bakeoff.pipeline.plan import MixPlan
from bakeoff.pipeline.session import PipelineSession
from bakeoff.process.jobs import PipelineJob, SlotProgramJob
from bakeoff.process.phases import Block, Phase
from bakeoff.process.supervisor import Event, LiveWorker, Outcome
from bakeoff.record.pipeline import PipelineMeasurement
from bakeoff.record.schema import MEASURED, Finding, new_finding
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.row import References, measure_job

UNIT: Phase = "unit"
"""The command that asks for one unit of the loop."""


class MixWorker:
    """The parent's handle of it. A context manager: leaving it kills the worker."""

    def __init__(
        self,
        session: PipelineSession,
        mix: MixPlan,
        references: Mapping[str, References],
        loop: References,
        heap_offset: int,
        running: Running,
    ) -> None:
        """`references` are those of the programs, by `slot.program`; `loop` those of the loop."""
        self.mix = mix
        self.blocks: list[Block] = []
        """Of each unit so far."""
        self.span_s: list[float] = []
        """Seconds from each command to its answer, by this process's clock."""
        self._running = running
        self._outcome: Outcome | None = None
        _open_cache(mix)
        policy = session.plan.request.policy
        programs = tuple(
            SlotProgramJob(program.slot, measure_job(program.row, policy, references[program.name]))
            for program in mix.programs
        )
        job = PipelineJob(
            subject=session.plan.subject,
            mix=str(mix.mix),
            programs=programs,
            policy=policy,
            reference_folder=str(loop.folder),
            reference_hashes=loop.hashes,
            cache_folder=str(mix.cache_folder),
            heap_offset_bytes=heap_offset,
            profile=session.profile_of(mix),
        )
        timed = (UNIT,) if session.plan.request.monitor else ()
        launch = replace(session.launch_of(mix, running), on_event=self._on_event, timed=timed)
        self._worker = LiveWorker(job, launch)

    def __enter__(self) -> "MixWorker":
        self._worker.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._worker.__exit__(None, None, None)

    def _on_event(self, event: Event) -> None:
        if event.phase not in (UNIT, "opening"):  # the rounds are what is said of them
            detail = f"{self.mix.label} {event.detail}".strip()
            self._running.event(Event(event.phase, detail))

    @property
    def live(self) -> bool:
        """Whether it can run another unit."""
        return self._outcome is None

    @property
    def steady(self) -> int:
        """Steady units so far."""
        return sum(block.kind == "steady" for block in self.blocks)

    @property
    def unsettled(self) -> int:
        """Units since the last steady one."""
        kinds = ["steady", *(block.kind for block in self.blocks)]
        return kinds[::-1].index("steady")

    def wait_until_ready(self) -> None:
        """Afterwards it is `live`, unless a program could not be built or checked."""
        if self._worker.wait("ready") is None:
            self._end()

    def run_unit(self) -> Block | None:
        """Run one unit; None where the worker ended or took too long instead."""
        started = time.monotonic()
        self._worker.tell(UNIT)
        event = self._worker.wait(UNIT)
        block = event.block if event is not None else None
        if block is None:
            self._end()
            return None
        self.span_s.append(time.monotonic() - started)
        self.blocks.append(block)
        return block

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


def _open_cache(mix: MixPlan) -> None:
    """Make the folders of the mix's caches, without what an earlier run left that did not succeed."""
    if not build_cache.is_warm(mix.cache_folder):
        build_cache.delete_earlier_build(mix.cache_folder)
    build_cache.open_folder(mix.cache_folder)
    for program in mix.programs:
        program.row.cache_folder.mkdir(parents=True, exist_ok=True)


_IDLE = 0.05
"""Of a core: a mix that takes more while another one runs is not idle."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When the rounds end."""

    units: int
    """Steady units that each mix is to have."""
    unsettled: int
    """Units without a steady one, after which a mix is given up."""
    seconds: float
    """Of all rounds."""


def take_turns(
    workers: Sequence[MixWorker], limits: Limits, order: random.Random, running: Running
) -> tuple[Finding, ...]:
    """Run units until each mix has enough steady ones, fails, does not settle, or the time is over.

    Every mix runs in every round, one that has enough too: what changes on the machine meets all alike. Returns
    findings that hold for all.
    """
    started = time.monotonic()
    racing = [worker for worker in workers if worker.live]
    while any(worker.steady < limits.units for worker in racing):
        counts = ", ".join(f"{worker.mix.label} {worker.steady}/{limits.units}" for worker in racing)
        running.event(Event("rounds", counts))
        for worker in order.sample(racing, len(racing)):
            worker.run_unit()
        racing = [worker for worker in racing if worker.live and worker.unsettled < limits.unsettled]
        if time.monotonic() - started > limits.seconds:
            break
    return _not_idle(workers)


def _not_idle(workers: Sequence[MixWorker]) -> tuple[Finding, ...]:
    """A finding for the mixes that used the CPU while others ran."""
    found = []
    for worker in workers:
        others = [other for other in workers if other is not worker]
        others_s = sum(sum(block.samples_ns) for other in others for block in other.blocks) / 1e9
        # Before its first unit a mix has just finished building.
        idle_s = sum(block.idle_cpu_s for block in worker.blocks[1:])
        if others_s and idle_s > _IDLE * others_s:
            text = f"{worker.mix.label} took {idle_s / others_s:.0%} of a core while the other mixes ran"
            found.append(new_finding("not-idle", text))
    return tuple(found)
