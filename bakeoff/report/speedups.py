"""Ratios of medians, and whether two medians differ by more than their intervals."""

from dataclasses import dataclass

from bakeoff.record.schema import Record


@dataclass(frozen=True, slots=True)
class Speedup:
    """How many times faster a record is than its baseline, by the medians of the latency clock."""

    ratio: float
    shown: bool
    """False where the 95 % intervals of the two medians overlap, so that no difference is shown."""

    def __str__(self) -> str:
        return f"{self.ratio:.2f}x{'' if self.shown else ' ~'}"


def speedup(record: Record, baseline: Record | None) -> Speedup | None:
    """The baseline's median over the record's; None where either has no samples. A baseline is 1.00x itself.

    Both must be current rows of one table; see bakeoff.report.comparable.
    """
    ours = record.latency
    theirs = baseline.latency if baseline is not None else None
    if ours is None or theirs is None or baseline is None or ours.median_ms <= 0:
        return None
    shown = record is baseline or shown_faster(record, baseline) is not None
    return Speedup(theirs.median_ms / ours.median_ms, shown)


def shown_faster(record: Record, baseline: Record) -> bool | None:
    """Compares the medians' 95 % intervals: True all faster, False all slower, None where they overlap."""
    ours, theirs = record.latency, baseline.latency
    if ours is None or theirs is None:
        return None
    if ours.high_ms < theirs.low_ms:
        return True
    if ours.low_ms > theirs.high_ms:
        return False
    return None
