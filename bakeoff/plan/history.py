"""What earlier records say of a row before it runs: how fast it may be, and which record its duration is taken from.

A table of one machine and one subject (component, preset, workload, batch) gives each variant a speed-up over eager
fp32. Speed-ups can be compared between machines and subjects; milliseconds cannot.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from statistics import median

from bakeoff.machine import paths
from bakeoff.machine.identity import Machine, this_machine
from bakeoff.models.types import BASELINE_DTYPES, Device
from bakeoff.plan.rows import Row
from bakeoff.record.finalists import call_ms
from bakeoff.record.objective import Goal
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, load_all

_NOT_ASKED = ("unavailable", "oom")
"""Statuses that a library, or more free memory, may have changed since."""
_FAILED = 0.0
"""Speed-up of a variant that gave no usable number."""

_Subject = tuple[str, int]
"""What is computed, and the batch."""
_Table = tuple[str, _Subject, Device]
"""Machine, subject and device: rows of one table."""
_Backends = tuple[str, str, Device]
"""Backends with their options, dtype and device, whatever they compile."""


@dataclass(frozen=True, slots=True)
class History:
    """Earlier records, the oldest first; made by `history_of`."""

    records: tuple[Stored, ...]
    by_variant: Mapping[str, Sequence[Stored]]
    """Those whose worker ran."""
    by_backends: Mapping[tuple[str, Device], Sequence[Stored]]
    """The same by backends with their options, and device."""

    def like(self, row: Row) -> list[Stored]:
        """Records that measured the row's variant: of this machine, else of its class, else of any.

        Among them those of the row's exact configuration (batch, seeds, weights, threads) come last, in each group the
        newest.
        """
        machine = this_machine(row.subject.device)
        same = self.by_variant.get(str(row.variant), ())
        nearest = min((_distance(entry.machine, machine) for entry in same), default=0)
        near = [entry for entry in same if _distance(entry.machine, machine) == nearest]
        return sorted(near, key=lambda entry: entry.record.config_id == row.config_id)

    def like_backends(self, row: Row) -> list[Stored]:
        """Records of this device that measured the row's backends on anything."""
        return list(self.by_backends.get((row.variant.backend, row.variant.device), ()))


def history_of(records: Sequence[Stored]) -> History:
    """The history that these records, the oldest first, tell."""
    by_variant: dict[str, list[Stored]] = {}
    by_backends: dict[tuple[str, Device], list[Stored]] = {}
    for entry in records:
        variant = entry.record.variant
        if entry.record.wall_s:
            by_variant.setdefault(str(variant), []).append(entry)
            by_backends.setdefault((variant.backend, variant.device), []).append(entry)
    return History(tuple(records), by_variant, by_backends)


def known_history(runs: Path) -> History:
    """The records of `runs`, and the published ones."""
    return history_of(load_all(*paths.with_published(runs)).current)


def expected_speedups(rows: Sequence[Row], history: History, goal: Goal) -> list[float | None]:
    """Of each row the speed-up over eager fp32 that records suggest; None where none says anything.

    The first of these that has a record: the variant on this machine, or on others of its class; the same backends and
    dtype on other subjects, on this machine or on others of its class; then the variant, and the same backends, on
    machines of any class. Where several tables have it, their median counts. 0: the newest record of the variant gave
    no number that can be used (a wrong output, a failed build), which may be expected again.
    """
    tables = _tables(history.records, goal)
    return [_expected(row, tables) for row in rows]


@dataclass(frozen=True, slots=True)
class _Measured:
    """One variant of a table."""

    machine: Machine
    subject: _Subject
    backends: _Backends
    speedup: float


def _expected(row: Row, tables: list[_Measured]) -> float | None:
    machine, subject = this_machine(row.subject.device), (row.variant.subject, row.subject.batch)
    backends = (row.variant.backend, row.variant.dtype, row.variant.device)
    by_rank: dict[int, list[float]] = {}
    for entry in tables:
        if entry.backends != backends:
            continue
        distance, here = _distance(entry.machine, machine), entry.subject == subject
        if here or entry.speedup != _FAILED:  # a backend that fails on one model may serve another
            by_rank.setdefault(_RANKS[here, distance], []).append(entry.speedup)
    return median(by_rank[min(by_rank)]) if by_rank else None


_RANKS: Mapping[tuple[bool, int], int] = {
    (True, 0): 0,
    (True, 1): 1,
    (False, 0): 2,
    (False, 1): 3,
    (True, 2): 4,
    (False, 2): 5,
}
"""By whether it is the row's subject, and by the distance of the machine: which records are asked first."""


def _distance(other: Machine, machine: Machine) -> int:
    """0 for the same machine, 1 for another of its class, 2 for any other, which may be this host with other parts."""
    if other.machine_class != machine.machine_class:
        return 2
    return 0 if other.id == machine.id else 1


def _tables(records: Iterable[Stored], goal: Goal) -> list[_Measured]:
    """The newest record of each variant of each table as a speed-up over that table's eager fp32.

    A table without eager fp32 is compared with its slowest row, which is seldom faster than eager fp32 would be; a row
    that is alone in such a table says nothing.
    """
    newest: dict[_Table, dict[_Backends, Stored]] = {}
    for entry in records:
        record = entry.record
        if record.status not in _NOT_ASKED:
            table = entry.machine.id, (record.variant.subject, record.batch), record.variant.device
            newest.setdefault(table, {})[_backends(record)] = entry
    found = []
    for (_, subject, _), entries in newest.items():
        times = {backends: _usable_ms(entry.record, goal) for backends, entry in entries.items()}
        baselines = [times[key] for key, entry in entries.items() if _is_eager(entry.record)]
        usable = [ms for ms in times.values() if isfinite(ms)]
        baseline = next((ms for ms in baselines if isfinite(ms)), max(usable) if len(usable) > 1 else None)
        for backends, ms in times.items():
            if not isfinite(ms):
                found.append(_Measured(entries[backends].machine, subject, backends, _FAILED))
            elif baseline is not None:
                found.append(_Measured(entries[backends].machine, subject, backends, baseline / ms))
    return found


def _usable_ms(record: Record, goal: Goal) -> float:
    """The median call in milliseconds of a row that was ok, or only unsteady; else infinite."""
    return call_ms(record, goal) if record.status in ("ok", "unstable") else float("inf")


def _is_eager(record: Record) -> bool:
    return record.baseline and record.variant.dtype in BASELINE_DTYPES


def _backends(record: Record) -> _Backends:
    return record.variant.backend, record.variant.dtype, record.variant.device
