"""Predicts from earlier records which rows are worth running first; `by_priority` orders the rows.

Records of one machine and one subject (component, preset, workload, batch) form a table, in which each variant has a
speed-up over eager fp32. Speed-ups can be compared between machines and subjects; milliseconds cannot.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from statistics import median
from typing import Final

from bakeoff.machine import paths
from bakeoff.machine.identity import Machine, same_machine, this_machine
from bakeoff.models.types import BASELINE_DTYPES, Device
from bakeoff.plan.rows import Row
from bakeoff.process.jobs import Subject
from bakeoff.record.finalists import call_ms
from bakeoff.record.objective import Goal
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, load_all

_NOT_ASKED = ("unavailable", "oom")
"""Statuses that a newly installed library or more free memory may change."""
_FAILED = 0.0
"""Speed-up that stands for a variant without a usable number."""

_Subject = tuple[str, int]
"""A variant's subject and batch."""
_Table = tuple[str, _Subject, Device]
"""Host, subject and device: what all rows of one table share."""
_Backends = tuple[str, str, Device]
"""Backends with their options, dtype and device, for any subject."""


@dataclass(frozen=True, slots=True)
class History:
    """Earlier records, the oldest first; made by `history_of`."""

    records: tuple[Stored, ...]
    by_variant: Mapping[str, Sequence[Stored]]
    """Records whose worker ran, by variant."""
    by_backends: Mapping[tuple[str, Device], Sequence[Stored]]
    """Records whose worker ran, by backends with their options, and device."""

    def like(self, row: Row) -> list[Stored]:
        """Return the records of the row's variant on this machine, else on machines of its class, else on any.

        Records of the row's exact configuration (batch, seeds, weights, threads) come last; within both groups the
        newest is last.
        """
        machine = this_machine(row.subject.device)
        same = self.by_variant.get(str(row.variant), ())
        nearest = min((_distance(entry.machine, machine) for entry in same), default=0)
        near = [entry for entry in same if _distance(entry.machine, machine) == nearest]
        return sorted(near, key=lambda entry: entry.record.config_id == row.config_id)

    def like_backends(self, row: Row) -> list[Stored]:
        """Return the records of the row's backends on its device, whatever subject they measured."""
        return list(self.by_backends.get((row.variant.backend, row.variant.device), ()))


def history_of(records: Sequence[Stored]) -> History:
    """Index these records, the oldest first, as a History."""
    by_variant: dict[str, list[Stored]] = {}
    by_backends: dict[tuple[str, Device], list[Stored]] = {}
    for entry in records:
        variant = entry.record.variant
        if entry.record.wall_s:
            by_variant.setdefault(str(variant), []).append(entry)
            by_backends.setdefault((variant.backend, variant.device), []).append(entry)
    return History(tuple(records), by_variant, by_backends)


def known_history(runs: Path) -> History:
    """Return the history of the records in `runs` and the published records."""
    return history_of(load_all(*paths.with_published(runs)).current)


_ALIKE: Final = 0.1
"""Calls that are expected to take up to this share longer count as equally long: day-to-day differences are as large.
"""
_UNKNOWN: Final = 0.5
"""Assumed slowdown relative to the fastest row, for a row without any related record."""
_NO_NUMBER: Final = 1e9
"""Assumed slowdown of a row whose newest record has no usable number, so that it comes after all others."""
_UNSHIPPABLE: Final = 0.25
"""Added to the slowdown of a quantised row without real weights: its error is unknown, so no final includes it."""


def by_priority(rows: Sequence[Row], history: History, goal: Goal) -> tuple[Row, ...]:
    """Return the rows in the order that is likely to find the fastest one soonest.

    1. Rows that cannot run: they take no time.
    2. Eager fp32 of each subject (component, preset, workload, batch), over which speed-ups are stated.
    3. The other rows by how much longer their calls are expected to take than those of the row that is fastest by
       records, in steps of 10 %; within a step, the row that is measured sooner comes first. A row without a related
       record is assumed to be 50 % slower; one whose newest record has no usable number comes last. A quantised row
       without real weights counts as 25 % slower than it is, since it cannot be recommended. Measuring time decides no
       more than that: if rows were ordered by worth per second, cheap rows would fill a short limit, and the fastest
       row would no longer fit.

    `_expected` says which records predict a row's speed. If no record says anything about any row of a subject, its
    rows keep the order of its table. Subjects alternate: the first row of each, then the second row of each. With
    several processes, every variant is first measured once. The same rows, records and caches give the same
    order.
    """
    tables = _tables(history.records, goal)
    groups: dict[tuple[int, Subject], list[Row]] = {}
    for row in rows:
        if row.never_runs is None:
            groups.setdefault((row.process, row.subject), []).append(row)
    placed = [
        (process, place, row)
        for (process, _), of_group in groups.items()
        for place, row in enumerate(_ranked(of_group, [_expected(row, tables) for row in of_group], history))
    ]
    able = [row for *_, row in sorted(placed, key=lambda each: each[:2])]
    return (*(row for row in rows if row.never_runs is not None), *able)


