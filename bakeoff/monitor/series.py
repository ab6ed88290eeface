"""Time series in bounded memory, and histograms of any number of values.

A ring buffer that drops its oldest samples loses peaks and early energy. Here neighbouring points are merged instead,
so that minimum, maximum, mean and count are exact for any length.
"""

from bisect import bisect_left
from math import ceil, log

from bakeoff.record.monitor import Point

MOST_POINTS = 2_000
_GROWTH = 1.002
"""Ratio of consecutive bucket borders of a histogram, which makes percentiles accurate to 0.1 %."""


class Series:
    """Time series of samples, which are added in order of time. Not thread-safe."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        """Keep at most `most` points. Raises ValueError for fewer than 2."""
        if most < 2:
            raise ValueError(f"a series of {most} points; give at least 2")
        self._most = most
        self._points: list[tuple[int, float, float, float, int]] = []
        """Time, least, sum, greatest, count."""
        self._merged = 1
        """Number of samples that a full point combines."""

    def add(self, t_ns: int, value: float) -> None:
        """Add a sample at `t_ns`. The caller must leave out values that are not finite."""
        if self._points and self._points[-1][4] < self._merged:
            start, least, total, greatest, count = self._points[-1]
            self._points[-1] = start, min(least, value), total + value, max(greatest, value), count + 1
            return
        if len(self._points) == self._most:
            self._halve()
            self.add(t_ns, value)
            return
        self._points.append((t_ns, value, value, value, 1))

    def _halve(self) -> None:
        """Merge points in pairs, which halves their number."""
        pairs = zip(self._points[::2], self._points[1::2], strict=False)
        merged = [
            (one[0], min(one[1], two[1]), one[2] + two[2], max(one[3], two[3]), one[4] + two[4]) for one, two in pairs
        ]
        if len(self._points) % 2:
            merged.append(self._points[-1])
        self._points = merged
        self._merged *= 2

    def points(self) -> tuple[Point, ...]:
        return tuple(
            Point(t, least, total / count, greatest, count) for t, least, total, greatest, count in self._points
        )


class Histogram:
    """Histogram of positive whole numbers of any size, in buckets that grow by 0.2 %. Not thread-safe."""

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0

    def add(self, value: int) -> None:
        """Add a value. Values below 1 count as 1."""
        place = ceil(log(max(1, value), _GROWTH))
        self._buckets[place] = self._buckets.get(place, 0) + 1
        self.count += 1

    def percentile(self, share: float) -> float | None:
        """Return the smallest value that at least `share` of all do not exceed, accurate to 0.1 %; None if empty."""
        if not self.count:
            return None
        wanted = max(1, ceil(round(share * self.count, 9)))
        places = sorted(self._buckets)
        total, totals = 0, []
        for place in places:
            total += self._buckets[place]
            totals.append(total)
        return float(_GROWTH ** (places[bisect_left(totals, wanted)] - 0.5))
