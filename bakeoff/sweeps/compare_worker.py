"""A row as one side of a race: its worker has built the variant, and runs a block of calls on command."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bakeoff.machine.build_cache import open_folder
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.rows import Row
from bakeoff.process.jobs import CompareJob
from bakeoff.process.phases import Block
from bakeoff.process.supervisor import Event, LiveWorker, wait_for
from bakeoff.record.schema import Measurement, Record
from bakeoff.sweeps.assemble import make_record
from bakeoff.sweeps.progress import Running
from bakeoff.sweeps.row import References, launch_of, measure_job
from bakeoff.sweeps.session import Session

_BLOCK_S = 0.06
_LONGEST_BLOCK = 200
"""Calls; a block's samples are sent as one line."""


class SideFailedError(BakeoffError):
    """A side that cannot be built, checked or run."""

    def __init__(self, row: Row, why: str) -> None:
        super().__init__(f"{row.variant} cannot be compared: {why}", "not-comparable")
        self.row, self.why = row, why


@dataclass(slots=True)
class CompareWorker:
    """The parent's handle of it. A context manager: leaving it kills the worker."""

    session: Session
    row: Row
    references: References
    """References of the row's subject."""
    heap_offset: int
    running: Running
    beside: int
    """Number of other builds at the same time, as in `launch_of`."""
    least_calls: int
    """Smallest number of calls of a block."""
    calls: int = 0
    """Calls of a block, known when the side is ready."""
    call_ns: int = 0
    """About how long one call takes, known as soon."""
    _worker: LiveWorker = field(init=False)

    def __enter__(self) -> "CompareWorker":
        open_folder(self.row.cache_folder)
        request = self.session.plan.request
        job = replace(measure_job(self.row, request.policy, self.references), opens=True)
        launch = launch_of(self.session, self.row, self.running, self.beside)
        self._worker = LiveWorker(
            CompareJob(job, self.heap_offset, request.objective.goal == "throughput"),
            replace(launch, log=launch.log.with_suffix(".final.log"), on_event=self._on_event),
        )
        self._worker.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._worker.__exit__(None, None, None)

    @property
    def label(self) -> str:
        return f"{self.row.variant.backend} {self.row.variant.dtype}"

    @property
    def live(self) -> bool:
        """Wait until the worker is ready or has raised."""
        return True

    def _on_event(self, event: Event) -> None:
        if event.phase != "block":
            self.running.event(Event(event.phase, self.label))

    def warm_up(self) -> None:
        """Raises BakeoffError where the worker ends instead."""
        self._worker.tell("go")
        self.call_ns = max(1, self._expect("ready").call_ns or 0)
        self.calls = max(self.least_calls, min(_LONGEST_BLOCK, round(_BLOCK_S * 1e9 / self.call_ns)))

    def block(self) -> Block | None:
        """Time a block of calls. Raises BakeoffError where the worker ends instead."""
        self._worker.tell(str(self.calls))
        return self._expect("block").block

    def end(self) -> Record:
        """Stop the worker, and return what was measured on as a record without clocks."""
        self._worker.tell("stop")
        self._worker.wait()
        return self._record()

    def _expect(self, phase: str) -> Event:
        event = self._worker.wait(phase)
        if event is None or (event.call_ns is None and event.block is None):
            raise self._failure()
        return event

    def _failure(self) -> BakeoffError:
        record = self._record()
        return SideFailedError(self.row, f"{record.status}: {record.measurement.reason}")

    def _record(self) -> Record:
        """Raises BakeoffError where the request itself was wrong (other weights than those that were described)."""
        outcome = self._worker.finish(Measurement)
        if outcome.kind == "refused":
            raise BakeoffError(outcome.reason, outcome.code)
        return make_record(self.session, self.row, outcome)


def wait_until_built(sides: Sequence[CompareWorker]) -> None:
    """Raises BakeoffError when a variant cannot be built or fails its checks."""
    found = wait_for({side._worker: "turn" for side in sides})
    for side in sides:
        if found[side._worker] is None:
            raise side._failure()
