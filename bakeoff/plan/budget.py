"""`--budget 3m`: how long a sweep may take, and which rows fit into what is left of it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import fsum
from pathlib import Path
from typing import Final

from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.expected import GUESS, Expected, expected, expected_final, reference_s
from bakeoff.plan.history import History, expected_speedups
from bakeoff.plan.rows import Row, reference_folder
from bakeoff.process.jobs import Subject
from bakeoff.record.objective import Goal
from bakeoff.record.verdict import AGREEING_PAIRS

MOST_BUDGET_S: Final = 7 * 86_400.0
GRACE_SHARE, MOST_GRACE_S = 0.05, 10.0
EXAMPLES: Final = "give a time such as 90s, 3m or 1h30m; a number alone is seconds"
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}
_TIME = re.compile(r"(?:(?P<h>[0-9.]+)h)? ?(?:(?P<m>[0-9.]+)m)? ?(?:(?P<s>[0-9.]+)s?)?", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})?")
_SHOWN = 40
"""Characters of what was typed that a message repeats."""


def parse_budget(text: str) -> float:
    """Seconds of `3m`, `90s`, `1h30m`, `1.5h` or `180` (seconds). Raises BakeoffError for anything else, 0 included."""
    typed = text.strip(" ")
    match = _TIME.fullmatch(typed)
    parts = {unit: part for unit, part in match.groupdict().items() if part} if match else {}
    if not parts or not all(_NUMBER.fullmatch(part) for part in parts.values()):
        shown = typed if len(typed) <= _SHOWN else f"{typed[:_SHOWN]}..."
        raise BakeoffError(f"--budget '{shown}': {EXAMPLES}", "bad-option")
    seconds = fsum(float(part) * _UNITS[unit] for unit, part in parts.items())
    if not 0 < seconds <= MOST_BUDGET_S:
        text = f"--budget {typed}: give more than 0 and at most {MOST_BUDGET_S / 3600:.0f}h"
        raise BakeoffError(text, "bad-option")
    return seconds


def budget_text(seconds: float) -> str:
    """A budget as it is typed: `90s`, `3m`, `1h30m`."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{hours:.0f}h" if hours else "", f"{minutes:.0f}m" if minutes else "", f"{rest:g}s" if rest else ""]
    return "".join(parts)


def grace_s(budget_s: float) -> float:
    """How long what runs when the time is up may go on: 5 % of the budget, at most 10 s."""
    return min(GRACE_SHARE * budget_s, MOST_GRACE_S)


@dataclass(frozen=True, slots=True)
class FinalAhead:
    """A final that is still to be run."""

    sides: tuple[Row, ...]
    """The two rows that it will be between by what is known so far, and eager fp32 where that is none of them."""
    missing: int
    """How many of the two are still to be measured."""

    def follows(self, rows: Sequence[Row]) -> bool:
        """Whether it can be run after these rows."""
        variants = {str(row.variant) for row in rows if row.subject == self.sides[0].subject and _may_win(row)}
        return len(variants) >= self.missing


def final_ahead(rows: Sequence[Row], best: Sequence[Row] = ()) -> FinalAhead | None:
    """The final of one subject: between its `best` rows so far and, where they are fewer than two, the first of `rows`,
    which are still to be measured. None where there are not two."""
    variants = {str(row.variant): row for row in best}
    for row in rows:
        if _may_win(row):
            variants.setdefault(str(row.variant), row)
    sides = tuple(variants.values())[:2]
    return FinalAhead(sides, 2 - len(best)) if len(sides) == 2 else None


def _may_win(row: Row) -> bool:
    return row.never_runs is None and is_shippable(row)


@dataclass(frozen=True, slots=True)
class Costs:
    """What rows are expected to take, by the same records for all of them."""

    history: History
    component: Component

    def of(self, row: Row) -> Expected:
        return expected(row, self.history)

    def fitting(
        self, rows: Sequence[Row], left_s: float, finals: Sequence[FinalAhead] = (), final_s: float = 0.0
    ) -> tuple[Row, ...]:
        """Of rows in order of preference those that fit into `left_s` seconds one after the other, before the finals.

        `final_s` are the seconds of calls in a final. Time is kept for as many of the finals as can be run: where the
        time that is left does not hold one, or not the rows that it is between, rows may take all of it. A row may turn
        out to be close to the best one, so that the final takes longer: that time is kept where a row fits before it.
        """
        kept: list[FinalAhead] = []
        chosen = self._chosen(rows, left_s)
        for final in finals:
            least_s, most_s = (
                expected_final(final.sides, self.history, final_s, pairs) for pairs in (0, AGREEING_PAIRS)
            )
            # What overruns takes the time of the final, so a guess may be tried only where none can be run yet.
            tries = all(one.missing for one in (*kept, final))
            for seconds in (most_s, least_s) if least_s <= left_s else ():
                before = self._chosen(rows, left_s - seconds, tries=tries, whole=True)
                if (before or seconds == least_s) and all(one.follows(before) for one in (*kept, final)):
                    kept.append(final)
                    chosen, left_s = before, left_s - seconds
                    break
        return chosen

    def _chosen(self, rows: Sequence[Row], left_s: float, tries: bool = True, whole: bool = False) -> tuple[Row, ...]:
        """Of rows in order of preference those that fit into `left_s` seconds one after the other.

        A row that does not fit is passed over for a later one that does. The references that a row needs count with the
        first row of their subject; torch's C++ headers do not count. A row that fits without its second worker is the
        last one, unless `whole` ones are wanted. Where none fits, the first one is taken whose time is only a guess, if
        it `tries` and half of that is left. The clock may cut both off.
        """
        chosen: list[Row] = []
        made: set[Path] = set()
        for row in rows:
            time, folder = self.of(row), reference_folder(row.subject, self.component)
            seconds = time.seconds + (0.0 if folder in made else reference_s(row, self.history, self.component))
            if seconds - (0.0 if whole else time.second_s) > left_s:
                continue
            chosen.append(row)
            left_s -= seconds
            made.add(folder)
            if left_s < 0:
                break
        return tuple(chosen or [row for row in rows if tries and _may_be_tried(self.of(row), left_s)][:1])


def _may_be_tried(time: Expected, left_s: float) -> bool:
    return time.source == GUESS and time.seconds / 2 <= left_s


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
