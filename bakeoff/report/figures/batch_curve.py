"""Batch curves: items a second, latency and memory of each variant by the size of the batch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bakeoff.models.words import counted
from bakeoff.record.finalists import objective_of
from bakeoff.record.limit_checks import check_limits
from bakeoff.record.objective import Objective
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored
from bakeoff.report.columns import peak_mib
from bakeoff.report.comparable import current
from bakeoff.report.figures.style import Style, styles
from bakeoff.report.figures.vega import INK, Figure, filled, intervals, lines, looks, name_text, points, rounded
from bakeoff.report.format import median_and_interval
from bakeoff.report.groups import group_key, name_of
from bakeoff.report.objectives import fit_text, items_per_s, rate_text

HEADINGS = ("variant", "batch", "status", "items/s [95 %]", "median ms [95 %]", "peak MiB")
NUMERIC = (False, True, False, True, True, True)
EXPLANATION = (
    "items/s: batch times calls a second by the throughput clock. A variant saturates at the smallest batch whose "
    "interval of items/s overlaps that of its best batch. Batches are measured one after another and not ranked."
)


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """A variant at one size of the batch."""

    entry: Stored
    items: tuple[float, float, float] | None
    """Items a second and its 95 % interval."""

    @property
    def record(self) -> Record:
        return self.entry.record

    @property
    def batch(self) -> int:
        return self.record.batch

    @property
    def ranked(self) -> tuple[float, float, float] | None:
        """The items a second of a row that is ok."""
        return self.items if self.record.status == "ok" else None


@dataclass(frozen=True, slots=True)
class BatchSeries:
    """A variant, its smallest batch first."""

    name: str
    style: Style
    points: tuple[BatchPoint, ...]

    @property
    def saturates(self) -> BatchPoint | None:
        """The smallest batch whose interval overlaps that of the best; None without two batches that are ok."""
        rates = [(point, point.ranked) for point in self.points if point.ranked is not None]
        if len(rates) < 2:
            return None
        least = max((rate for _, rate in rates if rate is not None), key=lambda rate: rate[0])[1]
        return next(point for point, rate in rates if rate is not None and rate[2] >= least)

    @property
    def largest(self) -> int:
        """The largest batch that is ok; 0 where none is."""
        return max((point.batch for point in self.points if point.ranked is not None), default=0)


@dataclass(frozen=True, slots=True)
class BatchCurve:
    """The variants of one subject on one machine, with one setting but for the batch."""

    title: str
    objective: Objective
    series: tuple[BatchSeries, ...]


def batch_curves(rows: Iterable[Stored]) -> list[BatchCurve]:
    """A curve for each group of rows that differ in the batch, and were measured with the same code and libraries.

    `rows` hold one record for each variant and batch.
    """
    found: dict[tuple[object, ...], list[Stored]] = {}
    for entry in rows:
        found.setdefault(_key_without_batch(entry.record), []).append(entry)
    curves = (_curve(current(entries)) for entries in found.values())
    return [curve for curve in curves if curve is not None]


def _key_without_batch(record: Record) -> tuple[object, ...]:
    subject, machine, _, *others = group_key(record)
    return subject, machine, *others


def _curve(rows: Sequence[Stored]) -> BatchCurve | None:
    """None where all rows have the same batch."""
    if len({entry.record.batch for entry in rows}) < 2:
        return None
    by_name: dict[str, list[BatchPoint]] = {}
    for entry in sorted(rows, key=lambda entry: entry.record.batch):
        point = BatchPoint(entry, items_per_s(entry.record))
        by_name.setdefault(name_of(entry.record), []).append(point)
    style = styles(entry.record for entry in rows)
    first = rows[0].record
    label = f" ({first.label})" if first.label else ""
    weights = first.checkpoint or f"random weights, seed {first.weight_seed}"
    return BatchCurve(
        title=f"{first.variant.subject}{label}, {rows[0].machine.name}, {counted(first.threads, 'thread')}, {weights}",
        objective=objective_of(rows),
        series=tuple(BatchSeries(name, style[name], tuple(points)) for name, points in by_name.items()),
    )


def headings(curve: BatchCurve) -> tuple[tuple[str, bool], ...]:
    """Each heading of the table, and whether its column is of numbers."""
    limits = (("limits", False),) if curve.objective.limits else ()
    return (*zip(HEADINGS, NUMERIC, strict=True), *limits)


def cells(curve: BatchCurve) -> Iterator[tuple[BatchPoint, list[str]]]:
    """Each point and its row of the table, by variant and batch."""
    for series in curve.series:
        for point in series.points:
            yield point, _cells(series.name, point, curve.objective)


def _cells(name: str, point: BatchPoint, objective: Objective) -> list[str]:
    record, peak = point.record, peak_mib(point.record)
    latency = " ".join(median_and_interval(record.latency)) if record.latency is not None else ""
    memory = f"{peak:.0f}" if peak is not None else ""
    checks = check_limits(record, objective) if record.latency is not None else ()
    limits = [fit_text(checks) if checks else ""] if objective.limits else []
    return [name, str(point.batch), record.status, rate_text(point.items), latency, memory, *limits]


def remarks(curve: BatchCurve) -> list[str]:
    """Where each variant saturates, and which batches it was not measured at, with the reason."""
    said = [_saturation(series) for series in curve.series]
    for series in curve.series:
        failed = [point.record for point in series.points if point.ranked is None]
        said += [f"{series.name} at batch {made.batch}: {_reason(made)}" for made in failed]
    return list(filter(None, said))


def _reason(record: Record) -> str:
    reason = record.measurement.reason
    return f"{record.status}: {reason}" if reason else record.status


def _saturation(series: BatchSeries) -> str:
    point = series.saturates
    if point is None:
        return ""
    rate = f"{rate_text(point.items)} items/s"
    if point.batch == series.largest:
        return f"{series.name} is not saturated: batch {point.batch}, its largest, gives the most, {rate}"
    return f"{series.name} saturates at batch {point.batch}: {rate}"


def figure(curve: BatchCurve) -> Figure:
    """Items a second by batch, a line for each variant that has figures."""
    caption = "items a second with the 95 % interval; ring: saturated from here; hollow: not ok"
    drawn = [series for series in curve.series if any(point.items is not None for point in series.points)]
    styles = {series.name: series.style for series in drawn}
    data = [
        {
            "name": name_text(series.name),
            "batch": point.batch,
            **{key: rounded(value) for key, value in zip(("rate", "low", "high"), point.items, strict=True)},
            "status": point.record.status,
            "fill": filled(series.style, point.record.status),
            "saturated": point is series.saturates and point.batch != series.largest,
        }
        for series in drawn
        for point in series.points
        if point.items is not None
    ]
    batches = sorted({point.batch for series in curve.series for point in series.points})
    x = {
        "field": "batch", "type": "ordinal", "title": "batch", "scale": {"domain": batches},
        "axis": {"labelAngle": 0},
    }  # fmt: skip
    y = {"field": "rate", "type": "quantitative", "title": "items a second", "scale": {"zero": True}}
    look = looks(styles)
    tooltip = [{"field": "name"}, {"field": "batch"}, {"field": "rate"}, {"field": "status"}]
    layers = [
        lines({"x": x, "y": y, **look}),
        intervals(x, y, look),
        points({"x": x, "y": y, **look, "tooltip": tooltip}, size=40),
        {
            "transform": [{"filter": "datum.saturated"}],
            "mark": {"type": "point", "color": INK, "size": 220, "opacity": 1},
            "encoding": {"x": x, "y": y},
        },
    ]
    return Figure("batches", "Batch curve", caption, {"height": 260, "data": {"values": data}, "layer": layers})
