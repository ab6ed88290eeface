"""Fewer points of a series, with the same least, greatest, mean and count."""

from collections.abc import Sequence

from bakeoff.record.monitor import Point


def merged(points: Sequence[Point], most: int) -> tuple[Point, ...]:
    """At most `most` points: neighbours are merged, equally many each."""
    every = max(1, -(-len(points) // most))
    return tuple(_one(points[start : start + every]) for start in range(0, len(points), every))


def _one(points: Sequence[Point]) -> Point:
    count = sum(point.count for point in points)
    return Point(
        t_ns=points[0].t_ns,
        least=min(point.least for point in points),
        mean=sum(point.mean * point.count for point in points) / count,
        greatest=max(point.greatest for point in points),
        count=count,
    )
