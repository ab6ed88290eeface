"""Call times in the order of the calls, which show what a median does not: drift, steps, two speeds."""

from collections.abc import Sequence

from bakeoff.record.store import Stored
from bakeoff.report.figures.style import styles
from bakeoff.report.figures.vega import Figure, envelope, lines, looks, name_text
from bakeoff.report.groups import name_of

_WARMUP_POINTS, _TIMED_POINTS = 40, 160


def figure(rows: Sequence[Stored]) -> Figure | None:
    """A line for each row that has samples, ranked rows first, the fastest first; None without any.

    Call 1 is the first after the warm-up. Long lines are thinned to 200 points that keep their spikes, and the axis is
    logarithmic where calls differ by more than ten times.
    """
    found = []
    for record in (entry.record for entry in rows):
        clock = record.measurement.latency
        if clock is not None and clock.figures is not None:
            before, warmup_ms = envelope(clock.warmup_ns, _WARMUP_POINTS)
            after, timed_ms = envelope(clock.samples_ns, _TIMED_POINTS)
            numbers = [index - len(clock.warmup_ns) + 1 for index in before] + [index + 1 for index in after]
            place = record.status != "ok", clock.figures.median_ms
            found.append((place, name_of(record), numbers, [*warmup_ms, *timed_ms]))
    if not found:
        return None
    found.sort(key=lambda each: each[0])
    values = [value for *_, ms in found for value in ms]
    kind = "log" if max(values) > 10 * min(values) > 0 else "linear"
    style = styles(entry.record for entry in rows)
    data = [
        {"name": name_text(name), "call": numbers, "ms": [float(f"{each:.4g}") for each in ms]}
        for _, name, numbers, ms in found
    ]
    title = "call; 1 is the first after the warm-up"
    look = looks({name: style[name] for _, name, *_ in found})
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
        "data": {"values": [{"from": min(numbers[0] for *_, numbers, _ in found) - 0.5, "to": 0.5}]},
        "encoding": {"x": {"field": "from", "type": "quantitative", "title": title}, "x2": {"field": "to"}},
    }
    spec = {"height": 260, "data": {"values": data}, "layer": [warmup, calls]}
    return Figure("timeline", "Calls in the order taken", "warm-up shaded; drag and scroll to zoom", spec)
