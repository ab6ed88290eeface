"""The order of rows when time is limited: those that are likely to be the fastest come first."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from bakeoff.plan.expected import expected
from bakeoff.plan.history import History, expected_speedups
from bakeoff.plan.rows import Row
from bakeoff.process.jobs import Subject
from bakeoff.record.objective import Goal

_ALIKE: Final = 0.1
"""Calls expected to take up to this share longer count as equally long: records of another day say no more."""
_UNKNOWN: Final = 0.5
"""How much longer than the best row's calls those of a row are taken to be, of which no record says anything."""
_NO_NUMBER: Final = 1e9
"""The same of a row whose newest record gave no usable number: after all others."""
_UNSHIPPABLE: Final = 0.25
"""What is added for a quantised row without real weights: its error is not known, so that no final has it."""


def by_priority(rows: Sequence[Row], history: History, goal: Goal) -> tuple[Row, ...]:
    """The rows in the order in which they are likely to tell what is the best one soonest.

    1. Rows that cannot run: they take no time.
    2. Eager fp32 of each subject (component, preset, workload, batch), over which speed-ups are stated.
    3. The other rows by how much longer their calls are expected to take than those of the row that records say is the
       fastest, in steps of 10 %; within a step the row that is measured sooner. A row of which no record says anything
       is taken to be 50 % slower; one whose newest record gave no usable number comes last. A quantised row without
       real weights counts as 25 % slower than it is, since it cannot be recommended. The time that a row takes decides
       no more than that: by worth for each second cheap rows fill a short budget, and the fastest no longer fits.

    Which records say how fast a row may be: see `expected_speedups`. Where none says anything of any row of a subject,
    its rows come in the order of its table. Several subjects alternate: the first rows of each, then the second rows.
    With several builds or processes every variant is first measured once. The same rows, records and caches give the
    same order.
    """
    order = [row for row in rows if row.never_runs is not None]
    left = [row for row in rows if row.never_runs is None]
    speedups = dict(zip((row.key for row in left), expected_speedups(left, history, goal), strict=True))
    for turn in sorted({(row.process, row.build_number) for row in left}):
        of_turn = [row for row in left if (row.process, row.build_number) == turn]
        subjects: dict[Subject, list[Row]] = {}
        for row in of_turn:
            subjects.setdefault(row.subject, []).append(row)
        ranked = [_ranked(each, [speedups[row.key] for row in each], history) for each in subjects.values()]
        order += [row for places in zip_longest(*ranked) for row in places if row is not None]
    return tuple(order)


def _ranked(rows: Sequence[Row], speedups: Sequence[float | None], history: History) -> list[Row]:
    """The rows of one subject."""
    if all(speedup is None for speedup in speedups):
        return sorted(rows, key=lambda row: not row.is_eager_fp32)
    order = [
        (not row.is_eager_fp32, delay // _ALIKE, expected(row, history).seconds, place)
        for place, (row, delay) in enumerate(zip(rows, _delays(rows, speedups), strict=True))
    ]
    return [rows[place] for *_, place in sorted(order)]


def _delays(rows: Sequence[Row], speedups: Sequence[float | None]) -> list[float]:
    """The share by which calls of each row may take longer than those of the fastest row that can be recommended, or of
    the fastest one where none can."""
    shippable = [is_shippable(row) for row in rows]
    known = [speedup for speedup, can_ship in zip(speedups, shippable, strict=True) if speedup and can_ship]
    best = max(known, default=max(filter(None, speedups), default=1.0))
    found = []
    for speedup, can_ship in zip(speedups, shippable, strict=True):
        delay = _UNKNOWN if speedup is None else max(best / speedup - 1, 0.0) if speedup else _NO_NUMBER
        found.append(delay if can_ship else delay + _UNSHIPPABLE)
    return found


def is_shippable(row: Row) -> bool:
    """Whether a final may have the row: the error of a quantised one without real weights is not known."""
    return not row.quantisation or bool(row.checkpoint)
