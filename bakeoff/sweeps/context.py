"""What all rows of a sweep or comparison share: ceilings, weights and sealed folders.

Workers run code of compilers and users, so the files that they must not change are sealed with hashes here.
"""

import os
import random
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from bakeoff.machine.files import sha256_of, write_atomically
from bakeoff.machine.floors import Ceiling
from bakeoff.machine.host import Load
from bakeoff.machine.locks import entry_lock
from bakeoff.models.component import Work
from bakeoff.models.plain_file import read_plain
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Key, Row
from bakeoff.process.jobs import Subject
from bakeoff.process.supervisor import Outcome
from bakeoff.record.floor import share, work_dtypes
from bakeoff.record.kept import read_stamp
from bakeoff.record.schema import Record, SelftestStamp
from bakeoff.sweeps.describe import known_ceilings, works_of
from bakeoff.sweeps.progress import Progress


class WeightsMemory:
    """Memory in which the first worker of a subject leaves the weights for the workers that follow.

    Drawing 275 million values takes 3 seconds of a core in each of about forty workers of a sweep; copying them takes
    0.3. Memory files (memfd_create(2)) exist until this object is closed, and are not on disk.
    """

    def __init__(self) -> None:
        self._held: dict[Path, int] = {}

    def path_of(self, references: Path) -> str:
        """Return the path at which workers read or leave the weights of the subject with this reference folder.

        "" if the kernel does not allow such memory.
        """
        if references not in self._held:
            try:
                made = os.memfd_create("weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            except OSError:
                return ""
            self._held[references] = made
        return f"/proc/{os.getpid()}/fd/{self._held[references]}"

    def close(self) -> None:
        """Free the memory; running workers keep their copies."""
        for descriptor in self._held.values():
            os.close(descriptor)
        self._held.clear()


@dataclass(frozen=True, slots=True)
class SealedFile:
    """Hash and file attributes of one file when its folder was sealed."""

    sha256: str
    stat: tuple[int, ...]
    """Size in bytes, inode, and times of the last change of content and of attributes in ns. A file whose values are
    all the same is not read again."""


Seal = Mapping[str, SealedFile]
"""Hashes and attributes of a folder's files, by file name."""


@dataclass(frozen=True, slots=True)
class SweepContext:
    """State of a sweep or comparison, created once when the device is locked."""

    plan: Plan
    sweep: str
    order: tuple[Row, ...]
    """The rows in the order in which they run. A row may be built earlier, together with another one. One that does
    not fit into the time limit is skipped."""
    order_seed: int | None
    """Seed of the random order; None for a comparison, and with a time limit, which orders rows by priority."""
    note: str
    load: Load
    """`present_load` before the sweep began; later the sweep itself is the load."""
    cache: Path
    ceilings: tuple[Ceiling, ...]
    """The best known ceilings: from the records at first, later also from measurements of this sweep."""
    selftest: SelftestStamp | None
    progress: Progress
    measured_again: set[str] = field(default_factory=set)
    """Dtypes whose ceilings this sweep measured again."""
    works: Mapping[Subject, Work] = field(default_factory=dict)
    """Work of one call of each subject; empty until `with_works`."""
    references: dict[tuple[Path, str], tuple[Outcome, Path, Seal]] = field(default_factory=dict)
    """Outcome of making each reference folder, the folder to use and the hashes of its files, by folder and dtype."""
    own: Path | None = None
    """Folder for references with the sweep's own changed values; None: all values are those of the cached ones."""
    own_seed: int = 0
    """Seed of the factor of these values."""
    weights: WeightsMemory | None = None
    """Memory in which workers leave the weights for later ones; None: each worker makes its own."""
    started: float = field(default_factory=time.monotonic)
    """When the sweep began, by time.monotonic()."""
    begun: list[Key] = field(default_factory=list)
    """Keys of the rows begun so far, in order, including those before an interruption."""

    def position(self, row: Row) -> int:
        """Return the row's place in the order in which rows were begun, from 1; 0 for a row that was made only for a
        final."""
        return self.begun.index(row.key) + 1 if row.key in self.begun else 0

    def since_start(self, span: tuple[float, float] | None) -> tuple[float, float] | None:
        """Return start and end, given by time.monotonic(), in seconds since the sweep began; None remains None."""
        return None if span is None else (round(span[0] - self.started, 3), round(span[1] - self.started, 3))

    def entry_lock(self, entry: Path) -> AbstractContextManager[None]:
        """Lock an entry of the cache folder, against sweeps on other CPUs that share the cache."""
        return entry_lock(self.cache, entry, self.progress.say)

    def log_of(self, row: Row) -> Path:
        """Return the path of the log of the row's worker; logs of the row's other workers are beside it."""
        return self.cache / "logs" / self.sweep / f"{row.slug}.log"


def make_context(
    plan: Plan,
    sweep: str,
    note: str,
    runs: Path,
    cache: Path,
    load: Load,
    progress: Progress,
    order_seed: int | None = None,
) -> SweepContext:
    """Make the context of a sweep: read the last selftest and the known ceilings of this machine, and order the rows.

    `load` is `present_load`. Without `order_seed`, the rows keep the order of the plan.
    """
    order = plan.rows if order_seed is None else shuffled(plan.rows, order_seed)
    context = SweepContext(plan, sweep, order, order_seed, note, load, cache, (), read_stamp(), progress)
    return _with_ceilings(context, runs, ())


def with_works(context: SweepContext) -> SweepContext:
    """Return the context with the work of a call of each subject, after counting the work that is not known yet."""
    return replace(context, works=works_of(context.plan, context.cache, context.progress))


def with_ceilings(context: SweepContext, runs: Path) -> SweepContext:
    """Return the context after measuring the missing ceilings of its rows' dtypes; unchanged with a time limit."""
    if context.plan.request.time_limit_s:
        return context
    running = (row for row in context.plan.rows if row.never_runs is None)
    return _with_ceilings(
        context, runs, {dtype for row in running for dtype in work_dtypes(row.variant.dtype, row.quantisation)}
    )


def with_ceilings_again(context: SweepContext, runs: Path, record: Record) -> SweepContext:
    """Return the context after measuring again, once in a sweep, the ceilings of a row that exceeds 100 % of its floor;
    unchanged with a time limit.

    Stored records are not changed: pages compute floors from the best ceilings that are known.
    """
    dtypes = set(work_dtypes(record.variant.dtype, record.quantisation)) - context.measured_again
    too_fast = record.status == "ok" and (share(record, context.ceilings) or 0.0) > 1
    if not context.ceilings or not dtypes or not too_fast or context.plan.request.time_limit_s:
        return context
    context.measured_again.update(dtypes)
    name = f"{record.variant.backend} {record.variant.dtype}"
    context.progress.say(f"Above 100 % of the floor: {name}. The ceilings may be too low and are measured again.")
    return _with_ceilings(context, runs, dtypes, again=True)


def _with_ceilings(context: SweepContext, runs: Path, measure: Collection[str], again: bool = False) -> SweepContext:
    if not context.plan.request.ceilings or not context.plan.rows:
        return context
    subject = context.plan.rows[0].subject
    found = known_ceilings(subject.device, subject.threads, runs, context.cache, context.progress, again, measure)
    return replace(context, ceilings=found)


def shuffled(rows: Sequence[Row], seed: int) -> tuple[Row, ...]:
    """Return the rows in random order, but grouped by process number, with the baselines first in each group.

    In a fixed order the same variants would always run first, on a machine that is cooler or less busy, and a variant's
    place in the order would look like its speed. Baselines need no build, so that within a minute later rows have
    something to be compared with; a final does not depend on the order.
    """
    order = random.Random(seed)
    keys = {row.key: order.random() for row in rows}
    return tuple(sorted(rows, key=lambda row: (row.process, not row.baseline, keys[row.key])))


def hashes(seal: Seal) -> dict[str, str]:
    """Return the SHA-256 of each file, by which workers check the files."""
    return {name: file.sha256 for name, file in seal.items()}


def seal_folder(folder: Path) -> Seal:
    """Hash all files of the folder, store the hashes beside it, and return them."""
    seal = {name: SealedFile(sha256_of(folder / name), _stat(folder / name)) for name in _names(folder)}
    write_atomically(_seal_file(folder), msgspec.json.encode(seal))
    return seal


def read_seal(folder: Path) -> Seal | None:
    """Return the hashes stored beside the folder; None if they are missing or cannot be read."""
    with suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(read_plain(_seal_file(folder)), type=dict[str, SealedFile])
    return None


def changed_files(folder: Path, seal: Seal, trust_stat: bool) -> tuple[str, ...]:
    """Return the names of files that were changed, added or removed since the folder was sealed.

    With `trust_stat`, only files whose stat(2) differs are read.
    """
    names = set(_names(folder))
    changed = names.symmetric_difference(seal)
    for name in names & set(seal):
        with suppress(OSError):
            same = trust_stat and _stat(folder / name) == seal[name].stat
            if same or sha256_of(folder / name) == seal[name].sha256:
                continue
        changed.add(name)
    return tuple(sorted(changed))


def discard(folder: Path) -> None:
    """Delete the folder and its seal."""
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
