"""Pieces of figures that are drawn as SVG without scripts."""

from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_LEAST_SPAN = 1e-290


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle of a figure."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    title: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of a figure's grid and its number."""

    place: float
    text: str


def round_numbers(low: float, high: float, most: int) -> tuple[float, ...]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten from `low` to `high`, at most `most` and one more."""
    span = high - low
    if not isfinite(span) or span <= _LEAST_SPAN or span <= abs(high) * 1e-12:
        return ()
    power = 10.0 ** floor(log10(span / most))
    step = next((part * power for part in _STEPS if part * power >= span / most), span)
    return tuple(place * step for place in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1))


_TIMES = ((1.0, "ms"), (1e3, "s"), (60e3, "min"), (3600e3, "h"))


def time_ticks(start_ms: float, end_ms: float, width: float, most: int = 8) -> tuple[Tick, ...]:
    """Ticks of a time axis of this width, in the unit that gives the span at least two of it."""
    span = end_ms - start_ms
    size, unit = next(((size, unit) for size, unit in reversed(_TIMES) if span >= 2 * size), _TIMES[0])
    return tuple(
        Tick(round((place * size - start_ms) / span * width, 1), f"{place:.6g} {unit}")
        for place in round_numbers(start_ms / size, end_ms / size, most)
    )
