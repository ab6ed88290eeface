"""The order of rows when time is limited: those that are likely to tell most for each second come first."""

from collections.abc import Sequence
from itertools import zip_longest

from bakeoff.plan.expected import expected
from bakeoff.plan.history import History, expected_speedups
from bakeoff.plan.rows import Row
from bakeoff.process.jobs import Subject
from bakeoff.record.objective import Goal

_HALF = 0.25
"""A row that is expected to take this share longer than the best one is worth half as much."""
_UNKNOWN = 0.25
"""Worth of a row of which no record says anything: that of one that takes 50 % longer than the best."""
_UNSHIPPABLE = 0.5
"""Factor for a quantised row without real weights: its error is not known, so that no final has it."""


def by_promise(rows: Sequence[Row], history: History, goal: Goal) -> tuple[Row, ...]:
    """The rows in the order in which they are likely to tell what is the best one soonest.

    1. Rows that cannot run: they take no time.
    2. Eager fp32 of each subject (component, preset, workload, batch), over which speed-ups are stated.
    3. The other rows by their worth for each second that they are expected to take. The row that records say is the
       fastest is worth 1; worth halves with every 25 % that a row is expected to take longer. One of which no record
       says anything is worth a quarter; one whose newest record gave no usable number comes last. A quantised row
       without real weights counts half, since it cannot be recommended.

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
        worth = [0.0 for _ in rows]
    else:
        worth = [
            each / max(expected(row, history).seconds, 1.0)
            for row, each in zip(rows, _worth(rows, speedups), strict=True)
        ]
    places = sorted(range(len(rows)), key=lambda place: (not _is_eager(rows[place]), -worth[place], place))
    return [rows[place] for place in places]


def _worth(rows: Sequence[Row], speedups: Sequence[float | None]) -> list[float]:
    """Of each row, relative to the fastest row that can be recommended, or to the fastest where none can."""
    shippable = [_is_shippable(row) for row in rows]
    known = [speedup for speedup, can_ship in zip(speedups, shippable, strict=True) if speedup and can_ship]
    best = max(known, default=max(filter(None, speedups), default=1.0))
    found = []
    for speedup, can_ship in zip(speedups, shippable, strict=True):
        if speedup is None:
            worth = _UNKNOWN
        elif not speedup:
            worth = 0.0
        else:
            worth = 0.5 ** (max(best / speedup - 1, 0.0) / _HALF)
        found.append(worth if can_ship else worth * _UNSHIPPABLE)
    return found


def _is_eager(row: Row) -> bool:
    return row.baseline and row.variant.dtype == "fp32"


def _is_shippable(row: Row) -> bool:
    return not row.quantisation or bool(row.checkpoint)
