"""Estimates from earlier records how long rows take, and chooses the rows that fit into a time limit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bakeoff.machine import build_cache
from bakeoff.plan.history import History, is_shippable
from bakeoff.plan.rows import Key, Row
from bakeoff.record.schema import Record

GUESS: Final = "guess"
FINAL_S = 60.0
"""Seconds that are kept for each final. Of small models it takes half a minute; of `wm` on two cores, minutes."""
_GUESS_MEASURE_S = 25.0
_GUESS_BUILD_S = 60.0
_GUESS_SEARCH_S = 240.0
"""Seconds of a build that times many kernels (`Row.searches`). Never measured; a large network may take far longer."""


@dataclass(frozen=True, slots=True)
class RowEstimate:
    """Estimated seconds of a row, without the references of its subject. `source` is a record's id, or "guess"."""

    seconds: float
    source: str


def pair_of(rows: Sequence[Row], best: Sequence[Row] = ()) -> list[Row]:
    """Return the two rows of a subject's final; empty if there are not two.

    They are those of `best`, filled up with the first of `rows` that can run and be in a final.
    """
    variants = {str(row.variant): row for row in best}
    for row in rows:
        if row.never_runs is None and is_shippable(row):
            variants.setdefault(str(row.variant), row)
    pair = list(variants.values())[:2]
    return pair if len(pair) == 2 else []


@dataclass(frozen=True, slots=True)
class Costs:
    """Time estimates for rows, from earlier records."""

    history: History

    def of(self, row: Row) -> RowEstimate:
        """Estimate a row from the newest record of its variant: on this machine, else on one of its class, else on any.

        A record whose cache was in the same state (cold or warm) comes first. Without a record of the variant the
        estimate is a guess: the median over records of the same backends with other subjects, else a constant. A row
        that cannot run takes no time.
        """
        if row.never_runs is not None:
            return RowEstimate(0.0, "")
        cold = row.caches and not will_be_warm(row)
        if known := self.history.like(row):
            same = [entry for entry in known if not row.caches or _was_cold(entry.record) == cold]
            entry = (same or known)[-1]
            return RowEstimate(_seconds(entry.record, cold), entry.id)
        alike = [_seconds(entry.record, cold) for entry in self.history.like_backends(row)]
        return RowEstimate(median(alike) if alike else _GUESS_MEASURE_S + guess_build_s(row), GUESS)

    def fitting(self, rows: Sequence[Row], left_s: float, finals: Iterable[Sequence[Row]] = ()) -> tuple[Row, ...]:
        """Return the rows that can be timed one after the other within `left_s` seconds; earlier `rows` have priority.

        Time is kept for as many of these `finals`, each given by its two rows, as can run afterwards. If the time left
        is too short for a final, or for timing its two rows, none is kept for it.
        """
        needed: set[Key] = set()
        chosen = self._chosen(rows, left_s)
        for pair in finals:
            before_s = left_s - FINAL_S
            before = self._chosen(rows, before_s)
            more = needed | ({row.key for row in pair} & {row.key for row in rows})
            if before_s >= 0 and more <= {row.key for row in before}:
                needed, chosen, left_s = more, before, before_s
        return chosen

    def _chosen(self, rows: Sequence[Row], left_s: float) -> tuple[Row, ...]:
        """Return the rows that fit into `left_s` seconds; a row that does not fit is skipped, and later ones may still
        fit.

        Of a guess half must fit: the row may take less, and the time limit stops it if it does not.
        """
        chosen: list[Row] = []
        for row in rows:
            time = self.of(row)
            if (time.seconds / 2 if time.source == GUESS else time.seconds) > left_s:
                continue
            chosen.append(row)
            left_s = max(0.0, left_s - time.seconds)
        return tuple(chosen)


def finals_of(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the two rows of each subject's final, as expected before a sweep of these rows in this order."""
    subjects = dict.fromkeys(row.subject for row in rows)
    return list(filter(None, (pair_of([row for row in rows if row.subject == subject]) for subject in subjects)))


def guess_build_s(row: Row) -> float:
    """Return a guess of the seconds of the row's build with an empty cache, for rows without a record."""
    if row.searches:
        return _GUESS_SEARCH_S
    return _GUESS_BUILD_S if row.caches else 0.0


def will_be_warm(row: Row) -> bool:
    """Return whether the row's build will find the cache of an earlier build."""
    return row.process > 1 or build_cache.is_warm(row.cache_folder)


def _was_cold(record: Record) -> bool:
    build = record.measurement.build
    return build is not None and build.cache == "cold"


def _seconds(record: Record, cold: bool) -> float:
    """Return the seconds of the record's row; with the warm build that it states, unless the next one is `cold`."""
    build = record.measurement.build
    if cold or build is None or not _was_cold(record):
        return record.wall_s
    warm_s = build.warm_s if build.warm_s is not None else build.warm_cpu_s
    return record.wall_s if warm_s is None else record.wall_s - record.phase_s.get("build", warm_s) + warm_s
