"""The spread of a variant's medians where one sweep measured it in several builds or processes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.record.schema import Record
from bakeoff.record.source import same_code
from bakeoff.record.store import Stored
from bakeoff.report.format import milliseconds
from bakeoff.report.groups import group_key, name_of

BUILDS_LEGEND = (
    "a variant built several times is shown by its best build, the one with the lowest median (of its processes' "
    "medians); if any build is not ok, that one is shown"
)


@dataclass(frozen=True, slots=True)
class Spread:
    """The spread of one variant's figures: within its processes, between them, and between its builds."""

    builds: int
    processes: int
    """In all builds together."""
    low_ms: float
    high_ms: float
    """Smallest and largest of the builds' medians, where a build's is the median of its processes'. With one build:
    smallest and largest of its processes' medians."""
    between: float
    """(high - low) over their median."""
    between_processes: float | None
    """With several builds: the same figure for the processes of one build, as the median over the builds. None where
    no build has two processes."""
    within: float
    """Interquartile range of a process's samples over their median, as the median over the processes."""


def spread(records: Sequence[Record]) -> Spread | None:
    """The spread of the records of one variant and sweep; None for fewer than two processes with samples."""
    builds: dict[int, list[float]] = {}
    within = []
    for record in records:
        clock = record.measurement.latency
        if clock is None or not clock.samples_ns or min(clock.samples_ns) <= 0:
            continue
        low, median, high = np.percentile(np.asarray(clock.samples_ns) / 1e6, [25, 50, 75])
        builds.setdefault(record.build_number, []).append(float(median))
        within.append(float(high - low) / float(median))
    if len(within) < 2:
        return None
    several = len(builds) > 1
    medians = [float(np.median(each)) for each in builds.values()] if several else next(iter(builds.values()))
    inside = [_apart(each) for each in builds.values() if several and len(each) > 1]
    return Spread(
        builds=len(builds),
        processes=len(within),
        low_ms=min(medians),
        high_ms=max(medians),
        between=_apart(medians),
        between_processes=float(np.median(inside)) if inside else None,
        within=float(np.median(within)),
    )


def _apart(medians: Sequence[float]) -> float:
    return (max(medians) - min(medians)) / float(np.median(medians))


def spreads(rows: Iterable[Stored], every: Iterable[Stored]) -> list[tuple[Stored, Spread]]:
    """The spread of each row that was measured in several builds or processes of its sweep by the same code."""
    found: dict[tuple[object, ...], list[Record]] = {}
    for entry in every:
        record = entry.record
        found.setdefault((group_key(record), record.sweep, str(record.variant)), []).append(record)
    pairs = []
    for entry in rows:
        record = entry.record
        tries = found.get((group_key(record), record.sweep, str(record.variant)), [])
        known = spread([each for each in tries if same_code(each, record)])
        if known is not None:
            pairs.append((entry, known))
    return pairs


def spread_text(record: Record, found: Spread) -> str:
    """A row's spread as a sentence."""
    what = f"{found.builds} builds" if found.builds > 1 else f"{found.processes} processes"
    low, high = milliseconds(found.low_ms), milliseconds(found.high_ms, found.low_ms)
    text = f"{name_of(record)} in {what}: medians {low} to {high} ms, {found.between:.1%} apart"
    if found.between_processes is not None:
        text += f"; within a build the medians of its processes are {found.between_processes:.1%} apart"
    return f"{text}; within a process the middle half of the samples spans {found.within:.1%}"


def spread_lines(rows: Iterable[Stored], every: Iterable[Stored]) -> list[str]:
    """What `spreads` found as sentences, then which build a table shows where there are several."""
    found = spreads(rows, every)
    lines = [spread_text(entry.record, each) for entry, each in found]
    return [*lines, BUILDS_LEGEND] if any(each.builds > 1 for _, each in found) else lines
