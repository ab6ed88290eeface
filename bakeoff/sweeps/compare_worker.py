"""The worker of one side of a comparison: it has built its variant, and runs a block of calls on command."""

from collections.abc import Sequence
from dataclasses import replace

from bakeoff.models.errors import BakeoffError
from bakeoff.plan.rows import Row
from bakeoff.process.jobs import CompareJob
from bakeoff.process.phases import Block, Phase
from bakeoff.process.supervisor import Event, LiveWorker, wait_for
from bakeoff.record.schema import Measurement, Record
from bakeoff.sweeps.assemble import make_record
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.row import References, launch_of, measure_job, open_cache
from bakeoff.sweeps.session import Session


class SideFailedError(BakeoffError):
    """A side that cannot be built, checked or run."""

    def __init__(self, row: Row, why: str) -> None:
        super().__init__(f"{row.variant} cannot be compared: {why}", "not-comparable")
        self.row, self.why = row, why


BLOCK_S = 0.06
_LONGEST_BLOCK = 200
"""Calls; a block's samples are sent as one line."""


class CompareWorker:
    """The parent's handle of it. A context manager: leaving it kills the worker."""

    def __init__(
        self,
        session: Session,
        row: Row,
        references: References,
        name: str,
        heap_offset: int,
        running: Running,
        beside: int,
    ) -> None:
        """`references` are the subject's; `name` tells the logs of the sides apart; `beside` as in `launch_of`."""
        self._session, self._row, self._running = session, row, running
        open_cache(row)
        request = session.plan.request
        queued = request.objective.goal == "throughput"
        job = CompareJob(measure_job(row, request.policy, references), heap_offset, queued)
        launch = launch_of(session, row, running, beside)
        log = launch.log.with_suffix(f".{name}.log")
        self._worker = LiveWorker(job, replace(launch, log=log, on_event=self._on_event))
        self.call_ns = 0.0
        """About how long one call takes, known when the side is ready."""

    def __enter__(self) -> "CompareWorker":
        self._worker.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._worker.__exit__(None, None, None)

    def _on_event(self, event: Event) -> None:
        if event.phase != "block":
            variant = self._row.variant
            self._running.event(Event(event.phase, f"{variant.backend} {variant.dtype}"))

    def _warm_up(self) -> None:
        """Raises BakeoffError when the variant cannot be built or fails its checks."""
        self._worker.tell("go")
        call_ns = self._expect("ready").call_ns
        if call_ns is None:
            raise self._failure()
        self.call_ns = float(call_ns)

    def run(self, calls: int) -> Block:
        """Time a block of `calls`. Raises BakeoffError when the worker ends instead."""
        self._worker.tell(str(calls))
        block = self._expect("block").block
        if block is None:
            raise self._failure()
        return block

    def calls_a_block(self) -> int:
        return max(1, min(_LONGEST_BLOCK, round(BLOCK_S * 1e9 / max(self.call_ns, 1.0))))

    def end(self) -> Record:
        """Stop the worker, and return what was measured on as a record without clocks."""
        self._worker.tell("stop")
        self._worker.wait()
        return self._record()

    def _expect(self, phase: Phase) -> Event:
        event = self._worker.wait(phase)
        if event is None:
            raise self._failure()
        return event

    def _failure(self) -> BakeoffError:
        record = self._record()
        return SideFailedError(self._row, f"{record.status}: {record.measurement.reason}")

    def _record(self) -> Record:
        """Raises BakeoffError where the request itself was wrong (other weights than those that were described)."""
        outcome = self._worker.finish(Measurement)
        if outcome.kind == "refused":
            raise BakeoffError(outcome.reason, outcome.code)
        return make_record(self._session, self._row, outcome)


def wait_until_built(sides: Sequence[CompareWorker]) -> None:
    """Raises BakeoffError when a variant cannot be built or fails its checks."""
    found = wait_for({side._worker: "turn" for side in sides if side._worker.phase != "turn"})
    for side in sides:
        if found.get(side._worker, True) is None:
            raise side._failure()


def wait_until_ready(sides: Sequence[CompareWorker]) -> None:
    """Wait until all sides are built, and let one after the other warm up.

    Raises BakeoffError when a variant cannot be built or fails its checks.
    """
    wait_until_built(sides)
    for side in sides:
        side._warm_up()
