"""Sets of intervals on a line of integer nanoseconds."""

from collections.abc import Iterable

Interval = tuple[int, int]
"""Start and end."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points as disjoint intervals, sorted. An interval that ends before it starts counts as empty."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def covered_ns(intervals: Iterable[Interval]) -> int:
    """Length of their union."""
    return sum(end - start for start, end in union(intervals))
