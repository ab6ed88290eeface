"""Figure of each variant's median by date: what got faster when and why, and how far sweeps of the same code differ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from bakeoff.machine.host import Host
from bakeoff.models.words import counted
from bakeoff.record.schema import Record
from bakeoff.record.statistics import Summary
from bakeoff.record.store import Stored
from bakeoff.report.figures.vega import (
    FAINT,
    Figure,
    Spec,
    end_of,
    intervals,
    lines,
    looks,
    name_text,
    points,
    rounded,
    styles,
)
from bakeoff.report.format import milliseconds, minute, shorten
from bakeoff.report.groups import name_of

_STEPS, _LETTERS = 4, 120
"""Largest number of steps, the latest, that are described below a figure, and of characters of a description."""
_NAMED = 2
"""Largest number of backends, and of libraries, that a change names."""
_DATE = "[utcFormat(datum.value, '%b %d'), utcFormat(datum.value, '%H:%M')]"


@dataclass(frozen=True, slots=True)
class Step:
    """Difference of a sweep from the one before it: what changed, and which variants became faster or slower."""

    when: str
    changed: str
    """Changes of code, libraries and the machine, in words; "" if there are none."""
    faster: tuple[str, ...]
    """Variants faster beyond their intervals, as in `eager fp32 (30.95 to 25.95 ms)`, the largest ratio first."""
    slower: tuple[str, ...]

    @property
    def texts(self) -> tuple[str, str]:
        moved = [_counted_first(word, names) for word, names in (("faster", self.faster), ("slower", self.slower))]
        said = "; ".join(filter(None, moved)) or "none is faster or slower beyond its interval"
        return f"{self.when}: {self.changed or 'nothing known'} changed", said


def _steps(sweeps: Sequence[Sequence[Record]]) -> Iterator[Step]:
    """Yield the steps between successive sweeps in which something changed or became faster or slower."""
    known: dict[str, Record] = {}
    for before, after in pairwise(sweeps):
        known |= {name_of(record): record for record in before if record.status == "ok"}
        found = Step(minute(after[0].created), _change(before[-1], after[0], before, after), *_moved(known, after))
        if found.changed or found.faster or found.slower:
            yield found


def _moved(known: Mapping[str, Record], after: Sequence[Record]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the rows faster than their last ok record before, and those slower than it, with both medians."""
    faster: list[tuple[float, str]] = []
    slower: list[tuple[float, str]] = []
    for record in after:
        old, new = getattr(known.get(name_of(record)), "latency", None), record.latency
        if record.status != "ok" or old is None or new is None:
            continue
        text = f"{name_text(name_of(record))} ({milliseconds(old.median_ms)} to {milliseconds(new.median_ms)} ms)"
        if new.high_ms < old.low_ms:
            faster.append((old.median_ms / new.median_ms, text))
        elif old.high_ms < new.low_ms:
            slower.append((new.median_ms / old.median_ms, text))
    return tuple(text for _, text in sorted(faster)[::-1]), tuple(text for _, text in sorted(slower)[::-1])


def _counted_first(word: str, names: Sequence[str]) -> str:
    return f"{len(names)} {word}{', most' if len(names) > 1 else ''}: {names[0]}" if names else ""


def _change(last: Record, first: Record, before: Sequence[Record], after: Sequence[Record]) -> str:
    """Describe what changed: the component, the measuring code, backends in both, versions, and the machine."""
    found = ["component"] if last.source.component != first.source.component else []
    found += ["measuring code"] if last.instrument != first.instrument else []
    ours, theirs = (
        {name: source for record in records for name, source in record.backends.items()} for records in (before, after)
    )
    found += _some(sorted(name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]), "backends")
    new = sorted(first.libraries.items() - last.libraries.items())
    found += _some([f"{name} {version}" for name, version in new], "libraries")
    return ", ".join([*found, *_machine(last.host, first.host)])


def _machine(old: Host, new: Host) -> Iterator[str]:
    """Yield the parts of a machine that differ; the host of virtual machines may move them."""
    parts = {"CPU": ("cpu", "cpu_stepping", "all_flags"), "GPUs": ("gpus",), "operating system": ("system",)}
    for part, fields in parts.items():
        pairs = [(getattr(old, field), getattr(new, field)) for field in fields]
        if any(was and now and was != now for was, now in pairs):  # older records lack some
            yield part


def _some(names: Sequence[str], kind: str) -> list[str]:
    """Return the names or, if there are more than two, only their number."""
    return list(names) if len(names) <= _NAMED else [f"{len(names)} {kind}"]


