"""What a monitor beside a worker saw, as sentences that the terminal and the pages share."""

from collections.abc import Iterator, Mapping, Sequence

from bakeoff.record.monitor import Monitored, Point, SeriesRecord
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import Record

_NAMES: Mapping[str, str] = {
    "gpu.power": "GPU power",
    "gpu.memory": "GPU memory",
    "gpu.busy": "some kernel ran",
    "gpu.sm_active": "SMs active",
    "gpu.temperature": "GPU temperature",
    "gpu.clock": "GPU clock",
    "cpu.process": "CPU of its processes",
    "cpu.process_memory": "memory of its processes",
    "cpu.memory": "memory in use",
    "cpu.load": "load average",
}
"""In the order in which they are shown; others follow by their own names."""
_LARGE = 100.0


def sentences(record: Record | PipelineRecord) -> list[str]:
    """Means and peaks in the timed window, throttling, what sampling cost, and what is unknown; none where none ran."""
    seen = record.monitored
    if seen is None:
        return []
    shared = isinstance(record, PipelineRecord) and record.how == "interleaved"
    found = [*_figures(seen, record.monitored_window_ns, shared), *_throttled(seen), *_cost(seen)]
    return [*found, *(f"not monitored: {text}" for text in seen.missing)]


def _figures(seen: Monitored, window_ns: tuple[int, int] | None, shared: bool) -> Iterator[str]:
    timed = window_ns is not None and any(_within(series, window_ns) for series in seen.series)
    names, order = [series.name for series in seen.series], list(_NAMES)
    parts = []
    for series in sorted(seen.series, key=lambda each: order.index(each.name) if each.name in order else len(order)):
        points = _within(series, window_ns) if timed else series.points
        if points:
            parts.append(_figure(series, points, names.count(series.name) > 1))
    if not parts:
        return
    start, end = window_ns or (0, 0)
    span = f"in the timed window of {(end - start) / 1e9:.1f} s" if timed else "from its start to its end"
    gpu = shared and any(name.startswith("gpu.") for name in names)
    also = "; the GPU's figures are of all mixes that took turns" if gpu else ""
    yield f"monitored {span}, mean and most: {', '.join(parts)}{also}"


def _within(series: SeriesRecord, window_ns: tuple[int, int] | None) -> Sequence[Point]:
    """The points that begin in the window."""
    if window_ns is None:
        return ()
    return [point for point in series.points if window_ns[0] <= point.t_ns < window_ns[1]]


def _figure(series: SeriesRecord, points: Sequence[Point], several: bool) -> str:
    """Its source too where another device has a series of the same name."""
    mean = sum(point.mean * point.count for point in points) / sum(point.count for point in points)
    most = max(point.greatest for point in points)
    source = f" of {series.source}" if several else ""
    unit = f" {series.unit}" if series.unit else ""
    return f"{_NAMES.get(series.name, series.name)}{source} {_number(mean)} and {_number(most)}{unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= _LARGE else f"{value:.3g}"


def _throttled(seen: Monitored) -> Iterator[str]:
    for each in seen.throttled:
        yield f"throttled by {each.reason} in {each.share:.0%} of the samples ({each.device})"


def _cost(seen: Monitored) -> Iterator[str]:
    """What sampling took of one core, by the median cost of a sample in its interval."""
    if seen.cost is None:
        return
    every = ", ".join(f"{group} every {seconds:g} s" for group, seconds in seen.cost.ran_s.items())
    note = f"; {seen.cost.note}" if seen.cost.note else ""
    yield f"the monitor took {seen.cost.sampling_share:.2%} of one core while sampling ({every}){note}"
