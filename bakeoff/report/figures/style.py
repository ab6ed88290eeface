"""Colours and marks of figures, the same in SVG and on the HTML page."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Final

from bakeoff.record.schema import Record, Status
from bakeoff.report.groups import name_of

# Mostly of Paul Tol's bright and vibrant schemes, which colour-blind readers can distinguish, on white and on black.
_COLOURS: Final = (
    "#4477aa", "#ee7733", "#228833", "#aa3377", "#33bbee", "#ccbb44", "#ee6677", "#009988", "#999999", "#8c6bb1",
    "#8c564b", "#66a61e",
)  # fmt: skip
_STATUS_COLOURS: Final[Mapping[Status, str]] = {
    "ok": "#228833",
    "unstable": "#cc9911",
    "parity_failed": "#cc3311",
    "fell_back": "#aa3377",
    "oom": "#4477aa",
}
_WITHOUT_NUMBERS: Final = "#888888"


@dataclass(frozen=True, slots=True)
class Mark:
    """The shape of a point and the dashes of a line."""

    matplotlib: str
    plotly: str
    dashes: tuple[float, ...]
    """Lengths of strokes and gaps in turn; none for a solid line."""


_MARKS: Final = (
    Mark("o", "circle", ()),
    Mark("s", "square", (8, 3, 2, 3)),
    Mark("^", "triangle-up", (6, 3)),
    Mark("D", "diamond", (2, 2)),
    Mark("v", "triangle-down", (12, 4)),
    Mark("P", "cross", (12, 3, 2, 3, 2, 3)),
    Mark("X", "x", (4, 4)),
    Mark("*", "star", (6, 2, 2, 2, 2, 2)),
)
_MARK_OF_DTYPE: Final = {"fp32": 0, "tf32": 1, "bf16": 2, "fp16": 3, "given": 4, "int8": 5}


@dataclass(frozen=True, slots=True)
class Style:
    colour: str
    mark: Mark


def palette(count: int) -> list[str]:
    """Colours for things that are not variants, from the first; they repeat after twelve."""
    return [_COLOURS[place % len(_COLOURS)] for place in range(count)]


def status_colour(status: Status) -> str:
    return _STATUS_COLOURS.get(status, _WITHOUT_NUMBERS)


def dtype_dashes(dtype: str) -> tuple[float, ...]:
    """The dashes of lines that belong to a dtype and not to a variant."""
    return _MARKS[_MARK_OF_DTYPE.get(dtype, 0)].dashes


def styles(records: Iterable[Record]) -> dict[str, Style]:
    """A style for each row's name: the colour is of the backend, the mark of the dtype.

    No two names share both, up to 96 names: where backends outnumber the colours, the next free mark is taken.
    """
    colours: dict[str, int] = {}
    free = list(product(range(len(_COLOURS)), range(len(_MARKS))))
    found: dict[str, Style] = {}
    for record in records:
        name = name_of(record)
        if name in found:
            continue
        colour = colours.setdefault(record.variant.backend, len(colours) % len(_COLOURS))
        mark = _MARK_OF_DTYPE.get(record.variant.dtype, 0)
        wanted = [(colour, (mark + step) % len(_MARKS)) for step in range(len(_MARKS))]
        pair = next((pair for pair in (*wanted, *free) if pair in free), (colour, mark))
        if pair in free:
            free.remove(pair)
        found[name] = Style(_COLOURS[pair[0]], _MARKS[pair[1]])
    return found
