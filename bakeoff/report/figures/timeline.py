"""Call times in the order of the calls, which show what a median does not: drift, steps, two speeds."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.record.schema import Clock
from bakeoff.record.store import Stored
from bakeoff.report.figures.style import Style, styles
from bakeoff.report.figures.vega import Figure, envelope, lines, looks, name_text
from bakeoff.report.groups import name_of

_WARMUP_POINTS, _TIMED_POINTS = 40, 160


@dataclass(frozen=True, slots=True)
class TimelineSeries:
    name: str
    style: Style
    calls: tuple[int, ...]
    """Number of each call that is drawn; 1 is the first after the warm-up."""
    ms: tuple[float, ...]


def timeline(rows: Sequence[Stored]) -> tuple[TimelineSeries, ...]:
    """A series for each row that has samples, ranked rows first, the fastest first.

    Long ones are thinned to 200 points that keep their spikes.
    """
    style = styles(entry.record for entry in rows)
    found = []
    for record in (entry.record for entry in rows):
        clock = record.measurement.latency
        if clock is not None and clock.figures is not None:
            place = record.status != "ok", clock.figures.median_ms
            found.append((place, _series(name_of(record), style, clock)))
    return tuple(series for _, series in sorted(found, key=lambda pair: pair[0]))


def _series(name: str, style: dict[str, Style], clock: Clock) -> TimelineSeries:
    before, warmup_ms = envelope(clock.warmup_ns, _WARMUP_POINTS)
    after, timed_ms = envelope(clock.samples_ns, _TIMED_POINTS)
    calls = [index - len(clock.warmup_ns) + 1 for index in before] + [index + 1 for index in after]
    return TimelineSeries(name, style[name], tuple(calls), (*warmup_ms, *timed_ms))


def figure(found: Sequence[TimelineSeries]) -> Figure | None:
    """A line for each series, logarithmic where calls differ by more than ten times. None without series."""
    if not found:
        return None
    values = [value for each in found for value in each.ms]
    kind = "log" if max(values) > 10 * min(values) > 0 else "linear"
    styles = {each.name: each.style for each in found}
    data = [
        {"name": name_text(each.name), "call": each.calls, "ms": [float(f"{ms:.4g}") for ms in each.ms]}
        for each in found
    ]
    title = "call; 1 is the first after the warm-up"
    look = looks(styles)
    look["stroke"]["legend"] = {"symbolType": "stroke", "symbolSize": 400, "rowPadding": -6}
    encoding = {
        "x": {"field": "call", "type": "quantitative", "title": title},
        "y": {"field": "ms", "type": "quantitative", "title": "ms a call", "scale": {"type": kind}},
        **look,
        "tooltip": [{"field": "name"}, {"field": "call"}, {"field": "ms"}],
    }
    calls = {
        "transform": [{"flatten": ["call", "ms"]}],
        "params": [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}],
        **lines(encoding, clip=True),
    }
    warmup = {
        "mark": {"type": "rect", "color": "#788caa", "opacity": 0.16},
        "data": {"values": [{"from": min(each.calls[0] for each in found) - 0.5, "to": 0.5}]},
        "encoding": {"x": {"field": "from", "type": "quantitative", "title": title}, "x2": {"field": "to"}},
    }
    spec = {"height": 260, "data": {"values": data}, "layer": [warmup, calls]}
    return Figure("timeline", "Calls in the order taken", "warm-up shaded; drag and scroll to zoom", spec)
