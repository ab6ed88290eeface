"""How long a row will take, by earlier records where there are some: for `--dry-run` and `--budget`."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from bakeoff.backends import resolve_backend
from bakeoff.machine import build_cache, host
from bakeoff.models.component import Component
from bakeoff.models.types import BASELINE_DTYPES
from bakeoff.plan.history import History
from bakeoff.plan.rows import Row, reference_folder
from bakeoff.record.schema import Record
from bakeoff.record.verdict import AGREEING_PAIRS, SET_ROUNDS, expected_pairs

GUESS = "guess"
_GUESS_MEASURE_S = 45.0
_GUESS_BUILD_S = 90.0
_GUESS_SEARCH_S = 240.0
"""Of a build that times many kernels (`Row.searches`). Never measured; a large network may take far longer."""
_GUESS_REFERENCE_S = 10.0
_GUESS_TRACE_S = 3.0
"""A second worker's own time, besides its imports and its build: a few traced calls."""
_GUESS_SETUP_S, _GUESS_WARM_UP_S = 4.0, 1.0
"""Of one process of a final, until it is checked, and of its warm-up."""
_STARTUP = ("start", "import", "weights")
_WAITING = ("turn",)
"""Phases in which a worker only waits for others."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Seconds that a row will take, without its subject's references. `source` is a record's id, or "guess"."""

    seconds: float
    source: str
    second_s: float = 0.0
    """The part of a second worker (a warm build, a trace), without which the row can be kept."""


def expected(row: Row, history: History) -> Expected:
    """From the newest record of the row's variant: of this machine, else of one of its class, else of any machine.

    The build takes what it took with a cache in the state that this row will find (cold or warm), where a record knows;
    a second worker (a warm build, a trace) takes its imports, a warm build and a few seconds. Without such a record: as
    long as the same backends took for other subjects (the median), or else constants; both are guesses. A row that
    cannot run takes no time.
    """
    if row.never_runs is not None:
        return Expected(0.0, "")
    known = history.like(row)
    if known:
        first, second = _seconds(row, [entry.record for entry in known])
        return Expected(first + second, known[-1].id, second)
    alike = [sum(_seconds(row, [entry.record])) for entry in history.like_backends(row)]
    guess = median(alike) if alike else _GUESS_MEASURE_S + guess_build_s(row)
    return Expected(guess, GUESS)


def reference_s(row: Row, history: History, component: Component) -> float:
    """Seconds that the references of the row's subject take; 0 where they are cached.

    They are computed in eager in high precision for several inputs: as long as about forty calls of eager fp32.
    """
    if row.never_runs is not None or reference_folder(row.subject, component).exists():
        return 0.0
    calls = [
        entry.record.latency.median_ms / 1e3
        for entry in history.records
        if entry.record.baseline
        and entry.record.variant.dtype in BASELINE_DTYPES
        and entry.record.variant.device == row.variant.device
        and (entry.record.variant.subject, entry.record.batch) == (row.variant.subject, row.subject.batch)
        and entry.record.latency is not None
    ]
    return max(_GUESS_REFERENCE_S, 40 * calls[-1]) if calls else _GUESS_REFERENCE_S


def guess_build_s(row: Row) -> float:
    """Seconds of the row's build with an empty cache, where no record tells."""
    if row.searches:
        return _GUESS_SEARCH_S
    return _GUESS_BUILD_S if row.caches else 0.0


def will_be_warm(row: Row) -> bool:
    """Whether the row's build will find what an earlier one left in its cache.

    Of several builds each begins with an empty cache, and its later processes find what the first one left.
    """
    if row.builds > 1:
        return row.process > 1
    return row.process > 1 or build_cache.is_warm(row.cache_folder)


