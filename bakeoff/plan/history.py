"""Predictions from earlier records: in which order rows tell most, and how long each may take.

A table of one machine and one subject (component, preset, workload, batch) gives each variant a speed-up over eager
fp32. Speed-ups can be compared between machines and subjects; milliseconds cannot.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from statistics import median
from typing import Final

from bakeoff.machine import paths
from bakeoff.machine.identity import Machine, this_machine
from bakeoff.models.types import BASELINE_DTYPES, Device
from bakeoff.plan.rows import Row
from bakeoff.process.jobs import Subject
from bakeoff.record.finalists import call_ms
from bakeoff.record.objective import Goal
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, load_all

_NOT_ASKED = ("unavailable", "oom")
"""Statuses that a library, or more free memory, may have changed since."""
_FAILED = 0.0
"""Speed-up of a variant that gave no usable number."""

_Subject = tuple[str, int]
"""A variant's subject, and the batch."""
_Table = tuple[str, _Subject, Device]
"""Machine, subject and device: rows of one table."""
_Backends = tuple[str, str, Device]
"""Backends with their options, dtype and device, whatever they compile."""


@dataclass(frozen=True, slots=True)
class History:
    """Earlier records, the oldest first; made by `history_of`."""

    records: tuple[Stored, ...]
    by_variant: Mapping[str, Sequence[Stored]]
    """Records whose worker ran."""
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
    """Return the history that these records, the oldest first, tell."""
    by_variant: dict[str, list[Stored]] = {}
    by_backends: dict[tuple[str, Device], list[Stored]] = {}
    for entry in records:
        variant = entry.record.variant
        if entry.record.wall_s:
            by_variant.setdefault(str(variant), []).append(entry)
            by_backends.setdefault((variant.backend, variant.device), []).append(entry)
    return History(tuple(records), by_variant, by_backends)


def known_history(runs: Path) -> History:
    """Return the records of `runs`, and the published ones."""
    return history_of(load_all(*paths.with_published(runs)).current)


_ALIKE: Final = 0.1
"""Calls expected to take up to this share longer count as equally long: records of another day say no more."""
_UNKNOWN: Final = 0.5
"""Assumed slowdown over the best row where no record says anything of a row."""
_NO_NUMBER: Final = 1e9
"""The same of a row whose newest record gave no usable number: after all others."""
_UNSHIPPABLE: Final = 0.25
"""Added to a quantised row without real weights: its error is not known, so that no final has it."""


def by_priority(rows: Sequence[Row], history: History, goal: Goal) -> tuple[Row, ...]:
    """Return the rows in the order in which they are likely to tell what is the best one soonest.

    1. Rows that cannot run: they take no time.
    2. Eager fp32 of each subject (component, preset, workload, batch), over which speed-ups are stated.
    3. The other rows by how much longer their calls are expected to take than those of the row that records say is the
       fastest, in steps of 10 %; within a step the row that is measured sooner. A row of which no record says anything
       is taken to be 50 % slower; one whose newest record gave no usable number comes last. A quantised row without
       real weights counts as 25 % slower than it is, since it cannot be recommended. The time that a row takes decides
       no more than that: by worth for each second cheap rows fill a short budget, and the fastest no longer fits.

    Which records say how fast a row may be: see `_expected`. Where none says anything of any row of a subject,
    its rows come in the order of its table. Several subjects alternate: the first rows of each, then the second rows.
    With several builds or processes every variant is first measured once. The same rows, records and caches give the
    same order.
    """
    tables = _tables(history.records, goal)
    groups: dict[tuple[int, int, Subject], list[Row]] = {}
    for row in rows:
        if row.never_runs is None:
            groups.setdefault((row.process, row.build_number, row.subject), []).append(row)
    placed = [
        ((process, build), place, row)
        for (process, build, _), of_group in groups.items()
        for place, row in enumerate(_ranked(of_group, [_expected(row, tables) for row in of_group], history))
    ]
    able = [row for *_, row in sorted(placed, key=lambda each: each[:2])]
    return (*(row for row in rows if row.never_runs is not None), *able)


def _ranked(rows: Sequence[Row], speedups: Sequence[float | None], history: History) -> list[Row]:
    """The rows of one subject, by the share by which their calls may take longer than those of the fastest row that can
    be recommended, or of the fastest one where none can."""
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
    """Return whether a final may have the row: the error of a quantised one without real weights is not known."""
    return not row.quantisation or bool(row.checkpoint)


@dataclass(frozen=True, slots=True)
class _Measured:
    """One variant of a table."""

    machine: Machine
    subject: _Subject
    backends: _Backends
    speedup: float


def _expected(row: Row, tables: list[_Measured]) -> float | None:
    """Return the speed-up over eager fp32 that records suggest; None where none says anything.

    The first of these that has a record: the variant on this machine, or on others of its class; the same backends and
    dtype on other subjects, on this machine or on others of its class; then the variant, and the same backends, on
    machines of any class. Where several tables have it, their median counts. 0: the newest record of the variant gave
    no number that can be used (a wrong output, a failed build), which may be expected again.
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
    """0 for the same machine, 1 for another of its class, 2 for any other, which may be this host with other parts."""
    if other.machine_class != machine.machine_class:
        return 2
    return 0 if other.id == machine.id else 1


def _tables(records: Iterable[Stored], goal: Goal) -> list[_Measured]:
    """Return the newest record of each variant of each table as a speed-up over that table's eager fp32.

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
    """Return the median call in milliseconds of a row that was ok, or only unsteady; else infinite."""
    return call_ms(record, goal) if record.status in ("ok", "unstable") else inf


def _is_eager(record: Record) -> bool:
    return record.baseline and record.variant.dtype in BASELINE_DTYPES


def _backends(record: Record) -> _Backends:
    return record.variant.backend, record.variant.dtype, record.variant.device
