"""What all rows of one sweep, or of one comparison, share."""

from dataclasses import dataclass, field
from pathlib import Path

from bakeoff.machine.floors import Ceiling
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Row
from bakeoff.process.supervisor import Outcome
from bakeoff.record.provenance import read_stamp
from bakeoff.record.schema import SelftestStamp
from bakeoff.sweep.ceilings import known_ceilings
from bakeoff.sweep.progress import Progress


@dataclass(frozen=True, slots=True)
class Session:
    """Opened once, when the device's lock is held."""

    plan: Plan
    sweep: str
    note: str
    load: float
    """One-minute load average before it began; later the sweep itself is the load."""
    cache: Path
    ceilings: tuple[Ceiling, ...]
    selftest: SelftestStamp | None
    progress: Progress
    references: dict[Path, Outcome] = field(default_factory=dict)
    """How making each reference folder ended, so that it is tried once."""

    def log_of(self, row: Row) -> Path:
        """The log of the row's worker; its other workers' logs are beside it."""
        return self.cache / "logs" / self.sweep / f"{row.slug}.log"


def open_session(plan: Plan, sweep: str, note: str, cache: Path, load: float, progress: Progress) -> Session:
    """Read what the last selftest said, and measure this machine's ceilings where they are not known."""
    ceilings: tuple[Ceiling, ...] = ()
    if plan.request.ceilings and any(row.precheck is None for row in plan.rows):
        subject = plan.rows[0].subject
        ceilings = known_ceilings(subject.device, subject.threads, cache, progress)
    return Session(plan, sweep, note, load, cache, ceilings, read_stamp(), progress)