def _seconds(row: Row, records: list[Record]) -> tuple[float, float]:
    """Of the row's first worker and of a second one, from records of one variant, the newest last."""
    newest = records[-1]
    phases = {phase: seconds for phase, seconds in newest.phase_s.items() if phase not in _WAITING}
    if "build" not in phases or newest.measurement.build is None:
        return newest.wall_s, 0.0
    startup = sum(phases.get(phase, 0.0) for phase in _STARTUP)
    rest = sum(seconds for phase, seconds in phases.items() if phase not in (*_STARTUP, "build"))
    build = again = _alone_s(newest)
    if row.caches:
        cold, warm = _build_s(records, "cold"), _build_s(records, "warm")
        again = warm if warm is not None else build
        build = again if will_be_warm(row) else cold if cold is not None else max(guess_build_s(row), again)
    second = startup + again + _GUESS_TRACE_S if _has_second_worker(row, newest) else 0.0
    return startup + build + rest, second


def _build_s(records: list[Record], state: Literal["cold", "warm"]) -> float | None:
    """Seconds of the newest build with a cache in that state; None where no record has one."""
    for record in reversed(records):
        build = record.measurement.build
        if build is None:
            continue
        if build.cache == state and "build" in record.phase_s:
            return _alone_s(record)
        warm = build.warm_s if build.warm_s is not None else build.warm_cpu_s
        if state == "warm" and warm is not None:
            return warm
    return None


def _alone_s(record: Record) -> float:
    """Seconds of the record's build by itself; of one that ran beside others at most its CPU seconds."""
    build, wall_s = record.measurement.build, record.phase_s["build"]
    if build is None or not build.overlapped or build.cpu_s is None:
        return wall_s
    return min(wall_s, build.cpu_s)


def _has_second_worker(row: Row, record: Record) -> bool:
    """Whether its variant is built once more: after a cold build, or to be traced where the timed engine cannot be."""
    if row.caches and not will_be_warm(row):
        return True
    last = resolve_backend(row.steps[-1].backend)
    return record.policy.trace and row.subject.device not in last.evidence.same_when_traced


def expected_final(sides: Sequence[Row], history: History, final_s: float, pairs: int = 0) -> float:
    """Seconds of a final between the first two of these rows, beside which others may run.

    It has so many sets of fresh `pairs` of processes; 0: as many as a verdict takes where the rows are as far apart as
    their newest records. The processes of a set are built beside each other where all may overlap, and warm up in turn.
    """
    setups = [_setup_s(row, history) for row in sides]
    builds = [build for build, _ in setups]
    overlap = all(row.overlaps for row in sides)
    set_s = max(*builds, sum(builds) / host.usable_cores()) if overlap else sum(builds)
    newest = [entry for row in sides for entry in history.like(row)[-1:]]
    calls_ms = [entry.record.latency.median_ms for entry in newest if entry.record.latency is not None]
    rounds_s = SET_ROUNDS * 2 * sum(calls_ms) / 1e3  # of one timed call of each side, after an untimed one
    set_s += sum(warm_up for _, warm_up in setups) + max(final_s / AGREEING_PAIRS, rounds_s)
    if pairs:
        return pairs * set_s
    if len(calls_ms) < len(sides) or len({entry.machine.id for entry in newest}) > 1:
        return AGREEING_PAIRS * set_s
    best, second = sorted(calls_ms[:2])  # the better one is also compared with what runs beside the two
    return expected_pairs(min([second, *calls_ms[2:]]) / best) * set_s


def _setup_s(row: Row, history: History) -> tuple[float, float]:
    """Seconds until a process of a final is built and checked, with warm caches, and those of its warm-up."""
    records = [entry.record for entry in history.like(row) if "build" in entry.record.phase_s]
    if not records:
        return _GUESS_SETUP_S, _GUESS_WARM_UP_S
    phases = records[-1].phase_s
    warm = _build_s(records, "warm") if row.caches else None
    build = _alone_s(records[-1]) if warm is None else warm
    return build + sum(phases.get(phase, 0.0) for phase in (*_STARTUP, "prove", "check")), phases.get("warm-up", 0.0)
