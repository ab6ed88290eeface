"""Style and building blocks of figures, which are Vega-Lite specifications, and their drawing as SVG.

A specification is JSON with its data inside (https://vega.github.io/vega-lite/docs/spec.html). Texts of records are
data in it, never expressions or names of fields.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from resource import RLIMIT_AS, getrlimit
from types import ModuleType
from typing import Any, Final

import numpy as np

from bakeoff.machine.files import digest
from bakeoff.machine.terminal import one_line
from bakeoff.models.errors import BakeoffError
from bakeoff.record.schema import Record
from bakeoff.report.format import INSTALL, shorten
from bakeoff.report.groups import name_of

Spec = dict[str, Any]
INK, FAINT, GRID = "#222222", "#8a8a8a", "#e4e4e4"
_WIDE: Final = 700
"""Width in pixels of a figure that, with its legend, is as wide as a page."""
_PLACES: Final = re.compile(r'(?<= d=")[^"]*|(?<= transform=")[^"]*')
_DIGITS: Final = re.compile(r"\d+\.\d{3,}(?:e-?\d+)?")
_NAME_LETTERS = 60
_CONFIG: Spec = {
    "background": "white",
    "padding": {"left": 30, "top": 10, "right": 60, "bottom": 10},  # room for wider fonts, as DejaVu Sans
    "font": "Liberation Sans, Arial, Helvetica, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelLimit": 320, "labelColor": INK, "titleColor": INK, "titleFontWeight": "normal", "domainColor": FAINT,
        "tickColor": FAINT, "gridColor": GRID,
    },
    "legend": {
        "title": None, "labelLimit": 0, "labelColor": INK, "symbolStrokeWidth": 1.5, "symbolSize": 60,
    },
    "title": {
        "anchor": "start", "frame": "group", "color": INK, "subtitleColor": INK, "fontSize": 12, "subtitleFontSize": 11,
        "fontWeight": "normal", "limit": 900,
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """One panel: a name, a heading, a caption and a Vega-Lite specification."""

    name: str
    heading: str
    caption: str
    spec: Spec


# Mostly of Paul Tol's bright and vibrant schemes, which colour-blind readers can distinguish, on white and on black.
_COLOURS: Final = (
    "#4477aa", "#ee7733", "#228833", "#aa3377", "#33bbee", "#ccbb44", "#ee6677", "#009988", "#999999", "#8c6bb1",
    "#8c564b", "#66a61e", "#e7298a", "#a6761d",
)  # fmt: skip
BETWEEN: Final[Mapping[str, str]] = {
    "glue": "#bbbbbb",
    "copies": "#777777",
    "idle": "#eeeeee",
    "unattributed": "#d9c9a3",
}
"""Colours of time outside all phases."""
_WITHOUT_NUMBERS: Final = "#888888"
_USUAL: Final = (
    "inductor[freezing]", "inductor", "aoti", "int8+inductor", "openvino", "onnxruntime", "aoti[freezing]",
    "inductor[mode=max-autotune,freezing]", "eager", "tensorrt-aot", "cudagraph", "tensorrt", "openvino[hint=dtype]",
    "onnxruntime[int8]",
)  # fmt: skip
"""Backends that take the colours in this order; others take one by a hash of their name."""


_STAR = "M0,-1L0.22,-0.31L0.95,-0.31L0.36,0.12L0.59,0.81L0,0.38L-0.59,0.81L-0.36,0.12L-0.95,-0.31L-0.22,-0.31Z"
_MARKS: Final[tuple[tuple[str, tuple[float, ...]], ...]] = (
    ("circle", ()), ("square", (8, 3, 2, 3)), ("triangle-up", (6, 3)), ("diamond", (2, 2)), ("triangle-down", (12, 4)),
    ("cross", (12, 3, 2, 3, 2, 3)), ("triangle-right", (4, 4)), (_STAR, (6, 2, 2, 2, 2, 2)),
)  # fmt: skip
"""Shapes of points, each with the dashes of its lines: lengths of strokes and gaps in turn, () for a solid line."""
_MARK_OF_DTYPE: Final = {"fp32": 0, "tf32": 1, "bf16": 2, "fp16": 3, "given": 4, "int8": 5}


@dataclass(frozen=True, slots=True)
class Style:
    """The colour and mark of a variant, as Vega takes them."""

    colour: str
    shape: str
    dashes: tuple[float, ...]


def library() -> ModuleType:
    """Return the library that draws Vega-Lite. Raises BakeoffError if it is not installed, or would end the process."""
    if 0 <= getrlimit(RLIMIT_AS)[0] < 72 << 30:  # its heap reserves 64 GiB
        text = "figures are drawn by V8, which needs 72 GiB of address space or ends the process; raise ulimit -v"
        raise BakeoffError(text, code="unsupported")
    try:
        import vl_convert
    except ModuleNotFoundError as error:
        text = f"figures need vl-convert-python, which is not installed. {INSTALL}"
        raise BakeoffError(text, code="missing-library") from error
    return vl_convert


def drawn(figure: Figure) -> bytes:
    """Draw one figure as SVG, without its heading. Raises BakeoffError if the library that draws is not installed.

    Coordinates are rounded to hundredths of a pixel: the library writes sixteen digits.
    """
    spec = {"width": _WIDE, **figure.spec, "config": _CONFIG}
    text: str = library().vegalite_to_svg(spec)
    return _PLACES.sub(lambda found: _DIGITS.sub(lambda number: f"{float(number[0]):.2f}", found[0]), text).encode()


def name_text(name: str) -> str:
    """Return a name as figures write it: on one line, a long one with its middle left out and a hash added."""
    shown = shorten(name, _NAME_LETTERS)
    return shown if shown == one_line(name) else f"{shown} ({digest(name)[:6]})"


def looks(styles: Mapping[str, Style]) -> Spec:
    """Return encodings of the field `name`: the colour, mark and dashes of each drawn variant, with one legend."""
    held = {name_text(name): style for name, style in styles.items()}
    return {
        "stroke": scaled("name", {name: style.colour for name, style in held.items()}),
        "shape": scaled("name", {name: style.shape for name, style in held.items()}),
        "strokeDash": scaled("name", {name: list(style.dashes) or [1, 0] for name, style in held.items()}),
    }


def scaled(field: str, values: Mapping[str, Any]) -> Spec:
    """Return the encoding that gives each name in a field its value in `values`, such as a colour."""
    scale = {"domain": list(values), "range": list(values.values())}
    return {"field": field, "type": "nominal", "scale": scale}


def quantity(field: str, title: str | None = "", **more: Any) -> Spec:
    """Return the encoding of a field of numbers; without a title of its own, an axis has the field's name."""
    return {"field": field, "type": "quantitative", **({} if title == "" else {"title": title}), **more}