def _ranked(rows: Sequence[Row], speedups: Sequence[float | None], history: History) -> list[Row]:
    """Return the rows of one subject by their expected slowdown relative to the fastest row that can be recommended.

    If no row can be recommended, slowdowns are relative to the fastest row. `speedups` are the rows' expected
    speed-ups; None if unknown.
    """
    if all(speedup is None for speedup in speedups):
        return sorted(rows, key=lambda row: not row.is_eager_fp32)
    shippable = [speedup for row, speedup in zip(rows, speedups, strict=True) if speedup and is_shippable(row)]
    best = max(shippable or filter(None, speedups), default=1.0)
    keys = {}
    for row, speedup in zip(rows, speedups, strict=True):
        delay = _UNKNOWN if speedup is None else max(best / speedup - 1, 0.0) if speedup else _NO_NUMBER
        delay += 0.0 if is_shippable(row) else _UNSHIPPABLE
        known = history.like(row)
        keys[row.key] = not row.is_eager_fp32, delay // _ALIKE, known[-1].record.wall_s if known else inf
    return sorted(rows, key=lambda row: keys[row.key])


def is_shippable(row: Row) -> bool:
    """Return whether the row may be in a final: not if it is quantised without real weights, since its error is
    unknown."""
    return not row.quantisation or bool(row.checkpoint)


@dataclass(frozen=True, slots=True)
class _Measured:
    """Speed-up of one variant in one table."""

    machine: Machine
    subject: _Subject
    backends: _Backends
    speedup: float


def _expected(row: Row, tables: list[_Measured]) -> float | None:
    """Return the speed-up over eager fp32 that records suggest; None if no record is related.

    The records are tried in this order: the variant on this machine, or on others of its class; the same backends and
    dtype with other subjects, on this machine or on others of its class; then the variant, and the same backends, on
    machines of any class. If several tables match, the median of their speed-ups is returned. 0 means that the newest
    record of the variant has no usable number (a wrong output, a failed build), which is expected to happen again.
    """
    machine, subject = this_machine(row.subject.device), (row.variant.subject, row.subject.batch)
    backends = (row.variant.backend, row.variant.dtype, row.variant.device)
    by_rank: dict[tuple[bool, bool, int], list[float]] = {}
    for entry in tables:
        if entry.backends != backends:
            continue
        distance, here = _distance(entry.machine, machine), entry.subject == subject
        if here or entry.speedup != _FAILED:  # a backend that fails on one model may serve another
            by_rank.setdefault((distance == 2, not here, distance), []).append(entry.speedup)
    return median(by_rank[min(by_rank)]) if by_rank else None


def _distance(other: Machine, machine: Machine) -> int:
    """Return 0 for the same machine, 1 for another of its class, 2 for any other, which may be this host with other
    parts."""
    if not same_machine(other, machine):
        return 2
    return 0 if other.host == machine.host else 1


def _tables(records: Iterable[Stored], goal: Goal) -> list[_Measured]:
    """Return the newest record of each variant of each table as a speed-up over the eager fp32 of its sweep.

    In a sweep without eager fp32, speed-ups are relative to the slowest row, which is seldom faster than eager fp32
    would be; the only row of such a sweep leaves what an earlier one says, unless it has no usable number.
    """
    newest: dict[tuple[_Table, str], dict[_Backends, Stored]] = {}
    for entry in records:
        record = entry.record
        if record.status not in _NOT_ASKED:
            table = entry.machine.host, (record.variant.subject, record.batch), record.variant.device
            newest.setdefault((table, record.sweep), {})[_backends(record)] = entry
    found: dict[tuple[_Table, _Backends], _Measured] = {}
    for (table, _), entries in newest.items():
        times = {backends: _usable_ms(entry.record, goal) for backends, entry in entries.items()}
        baselines = [times[key] for key, entry in entries.items() if _is_eager(entry.record)]
        usable = [ms for ms in times.values() if isfinite(ms)]
        baseline = next((ms for ms in baselines if isfinite(ms)), max(usable) if len(usable) > 1 else None)
        for backends, ms in times.items():
            if not isfinite(ms):
                found[table, backends] = _Measured(entries[backends].machine, table[1], backends, _FAILED)
            elif baseline is not None:
                found[table, backends] = _Measured(entries[backends].machine, table[1], backends, baseline / ms)
    return list(found.values())


def _usable_ms(record: Record, goal: Goal) -> float:
    """Return the time of a call in ms by the goal, if the record is ok or only unstable; else infinity."""
    return call_ms(record, goal) if record.status in ("ok", "unstable") else inf


def _is_eager(record: Record) -> bool:
    return record.baseline and record.variant.dtype in BASELINE_DTYPES


def _backends(record: Record) -> _Backends:
    return record.variant.backend, record.variant.dtype, record.variant.device
