"""Call times in the order of the calls, which show what a median does not: drift, steps, two speeds."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.record.schema import Clock
from bakeoff.record.store import Stored
from bakeoff.report.figures.style import Style, styles
from bakeoff.report.figures.thinning import envelope
from bakeoff.report.groups import name_of

_WARMUP_POINTS, _TIMED_POINTS = 100, 300


@dataclass(frozen=True, slots=True)
class TimelineSeries:
    name: str
    style: Style
    calls: tuple[int, ...]
    """Number of each call that is drawn; 1 is the first after the warm-up."""
    ms: tuple[float, ...]


def timeline(rows: Sequence[Stored]) -> tuple[TimelineSeries, ...]:
    """A series for each row that has samples; long ones are thinned to 400 points that keep their spikes."""
    style = styles(entry.record for entry in rows)
    return tuple(
        _series(name_of(entry.record), style, entry.record.measurement.latency)
        for entry in rows
        if entry.record.latency is not None and entry.record.measurement.latency is not None
    )


def _series(name: str, style: dict[str, Style], clock: Clock) -> TimelineSeries:
    before, warmup_ms = envelope(clock.warmup_ns, _WARMUP_POINTS)
    after, timed_ms = envelope(clock.samples_ns, _TIMED_POINTS)
    calls = [index - len(clock.warmup_ns) + 1 for index in before] + [index + 1 for index in after]
    return TimelineSeries(name, style[name], tuple(calls), (*warmup_ms, *timed_ms))