def figure(rows: Sequence[Stored]) -> Figure | None:
    """Draw a line for each variant of a group by date, on the host that measured last, with a mark at each change.

    Variants are in the order of the last sweep: ok ones first, the fastest first. None if fewer than two sweeps have
    figures.
    """
    every = sorted(
        (entry.record for entry in rows if entry.record.status != "built"), key=lambda record: record.created
    )
    ordered = [record for record in every if record.calibration or record.machine.host == every[-1].machine.host]
    sweeps: dict[str, list[Record]] = {}
    by_name: dict[str, list[Record]] = {}
    for record in ordered:
        sweeps.setdefault(record.sweep, []).append(record)
        by_name.setdefault(name_of(record), []).append(record)
    timed = [record for record in ordered if record.latency is not None]
    if len({record.sweep for record in timed}) < 2:
        return None

    def standing(name: str) -> tuple[bool, bool, float]:
        last = by_name[name][-1]
        median_ms = last.latency.median_ms if last.latency is not None else inf
        return last.sweep != list(sweeps)[-1], last.status != "ok", median_ms

    when = {sweep: _time(minute(records[0].created)) for sweep, records in sweeps.items()}
    names, style = sorted({name_of(record): 0 for record in timed}, key=standing), styles(ordered)
    held = [(record.status, record.latency.high_ms) for record in timed if record.latency is not None]
    end = rounded(1.05 * end_of(held))
    beyond = ", at the upper edge: beyond it" if any(high > end for _, high in held) else ""
    caption = f"median latency with its 95 % interval, by date (UTC); hollow: not ok, cross: no figures{beyond}"
    data = [
        {
            "name": name_text(name),
            "when": when[record.sweep],
            "status": record.status,
            "fill": int(record.status == "ok"),
            **_figures(record.latency),
        }
        for name in names
        for record in by_name[name]
    ]
    steps = list(enumerate(_steps(list(sweeps.values())), 1))
    left_out = [f"{counted(len(steps) - _STEPS, 'earlier step')} not listed"] if steps[_STEPS:] else []
    x: Spec = {
        "field": "when", "type": "temporal", "scale": {"type": "utc", "padding": 14},
        "title": [*left_out, *(line for number, step in steps[-_STEPS:] for line in _step_texts(number, step))],
        "axis": {
            "tickCount": 6, "grid": False, "labelOverlap": True, "labelExpr": _DATE, "titleAnchor": "start",
            "titleAlign": "left", "titleFontSize": 10, "titleLineHeight": 14,
        },
    }  # fmt: skip
    y: Spec = {
        "field": "ms", "type": "quantitative", "title": "median ms a call",
        "scale": {"domain": [0, end], "nice": False, "clamp": True},
    }  # fmt: skip
    look = looks({name: style[name] for name in names})
    look["strokeDash"] |= {"legend": None}
    marked = [{"when": _time(step.when), "number": number, "what": "; ".join(step.texts)} for number, step in steps]
    line = {"type": "rule", "color": FAINT, "strokeDash": [2, 3], "strokeWidth": 1}
    label = {"type": "text", "baseline": "bottom", "dy": -2, "fontSize": 10, "color": FAINT}
    tooltip = [{"field": "name"}, {"field": "ms"}, {"field": "status"}]
    numbered: list[Spec] = [
        {"data": {"values": marked}, "mark": line, "encoding": {"x": x, "tooltip": [{"field": "what"}]}},
        {"data": {"values": marked}, "mark": label,
         "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "number"}}},
    ]  # fmt: skip
    kept = [{"filter": "!datum.failed"}]
    series = [
        {"transform": kept, **lines({"x": x, "y": y, **look})},
        {"transform": kept, **intervals(x, y, look)},
        {"transform": kept, **points({"x": x, "y": y, **look, "tooltip": tooltip}, size=36)},
    ]
    crosses = {
        "transform": [{"filter": "datum.failed"}],
        "mark": {"type": "point", "shape": "M-1,-1L1,1M-1,1L1,-1", "size": 40, "opacity": 1},
        "encoding": {"x": x, "y": y, "stroke": look["stroke"]},
    }
    layers = [*(numbered if steps else []), *series, *([crosses] if any("failed" in point for point in data) else [])]
    apart = {"strokeDash": "independent"}
    spec = {"height": 300, "data": {"values": data}, "layer": layers, "resolve": {"scale": apart, "legend": apart}}
    return Figure("history", "History", caption, spec)


def _step_texts(number: int, step: Step) -> tuple[str, str]:
    changed, moved = (shorten(text, _LETTERS) for text in step.texts)
    return f"{number}: {changed}", moved


def _time(when: str) -> str:
    return f"{when.replace(' ', 'T')}:00Z"


def _figures(found: Summary | None) -> Spec:
    if found is None:
        return {"ms": 0, "failed": True}
    return {"ms": rounded(found.median_ms), "low": rounded(found.low_ms), "high": rounded(found.high_ms)}
