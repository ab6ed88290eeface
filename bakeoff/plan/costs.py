"""Estimates the time of rows, references and finals from earlier records, and which rows fit into a budget."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, Literal

from bakeoff.backends import resolve_backend
from bakeoff.machine import build_cache, host
from bakeoff.models.types import BASELINE_DTYPES
from bakeoff.plan.history import History, is_shippable
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Key, Row, reference_folder
from bakeoff.record.schema import Record
from bakeoff.record.verdict import AGREEING_PAIRS, SET_ROUNDS, expected_pairs

GUESS: Final = "guess"
_GUESS_MEASURE_S = 25.0
_GUESS_BUILD_S = 60.0
_GUESS_SEARCH_S = 240.0
"""Seconds of a build that times many kernels (`Row.searches`). Never measured; a large network may take far longer."""
_GUESS_REFERENCE_S = 10.0
_GUESS_TRACE_S = 3.0
"""Seconds that a second worker takes besides its imports and its build: a few traced calls."""
_GUESS_SETUP_S = 5.0
"""Seconds until one process of a final is warm."""
_STARTUP = ("start", "import", "weights")


@dataclass(frozen=True, slots=True)
class RowEstimate:
    """Estimated seconds of a row, without the references of its subject. `source` is a record's id, or "guess"."""

    first_s: float
    """Seconds until the row is timed."""
    source: str
    second_s: float = 0.0
    """Seconds of a second worker (a warm build, a trace), which runs after all rows are timed."""

    @property
    def seconds(self) -> float:
        return self.first_s + self.second_s


def sides_of(rows: Sequence[Row], best: Sequence[Row] = ()) -> list[Row]:
    """Return the sides of a subject's final: two rows, and eager fp32 if it is neither; empty if there are not two.

    The two are those of `best`, filled up with the first of `rows` that can run and be in a final.
    """
    variants = {str(row.variant): row for row in best}
    for row in rows:
        if row.never_runs is None and is_shippable(row):
            variants.setdefault(str(row.variant), row)
    two = list(variants.values())[:2]
    eager = [row for row in rows if row.is_eager_fp32 and str(row.variant) not in {str(one.variant) for one in two}]
    return [*two, *eager[:1]] if len(two) == 2 else []