def tooltip(*fields: str) -> list[Spec]:
    """Return what a pointer shows of a mark."""
    return [{"field": field} for field in fields]


def layer(values: Sequence[Spec], mark: str, encoding: Spec, **look: Any) -> Spec:
    """Return a layer of marks with data of its own."""
    return {"data": {"values": values}, "mark": {"type": mark, **look}, "encoding": encoding}


def beside(values: Sequence[Spec], x: Spec) -> Spec:
    """Return a layer that writes the field `text` to the right of `x`."""
    return layer(values, "text", {"x": x, "text": {"field": "text"}}, align="left", dx=6, color=INK)


def end_of(values: Iterable[tuple[str, float]]) -> float:
    """Return the end of an axis from statuses and values of rows: the largest ok value, or of all if none is ok."""
    held = list(values)
    return rounded(max([value for status, value in held if status == "ok"] or [value for _, value in held]))


def lines(encoding: Spec, **mark: Any) -> Spec:
    """Return a layer of lines with the variants' colours and dashes; `mark` has further properties."""
    kept = {channel: value for channel, value in encoding.items() if channel != "shape"}
    return {"mark": {"type": "line", "strokeWidth": 1.2, **mark}, "encoding": kept}


def points(encoding: Spec, **mark: Any) -> Spec:
    """Return a layer of points, hollow where the field `fill` is 0; `mark` has further properties."""
    inside = {"field": "fill", "type": "quantitative", "scale": None}
    kept = {channel: value for channel, value in encoding.items() if channel != "strokeDash"}
    look = {**kept, "fill": encoding["stroke"], "fillOpacity": inside}
    return {"mark": {"type": "point", "opacity": 1, **mark}, "encoding": look}


def rounded(value: float) -> float:
    """Round to five digits: as many as a screen can show, at half the size."""
    return float(f"{value:.5g}")


def envelope(samples_ns: Sequence[int], points: int) -> tuple[list[int], list[float]]:
    """Return the positions and milliseconds of at most `points` samples, in their order.

    Each stretch keeps its least and its largest sample: taking every n-th would lose spikes.
    """
    values = np.asarray(samples_ns, dtype=np.int64)
    if len(values) <= points:
        return list(range(len(values))), (values / 1e6).tolist()
    bounds = np.linspace(0, len(values), points // 2 + 1).astype(int)
    kept: set[int] = set()
    for start, stop in pairwise(bounds.tolist()):
        stretch = values[start:stop]
        kept |= {start + int(stretch.argmin()), start + int(stretch.argmax())}
    positions = sorted(kept)
    return positions, (values[positions] / 1e6).tolist()


def colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each name, by the name alone unless two want the same; they repeat after fourteen."""
    free, found = list(range(len(_COLOURS))), {}
    for name in sorted(set(names), key=lambda name: (name not in _USUAL, name)):
        wanted = _USUAL.index(name) if name in _USUAL else int(digest(name)[:8], 16) % len(_COLOURS)
        free = free or list(range(len(_COLOURS)))
        place = min(free, key=lambda place: (place - wanted) % len(_COLOURS))
        free.remove(place)
        found[name] = _COLOURS[place]
    return found


def dtype_dashes(dtype: str) -> tuple[float, ...]:
    """Return the dashes of lines that belong to a dtype and not to a variant."""
    return _MARKS[_MARK_OF_DTYPE.get(dtype, 0)][1]


def styles(records: Iterable[Record]) -> dict[str, Style]:
    """Return a style for each row's name: the colour shows the backend, the mark the dtype.

    Up to 112 names have distinct styles: a name whose style is taken gets the next free mark, or else any free style.
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
        found[name] = Style(pair[0], *_MARKS[pair[1]])
    return found
