"""What all rows of one sweep, or of one comparison, share."""

import random
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakeoff.machine.floors import Ceiling
from bakeoff.machine.locks import entry_lock
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Key, Row
from bakeoff.process.supervisor import Outcome
from bakeoff.record.floor import share, work_dtypes
from bakeoff.record.schema import Record, SelftestStamp
from bakeoff.record.selftest_stamp import read_stamp
from bakeoff.sweeps.ceilings import known_ceilings
from bakeoff.sweeps.progress import Progress
from bakeoff.sweeps.seal import Seal
from bakeoff.sweeps.spent import Spent
from bakeoff.sweeps.weights import WeightsMemory


@dataclass(frozen=True, slots=True)
class Session:
    """Opened once, when the device's lock is held."""

    plan: Plan
    sweep: str
    order: tuple[Row, ...]
    """The rows in the order in which they are to run, but for those that are built beside an earlier one; with a budget
    one that does not fit is passed over."""
    order_seed: int | None
    """Of that order; None with a budget, which orders rows by what they are likely to tell, and for a comparison."""
    note: str
    load: float
    """`present_load` before it began; later the sweep itself is the load."""
    cache: Path
    ceilings: tuple[Ceiling, ...]
    """The best known: those of the records, and once a row needs them those that were measured for it."""
    selftest: SelftestStamp | None
    progress: Progress
    references: dict[tuple[Path, str], tuple[Outcome, Seal]] = field(default_factory=dict)
    """How making each reference folder ended, so that it is tried once, and the hashes of its files."""
    weights: WeightsMemory | None = None
    """Where workers leave the weights for those that follow; None: each makes them for itself."""
    spent: Spent = field(default_factory=Spent)
    """Where the time goes."""
    begun: list[Key] = field(default_factory=list)
    """The rows of the sweep that were begun so far, also before an interruption, in their order."""

    def position(self, row: Row) -> int:
        """The row's place among those that were begun, from 1; 0 for a row that only a final has."""
        return self.begun.index(row.key) + 1 if row.key in self.begun else 0

    def entry_lock(self, entry: Path) -> AbstractContextManager[None]:
        """Hold an entry of the cache folder alone, against sweeps on other CPUs that use the same cache."""
        return entry_lock(self.cache, entry, self.progress.say)

    def log_of(self, row: Row) -> Path:
        """The log of the row's worker; its other workers' logs are beside it."""
        return self.cache / "logs" / self.sweep / f"{row.slug}.log"


def open_session(
    plan: Plan,
    sweep: str,
    note: str,
    runs: Path,
    cache: Path,
    load: float,
    progress: Progress,
    order_seed: int | None = None,
) -> Session:
    """Read what the last selftest said and which ceilings of this machine are known, and order the rows."""
    order = plan.rows if order_seed is None else shuffled(plan.rows, order_seed)
    session = Session(plan, sweep, order, order_seed, note, load, cache, (), read_stamp(), progress)
    return _with_ceilings(session, runs, ())


def with_ceilings(session: Session, runs: Path) -> Session:
    """The session after measuring those ceilings of its rows' dtypes that are not known; none with a budget."""
    if session.plan.request.budget_s:
        return session
    running = (row for row in session.plan.rows if row.never_runs is None)
    dtypes = {dtype for row in running for dtype in work_dtypes(row.variant.dtype, row.quantisation)}
    return _with_ceilings(session, runs, dtypes)


def with_ceilings_again(session: Session, runs: Path, records: Iterable[Record]) -> Session:
    """The session after measuring the ceilings again where rows are above 100 % of their measured floor; none with a
    budget. What is stored of the rows stays as it is: pages compute floors from the best ceilings that are known."""
    above = [record for record in records if session.ceilings and _is_too_fast(record, session.ceilings)]
    if not above or session.plan.request.budget_s:
        return session
    names = ", ".join(dict.fromkeys(f"{record.variant.backend} {record.variant.dtype}" for record in above))
    session.progress.say(f"Above 100 % of the floor: {names}. The ceilings may be too low and are measured again.")
    dtypes = {dtype for record in above for dtype in work_dtypes(record.variant.dtype, record.quantisation)}
    return _with_ceilings(session, runs, dtypes, again=True)


def _with_ceilings(session: Session, runs: Path, measure: Collection[str], again: bool = False) -> Session:
    if not session.plan.request.ceilings or not session.plan.rows:
        return session
    subject = session.plan.rows[0].subject
    with session.spent.on("ceilings"):
        found = known_ceilings(subject.device, subject.threads, runs, session.cache, session.progress, again, measure)
    return replace(session, ceilings=found)


def _is_too_fast(record: Record, ceilings: Sequence[Ceiling]) -> bool:
    """Whether a row that is ok but for that is faster than its floor."""
    ok = record.status == "ok" or any(finding.code == "below_floor" for finding in record.measurement.findings)
    return ok and (share(record, ceilings) or 0.0) > 1


def shuffled(rows: Sequence[Row], seed: int) -> tuple[Row, ...]:
    """The rows in random order, but all of one fresh process before those of the next, and of these baselines first.

    In a fixed order the same variants would always run first, on a machine that is cooler or less busy, and a variant's
    place in the order would look like its speed. Baselines need no build, so that after a minute there is something
    that each later row can be compared with; a final does not depend on the order.
    """
    order = random.Random(seed)
    keys = {row.key: order.random() for row in rows}
    return tuple(sorted(rows, key=lambda row: (row.process, not row.baseline, keys[row.key])))