@dataclass(frozen=True, slots=True)
class Costs:
    """Time estimates for a plan, from earlier records."""

    plan: Plan
    history: History

    def of(self, row: Row) -> RowEstimate:
        """Estimate a row from the newest record of its variant: on this machine, else on one of its class, else on any.

        The build's time comes from a record with a cache in the same state (cold or warm), if there is one. Without a
        record of the variant the estimate is a guess: the median over records of the same backends with other subjects,
        else a constant. A row that cannot run takes no time.
        """
        if row.never_runs is not None:
            return RowEstimate(0.0, "")
        known = self.history.like(row)
        if known:
            first_s, second_s = _seconds(row, [entry.record for entry in known])
            return RowEstimate(first_s, known[-1].id, second_s)
        alike = [sum(_seconds(row, [entry.record])) for entry in self.history.like_backends(row)]
        return RowEstimate(median(alike) if alike else _GUESS_MEASURE_S + guess_build_s(row), GUESS)

    def references_s(self, row: Row) -> float:
        """Estimate the seconds for the references of the row's subject; 0 if they are cached.

        References are computed in eager in high precision for several inputs, which takes as long as about forty calls
        of eager fp32.
        """
        if row.never_runs is not None or reference_folder(row.subject, self.plan.component).exists():
            return 0.0
        calls = [
            entry.record.latency.median_ms / 1e3
            for entry in self.history.records
            if entry.record.baseline
            and entry.record.variant.dtype in BASELINE_DTYPES
            and entry.record.variant.device == row.variant.device
            and (entry.record.variant.subject, entry.record.batch) == (row.variant.subject, row.subject.batch)
            and entry.record.latency is not None
        ]
        return max(_GUESS_REFERENCE_S, 40 * calls[-1]) if calls else _GUESS_REFERENCE_S

    def final_s(self, sides: Sequence[Row]) -> float:
        """Estimate the seconds of a final between the first two of these rows; the others run beside them.

        The number of sets of fresh processes is that which a verdict is expected to need for the speeds in the rows'
        newest records. The processes of a set are built at the same time if all rows may overlap.
        """
        newest = [entry for row in sides for entry in self.history.like(row)[-1:]]
        calls_ms = [entry.record.latency.median_ms for entry in newest if entry.record.latency is not None]
        setups_s = sum(_setup_s(row, self.history) for row in sides)
        if all(row.overlaps for row in sides):
            setups_s /= min(host.usable_cores(), len(sides))
        rounds_s = SET_ROUNDS * 2 * sum(calls_ms) / 1e3  # of one timed call of each side, after an untimed one
        pairs = AGREEING_PAIRS
        if len(calls_ms) == len(sides) and len({entry.machine.host for entry in newest}) == 1:
            best, second = sorted(calls_ms[:2])  # the better one is also compared with what runs beside the two
            pairs = expected_pairs(min([second, *calls_ms[2:]]) / best)
        return pairs * (setups_s + max(self.plan.request.final_s / AGREEING_PAIRS, rounds_s))

    def finals(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return the sides of each subject's final, as expected before a sweep of these rows in this order."""
        subjects = dict.fromkeys(row.subject for row in rows) if self.plan.request.final_s else ()
        found = (sides_of([row for row in rows if row.subject == subject]) for subject in subjects)
        return [sides for sides in found if sides]

    def fitting(self, rows: Sequence[Row], left_s: float, finals: Iterable[Sequence[Row]] = ()) -> tuple[Row, ...]:
        """Return the rows that can be timed one after the other within `left_s` seconds; earlier `rows` have priority.

        Time is reserved for as many of these `finals` as can run afterwards. If the time left is too short for a final,
        or for timing its two rows, no time is reserved for it.
        """
        needed: set[Key] = set()
        chosen = self._chosen(rows, left_s, tries=True)
        for sides in finals:
            before_s = left_s - self.final_s(sides)
            before = self._chosen(rows, before_s, tries=False)
            more = needed | ({row.key for row in sides[:2]} & {row.key for row in rows})
            if before_s >= 0 and more <= {row.key for row in before}:
                needed, chosen, left_s = more, before, before_s
        return chosen

    def _chosen(self, rows: Sequence[Row], left_s: float, tries: bool) -> tuple[Row, ...]:
        """Return the rows that fit into `left_s` seconds; a row that does not fit is skipped, and later ones may still
        fit.

        The time of a subject's references counts with its first row; precompiling torch's C++ headers does not count.
        If no row fits and `tries` is set, the first row is taken whose time is only a guess and at least half of whose
        guess fits: it may be stopped by the time limit.
        """
        chosen: list[Row] = []
        guessed: list[Row] = []
        made: set[Path] = set()
        for row in rows:
            time, folder = self.of(row), reference_folder(row.subject, self.plan.component)
            seconds = time.first_s + (0.0 if folder in made else self.references_s(row))
            if seconds > left_s:
                guessed += [row] if time.source == GUESS and time.first_s / 2 <= left_s else []
                continue
            chosen.append(row)
            left_s -= seconds
            made.add(folder)
        return tuple(chosen or guessed[:tries])


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """Estimate of the time left in a sweep, scaled by the time that its rows took so far."""

    rows: Mapping[Key, RowEstimate]
    finals_s: float

    def seconds(self, timed: Collection[Key], whole: Collection[Key], here: Iterable[Key], taken_s: float) -> float:
        """Estimate the seconds left in the sweep.

        `timed` are the rows timed so far, `whole` those with complete records, `here` those timed in this run, and
        `taken_s` the seconds since the run began. Rows that overlap take less than the sum of their estimates, rows on
        a busy host more, so the estimate is scaled by the ratio so far. One average row that took as long as estimated
        is counted as done too, since the first row alone says little.
        """
        left_s = sum(time.first_s for key, time in self.rows.items() if key not in timed)
        left_s += sum(time.second_s for key, time in self.rows.items() if key not in whole)
        estimates = [time.first_s for time in self.rows.values() if time.first_s]
        if not left_s or not estimates:
            return self.finals_s
        average_s = sum(estimates) / len(estimates)
        here_s = sum(self.rows[key].first_s for key in here)
        return left_s * (taken_s + average_s) / (here_s + average_s) + self.finals_s


def guess_build_s(row: Row) -> float:
    """Return a guess of the seconds of the row's build with an empty cache, for rows without a record."""
    if row.searches:
        return _GUESS_SEARCH_S
    return _GUESS_BUILD_S if row.caches else 0.0


def will_be_warm(row: Row) -> bool:
    """Return whether the row's build will find the cache of an earlier build.

    If a variant is built several times, each build begins with an empty cache, and the later processes of a build find
    its cache.
    """
    return row.process > 1 or (row.builds == 1 and build_cache.is_warm(row.cache_folder))


def _seconds(row: Row, records: Sequence[Record]) -> tuple[float, float]:
    """Estimate the seconds of the row's first and second worker from records of one variant, the newest last."""
    newest = records[-1]
    phases = {phase: seconds for phase, seconds in newest.phase_s.items() if phase != "turn"}
    if "build" not in phases or newest.measurement.build is None:
        return newest.wall_s, 0.0
    build_s = again_s = _alone_s(newest)
    if row.caches:
        cold_s, warm_s = _build_s(records, "cold"), _build_s(records, "warm")
        again_s = warm_s if warm_s is not None else build_s
        build_s = cold_s if cold_s is not None else max(guess_build_s(row), again_s)
    cold = row.caches and not will_be_warm(row)
    traced_apart = row.subject.device not in resolve_backend(row.steps[-1].backend).same_when_traced
    second_s = 0.0
    if cold or (newest.policy.trace and traced_apart):
        second_s = sum(phases.get(phase, 0.0) for phase in _STARTUP) + again_s + _GUESS_TRACE_S
    return sum(phases.values()) - phases["build"] + (build_s if cold else again_s), second_s


def _build_s(records: Sequence[Record], state: Literal["cold", "warm"]) -> float | None:
    """Return the seconds of the newest build with a cold or warm cache; None if no record has one."""
    for record in reversed(records):
        build = record.measurement.build
        if build is None:
            continue
        if build.cache == state and "build" in record.phase_s:
            return _alone_s(record)
        warm_s = build.warm_s if build.warm_s is not None else build.warm_cpu_s
        if state == "warm" and warm_s is not None:
            return warm_s
    return None


def _alone_s(record: Record) -> float:
    """Return the seconds of the record's build; at most its CPU seconds if it ran at the same time as others."""
    build, wall_s = record.measurement.build, record.phase_s["build"]
    if build is None or not build.overlapped or build.cpu_s is None:
        return wall_s
    return min(wall_s, build.cpu_s)


def _setup_s(row: Row, history: History) -> float:
    """Estimate the seconds until a process of a final is built with warm caches, checked and warmed up."""
    records = [entry.record for entry in history.like(row) if "build" in entry.record.phase_s]
    if not records:
        return _GUESS_SETUP_S
    phases, warm_s = records[-1].phase_s, _build_s(records, "warm") if row.caches else None
    build_s = _alone_s(records[-1]) if warm_s is None else warm_s
    return build_s + sum(phases.get(phase, 0.0) for phase in (*_STARTUP, "prove", "check", "warm-up"))
