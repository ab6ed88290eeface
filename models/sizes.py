"""Several input sizes of one engine: parses `--sizes`, and chooses the sizes at which it is judged and timed.

A dimension is one or more axes of inputs that always have the same size, such as the batch of `x` and of `mask`.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd

from bakeoff.models.component import DynamicAxis
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted

MOST_VALUES = 8
"""Largest number of sizes of one dimension: each needs a reference, and adds a few seconds to every row."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """Axes that always have the same size, and the sizes that they take."""

    axes: tuple[tuple[str, int], ...]
    """Name of the input and axis, counted from 0."""
    values: tuple[int, ...]
    """Sizes in ascending order, at least two."""

    @property
    def name(self) -> str:
        """Name of its first axis, as it is typed: `x.0`."""
        name, axis = self.axes[0]
        return f"{name}.{axis}"


def parse_sizes(texts: Sequence[str]) -> tuple[Dimension, ...]:
    """Parse `--sizes`: `x.0=1,4,8`, `x.0,mask.0=1,4,8`, or several with spaces or semicolons; () for no texts.

    Raises BakeoffError for any other form, an axis that is named twice, or too few or too many sizes.
    """
    items = [item for text in texts for item in re.split(r"[;\s]+", text) if item]
    if texts and not items:
        raise BakeoffError("--sizes is empty; write NAME.AXIS=SIZE,SIZE as in x.0=1,4,8", "bad-option")
    dimensions = tuple(_dimension(item) for item in items)
    axes = [axis for dimension in dimensions for axis in dimension.axes]
    twice = next((axis for axis in axes if axes.count(axis) > 1), None)
    if twice is not None:
        raise BakeoffError(f"--sizes: {twice[0]}.{twice[1]} is given twice; keep one", "bad-option")
    return dimensions


def _dimension(text: str) -> Dimension:
    left, equals, right = text.partition("=")
    axes = [re.fullmatch(r"([^\s=,]+)\.(\d+)", part) for part in left.split(",")]
    values = right.split(",")
    if not equals or not all(axes) or not all(re.fullmatch(r"\d{1,9}", value) for value in values):
        form = "write NAME.AXIS=SIZE,SIZE as in x.0=1,4,8, or x.0,mask.0=1,4,8 for axes that move together"
        raise BakeoffError(f"--sizes {text}: {form}", "bad-option")
    numbers = tuple(sorted({int(value) for value in values}))
    if numbers[0] < 1:
        raise BakeoffError(f"--sizes {text}: a size is at least 1", "bad-option")
    if not 2 <= len(numbers) <= MOST_VALUES:
        raise BakeoffError(f"--sizes {text}: {counted(len(numbers), 'size')}; give 2 to {MOST_VALUES}", "bad-option")
    return Dimension(tuple((match[1], int(match[2])) for match in axes if match), numbers)


def with_usual(dimension: Dimension, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Dimension, int]:
    """Add a dimension's size in the given inputs to its values; return the dimension and that size.

    `shapes` are the given inputs' shapes. Raises BakeoffError for an unknown input or axis, a given size outside of the
    range, or axes of one dimension whose given sizes differ.
    """
    found = {}
    for name, axis in dimension.axes:
        if name not in shapes:
            raise _bad(f"there is no input '{name}'; there are {', '.join(shapes)}")
        if axis >= len(shapes[name]):
            raise _bad(f"{name} has the shape {list(shapes[name])}, so no axis {axis}; axes are counted from 0")
        found[f"{name}.{axis}"] = shapes[name][axis]
    usual = found[dimension.name]
    for axis_name, size in found.items():
        if size != usual:
            raise _bad(f"{dimension.name} is {usual} and {axis_name} is {size} as given; tie only axes of one size")
    low, high = dimension.values[0], dimension.values[-1]
    if not low <= usual <= high:
        raise _bad(f"{dimension.name} is {usual} as given, outside of {low} to {high}; give sizes around it")
    return Dimension(dimension.axes, tuple(sorted({*dimension.values, usual}))), usual


def _bad(text: str) -> BakeoffError:
    return BakeoffError(f"--sizes: {text}", "bad-option")


def workload_name(name: str, dimensions: Sequence[Dimension]) -> str:
    """Return the name of a workload with these sizes: `call-x0_1_4_8`."""
    parts = [f"{_plain(one.name)}_{'_'.join(map(str, one.values))}" for one in dimensions]
    return "-".join([name, *parts])


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "", name)


def dynamic_axes(dimensions: Sequence[Dimension], usual: Sequence[int]) -> tuple[DynamicAxis, ...]:
    """Return each axis with its range and its usual size."""
    return tuple(
        DynamicAxis(name, axis, one.name, one.values[0], size, one.values[-1])
        for one, size in zip(dimensions, usual, strict=True)
        for name, axis in one.axes
    )


Point = tuple[int, ...]
"""A size for each dimension."""


def seen_points(dimensions: Sequence[Dimension], usual: Point) -> list[Point]:
    """Return the points of listed sizes at which an engine is judged, sorted, without the usual one.

    These are each size of one dimension with the usual sizes of the others, all smallest sizes, and all largest sizes.
    """
    alone = [
        (*usual[:index], value, *usual[index + 1 :]) for index, one in enumerate(dimensions) for value in one.values
    ]
    ends = [tuple(one.values[end] for one in dimensions) for end in (0, -1)]
    return sorted({*alone, *ends} - {usual})


def unseen_points(listed: Collection[Point]) -> list[Point]:
    """Return points half-way between neighbouring listed points, those of the farthest neighbours first.

    Points with multiples of the greatest common divisor of the listed sizes come first, since a model may need these.
    If one size follows from another, as in a mask that is one longer than a cache, such a point preserves the relation.
    """
    ordered = sorted(listed)
    pairs = sorted(pairwise(ordered), key=lambda pair: -sum(abs(b - a) for a, b in zip(*pair, strict=True)))
    divisors = [gcd(*sizes) for sizes in zip(*ordered, strict=True)]
    found = [tuple(map(_between, *pair, steps)) for steps in (divisors, [1] * len(divisors)) for pair in pairs]
    whole = [tuple(size for size in point if size is not None) for point in found if None not in point]
    return [point for point in dict.fromkeys(whole) if point not in ordered]


def _between(one: int, other: int, step: int) -> int | None:
    """Return the multiple of `step` between two sizes that is nearest to their middle.

    If there is none, return the smaller size if `step` is 1 or the sizes are equal, otherwise None.
    """
    low, high = sorted((one, other))
    inside = range(low + step - low % step, high, step)
    nearest = min(inside, key=lambda size: (abs(2 * size - low - high), size), default=None)
    return low if nearest is None and (step == 1 or low == high) else nearest


def shapes_at(
    shapes: Mapping[str, tuple[int, ...]], dimensions: Sequence[Dimension], point: Point
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs at a point."""
    found = {name: list(shape) for name, shape in shapes.items()}
    for one, size in zip(dimensions, point, strict=True):
        for name, axis in one.axes:
            found[name][axis] = size
    return {name: tuple(shape) for name, shape in found.items()}


def label(dimensions: Sequence[Dimension], point: Point) -> str:
    """Return a point as text for tables: `x.0=8`, `x.0=8 x.1=64`."""
    return " ".join(f"{one.name}={size}" for one, size in zip(dimensions, point, strict=True))
