"""State shared by all rows of one sweep or comparison, and an account of its wall time.

Workers run code of compilers and of users, and read references and limits from this folder.
"""

import hashlib
import os
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from bakeoff.machine.files import write_atomically
from bakeoff.machine.floors import Ceiling
from bakeoff.machine.locks import entry_lock
from bakeoff.models.component import Work
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Key, Row
from bakeoff.process.jobs import Subject
from bakeoff.process.supervisor import Outcome
from bakeoff.record.floor import share, work_dtypes
from bakeoff.record.kept import read_stamp
from bakeoff.record.schema import Record, SelftestStamp
from bakeoff.record.store import load_all
from bakeoff.sweeps.describe import known_ceilings, unmeasured_dtypes, works_of
from bakeoff.sweeps.progress import Progress


class WeightsMemory:
    """Memory in which the first worker of a subject leaves its weights for all that follow.

    Drawing 275 million values takes 3 seconds of a core in each of about forty workers of a sweep; copying them takes
    0.3. Memory files (memfd_create(2)) exist as long as this object is not closed; they are on no disk.
    """

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}

    def path_of(self, references: Path) -> str:
        """Return the path where workers find the weights of the subject with this folder of references, or leave them.

        "" where the kernel refuses such memory.
        """
        if references not in self._held:
            try:
                made = os.memfd_create("weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            except OSError:
                return ""
            self._held[references] = made
        return f"/proc/{os.getpid()}/fd/{self._held[references]}"

    def close(self) -> None:
        """Free the memory; workers that still run keep what they copied."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()


Part = Literal[
    "counting work",
    "ceilings",
    "references",
    "precompiled headers",
    "imports",
    "builds",
    "stopped builds",
    "sampling",
    "checks",
    "warm and traced builds",
    "builds of the final",
    "timing of the final",
]
_PART: Mapping[str, Part] = {
    "start": "imports",
    "import": "imports",
    "weights": "builds",
    "build": "builds",
    "prove": "builds",
    "check": "checks",
    "warm-up": "sampling",
    "latency": "sampling",
    "throughput": "sampling",
    "memory": "checks",
    "fresh inputs": "checks",
    "sizes": "checks",
    "trace": "warm and traced builds",
}
"""Part that each phase of a measuring worker counts for; a worker that waits for its turn counts for nothing."""


@dataclass(frozen=True, slots=True)
class Span:
    """Time from `start` to `end`, in seconds of one clock, that counts for `part`."""

    part: Part
    start: float
    end: float


@dataclass(slots=True)
class TimeSpent:
    """Account of what ran when in one sweep."""

    began: float = field(default_factory=time.monotonic)
    spans: list[Span] = field(default_factory=list)

    @contextmanager
    def on(self, part: Part) -> Iterator[None]:
        """All time within it counts for this part."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.spans.append(Span(part, start, time.monotonic()))

    def worker(self, timeline: Sequence[tuple[str, float]], part: Part | None = None) -> None:
        """The phases of a worker, each with the moment when it began; all but waiting count for `part` if given."""
        for (phase, start), (_, end) in pairwise(timeline):
            of_phase = _PART.get(phase)
            if phase != "turn" and (part or of_phase):
                self.spans.append(Span(part or of_phase, start, end))  # type: ignore[arg-type]

    def stopped(self, timeline: Sequence[tuple[str, float]]) -> None:
        """The phases of a worker that was stopped, with the time at its end: until its turn it was a stopped build."""
        phases = [phase for phase, _ in timeline]
        turn = phases.index("turn") if "turn" in phases else len(phases) - 1
        self.worker(timeline[: turn + 1], "stopped builds")
        self.worker(timeline[turn:])

    def since_began(self, span: tuple[float, float] | None) -> tuple[float, float] | None:
        """Return the span in seconds since the sweep began."""
        return None if span is None else (round(span[0] - self.began, 3), round(span[1] - self.began, 3))

    def seconds(self) -> dict[str, float]:
        """Seconds of each part, the largest first; what is left of the time until now as "other"."""
        found = share_out(self.spans)
        found["other"] = max(0.0, time.monotonic() - self.began - sum(found.values()))
        return dict(sorted(found.items(), key=lambda entry: -entry[1]))


@dataclass(frozen=True, slots=True)
class SealedFile:
    """One file as it was when the folder was sealed."""

    sha256: str
    stat: tuple[int, ...]
    """Size, inode, and times of the last change of content and of attributes in ns: a file whose values are the same
    is not read again."""


Seal = Mapping[str, SealedFile]
"""Hashes of files by name."""


def share_out(spans: Iterable[Span]) -> dict[str, float]:
    """Seconds by part; a moment that lies in several spans is shared by them in equal parts."""
    changes = sorted((at, change, span.part) for span in spans for at, change in ((span.start, 1), (span.end, -1)))
    running: dict[Part, int] = defaultdict(int)
    found: dict[str, float] = defaultdict(float)
    for (at, change, part), (until, _, _) in pairwise(changes):
        running[part] += change
        total = sum(running.values())
        for name, count in running.items():
            if count:
                found[name] += (until - at) * count / total
    return dict(found)


@dataclass(frozen=True, slots=True)
class Session:
    """Opened once, when the device's lock is held."""

    plan: Plan
    sweep: str
    order: tuple[Row, ...]
    """The rows in the order in which they are to run, but for those that are built beside an earlier one; with a budget
    one that does not fit is passed over."""
    order_seed: int | None
    """Seed of that order; None for a comparison, and with a budget, which sets the order."""
    note: str
    load: float
    """`present_load` before it began; later the sweep itself is the load."""
    cache: Path
    ceilings: tuple[Ceiling, ...]
    """The best known: those of the records, and after the rows those that were measured for them."""
    selftest: SelftestStamp | None
    progress: Progress
    unmeasured: tuple[str, ...] = ()
    """Dtypes of its rows whose ceilings are to be measured."""
    works: Mapping[Subject, Work] = field(default_factory=dict)
    """Work of a call of each subject, once rows are to run."""
    references: dict[tuple[Path, str], tuple[Outcome, Seal]] = field(default_factory=dict)
    """Outcome of making each reference folder, so that it is tried once, and the hashes of its files."""
    weights: WeightsMemory | None = None
    """Memory where workers leave the weights for later ones; None: each makes them for itself."""
    spent: TimeSpent = field(default_factory=TimeSpent)
    """Account of the sweep's time."""
    begun: list[Key] = field(default_factory=list)
    """The rows of the sweep that were begun so far, also before an interruption, in their order."""

    def position(self, row: Row) -> int:
        """Return the row's place among those that were begun, from 1; 0 for a row that only a final has."""
        return self.begun.index(row.key) + 1 if row.key in self.begun else 0

    def entry_lock(self, entry: Path) -> AbstractContextManager[None]:
        """Hold an entry of the cache folder alone, against sweeps on other CPUs that use the same cache."""
        return entry_lock(self.cache, entry, self.progress.say)

    def log_of(self, row: Row) -> Path:
        """Return the log of the row's worker; its other workers' logs are beside it."""
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
    session = _with_ceilings(session, runs, ())
    return replace(session, unmeasured=_unmeasured(plan, runs))


def _unmeasured(plan: Plan, runs: Path) -> tuple[str, ...]:
    """Dtypes of the rows whose ceilings are not known and to be measured; none with a budget."""
    if not plan.request.ceilings or plan.request.budget_s or not plan.rows:
        return ()
    running = (row for row in plan.rows if row.never_runs is None)
    wanted = {dtype for row in running for dtype in work_dtypes(row.variant.dtype, row.quantisation)}
    subject = plan.rows[0].subject
    return tuple(sorted(wanted.intersection(unmeasured_dtypes(load_all(runs), subject.device, subject.threads))))


def with_works(session: Session) -> Session:
    """Return the session after counting the work of calls that is not known yet."""
    with session.spent.on("counting work"):
        return replace(session, works=works_of(session.plan, session.cache, session.progress))


def with_ceilings(session: Session, runs: Path) -> Session:
    """Return the session after measuring those ceilings of its rows' dtypes that are not known."""
    if not session.unmeasured:
        return session
    return replace(_with_ceilings(session, runs, session.unmeasured), unmeasured=())


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
    """Return whether a row that is ok but for that is faster than its floor."""
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


def hashes(seal: Seal) -> dict[str, str]:
    """Return the hashes by which workers check the files."""
    return {name: file.sha256 for name, file in seal.items()}


def seal_folder(folder: Path) -> Seal:
    """Hash all files of the folder, and keep the hashes beside it."""
    seal = {name: SealedFile(_sha256(folder / name), _stat(folder / name)) for name in _names(folder)}
    write_atomically(_seal_file(folder), msgspec.json.encode(seal))
    return seal


def read_seal(folder: Path) -> Seal | None:
    """Return the hashes kept beside the folder; None where there are none, or they cannot be read."""
    with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        seal: Seal = msgspec.json.decode(_seal_file(folder).read_bytes(), type=dict[str, SealedFile])
        return seal
    return None


def changed_files(folder: Path, seal: Seal, trust_stat: bool) -> tuple[str, ...]:
    """Names of files that were changed, added or removed since; `trust_stat` reads only files whose stat(2) differs."""
    names = set(_names(folder))
    changed = names.symmetric_difference(seal)
    for name in names & set(seal):
        with suppress(OSError):
            same = trust_stat and _stat(folder / name) == seal[name].stat
            if same or _sha256(folder / name) == seal[name].sha256:
                continue
        changed.add(name)
    return tuple(sorted(changed))


def discard(folder: Path) -> None:
    """Remove the folder and its seal."""
    _seal_file(folder).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _seal_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.sha256.json")


def _names(folder: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(os.listdir(folder))
    return []


def _stat(path: Path) -> tuple[int, ...]:
    found = path.lstat()
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
