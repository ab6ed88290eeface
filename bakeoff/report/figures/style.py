"""What the SVG plots and the page have in common: colours, short names, and how many samples become few."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from bakeoff.record.schema import Status
from bakeoff.record.store import Stored

POINTS = 400
"""Drawn of one clock at most; more cannot be told apart in a panel of this width."""

# Mostly of Paul Tol's bright and vibrant schemes, told apart by colour-blind eyes, on white and on black.
PALETTE: Final = (
    "#4477aa", "#ee7733", "#228833", "#aa3377", "#33bbee", "#ccbb44", "#ee6677", "#009988", "#999999", "#8c6bb1",
    "#8c564b", "#66a61e",
)  # fmt: skip
DASHES: Final[Mapping[str, str]] = {"fp32": "-", "tf32": "-.", "bf16": "--", "fp16": ":"}
MARKERS: Final[Mapping[str, str]] = {"fp32": "o", "tf32": "s", "bf16": "^", "fp16": "D"}
"""By dtype, so that colours can tell backends apart."""
_STATUS_COLOURS: Final[Mapping[Status, str]] = {
    "ok": "#228833",
    "unstable": "#cc9911",
    "parity_failed": "#cc3311",
    "fell_back": "#aa3377",
}
_WITHOUT_NUMBERS: Final = "#888888"


def status_colour(status: Status) -> str:
    return _STATUS_COLOURS.get(status, _WITHOUT_NUMBERS)


def backend_colours(rows: Sequence[Stored]) -> dict[str, str]:
    """A colour for each backend of a group, the same in all dtypes; past the palette's end they repeat."""
    names = dict.fromkeys(entry.record.variant.backend for entry in rows)
    return {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(names)}


def fastest_first(rows: Sequence[Stored]) -> list[Stored]:
    """Rows with numbers by their median, then the others in their order."""
    return sorted(rows, key=lambda entry: entry.record.latency.median_ms if entry.record.latency else float("inf"))


def envelope(samples_ns: Sequence[int], points: int = POINTS) -> tuple[list[int], list[float]]:
    """Positions and milliseconds of at most `points` samples in their order: of each stretch its least and its largest.

    A stride would lose the spikes that a timeline is looked at for.
    """
    values = np.asarray(samples_ns, dtype=np.int64)
    if len(values) <= points:
        return list(range(len(values))), (values / 1e6).tolist()
    bounds = np.linspace(0, len(values), points // 2 + 1).astype(int)
    kept: set[int] = set()
    for start, stop in pairwise(bounds.tolist()):
        stretch = values[start:stop]
        kept |= {start + int(stretch.argmin()), start + int(stretch.argmax())}
    places = sorted(kept)
    return places, (values[places] / 1e6).tolist()


def quantiles(samples_ns: Sequence[int], points: int = POINTS) -> list[float]:
    """Milliseconds in ascending order: all samples, or `points` evenly spaced quantiles with both ends."""
    values = np.sort(np.asarray(samples_ns, dtype=np.float64)) / 1e6
    if len(values) <= points:
        return values.tolist()
    return np.quantile(values, np.linspace(0, 1, points)).tolist()
