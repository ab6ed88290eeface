"""Colours and marks of figures: a variant or a phase has the same on all figures of all pages."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from bakeoff.machine.files import digest
from bakeoff.record.schema import Record
from bakeoff.report.groups import name_of

# Mostly of Paul Tol's bright and vibrant schemes, which colour-blind readers can distinguish, on white and on black.
_COLOURS: Final = (
    "#4477aa", "#ee7733", "#228833", "#aa3377", "#33bbee", "#ccbb44", "#ee6677", "#009988", "#999999", "#8c6bb1",
    "#8c564b", "#66a61e", "#e7298a", "#a6761d",
)  # fmt: skip
BETWEEN: Final[Mapping[str, str]] = {"glue": "#bbbbbb", "copies": "#777777", "unattributed": "#d9c9a3"}
"""Colours of time that is no phase's."""
_WITHOUT_NUMBERS: Final = "#888888"
_USUAL: Final = (
    "inductor[freezing]", "inductor", "aoti", "int8+inductor", "openvino", "onnxruntime", "aoti[freezing]",
    "inductor[mode=max-autotune,freezing]", "eager", "tensorrt-aot", "cudagraph", "tensorrt", "openvino[hint=dtype]",
    "onnxruntime[int8]",
)  # fmt: skip
"""Backends that have the colours in this order; others take one by their name."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The shape of a point and the dashes of a line, as Vega takes them."""

    shape: str
    dashes: tuple[float, ...]
    """Lengths of strokes and gaps in turn; none for a solid line."""


_STAR = "M0,-1L0.22,-0.31L0.95,-0.31L0.36,0.12L0.59,0.81L0,0.38L-0.59,0.81L-0.36,0.12L-0.95,-0.31L-0.22,-0.31Z"
_MARKS: Final = (
    Mark("circle", ()),
    Mark("square", (8, 3, 2, 3)),
    Mark("triangle-up", (6, 3)),
    Mark("diamond", (2, 2)),
    Mark("triangle-down", (12, 4)),
    Mark("cross", (12, 3, 2, 3, 2, 3)),
    Mark("triangle-right", (4, 4)),
    Mark(_STAR, (6, 2, 2, 2, 2, 2)),
)
_MARK_OF_DTYPE: Final = {"fp32": 0, "tf32": 1, "bf16": 2, "fp16": 3, "given": 4, "int8": 5}


@dataclass(frozen=True, slots=True)
class Style:
    colour: str
    mark: Mark


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, by the name alone where two of them do not want the same; they repeat after fourteen."""
    free, found = list(range(len(_COLOURS))), {}
    for name in sorted(set(names), key=lambda name: (name not in _USUAL, name)):
        wanted = _USUAL.index(name) if name in _USUAL else int(digest(name)[:8], 16) % len(_COLOURS)
        free = free or list(range(len(_COLOURS)))
        place = min(free, key=lambda place: (place - wanted) % len(_COLOURS))
        free.remove(place)
        found[name] = _COLOURS[place]
    return found


def dtype_dashes(dtype: str) -> tuple[float, ...]:
    """The dashes of lines that belong to a dtype and not to a variant."""
    return _MARKS[_MARK_OF_DTYPE.get(dtype, 0)].dashes


def styles(records: Iterable[Record]) -> dict[str, Style]:
    """A style for each row's name: the colour is of the backend, the mark of the dtype.

    No two names share both, up to 96 names: where backends outnumber the colours, the next free mark is taken.
    """
    by_name = {name_of(record): record.variant for record in records}
    colour = colours(variant.backend for variant in by_name.values())
    taken: set[tuple[str, int]] = set()
    found: dict[str, Style] = {}
    for name, variant in sorted(by_name.items(), key=lambda pair: (pair[1].backend not in _USUAL, pair[0])):
        first = _MARK_OF_DTYPE.get(variant.dtype, 0)
        wanted = [(colour[variant.backend], (first + step) % len(_MARKS)) for step in range(len(_MARKS))]
        others = [(each, mark) for each in _COLOURS for mark in range(len(_MARKS))]
        pair = next((pair for pair in (*wanted, *others) if pair not in taken), wanted[0])
        taken.add(pair)
        found[name] = Style(pair[0], _MARKS[pair[1]])
    return found
