"""Data and figure of batch curves: items per second of each variant by the size of the batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bakeoff.record.comparable import subject_key
from bakeoff.record.finalists import objective_of
from bakeoff.record.objective import Objective
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored
from bakeoff.report.figures.vega import (
    INK,
    Figure,
    Style,
    filled,
    intervals,
    lines,
    looks,
    name_text,
    points,
    rounded,
    styles,
)
from bakeoff.report.groups import current, name_of, title
from bakeoff.report.wording import items_per_s

Rate = tuple[float, float, float]
"""Items per second, and the ends of the 95 % interval."""


@dataclass(frozen=True, slots=True)
class BatchSeries:
    """The records of one variant, the smallest batch first."""

    name: str
    style: Style
    points: tuple[Stored, ...]

    @property
    def saturates(self) -> Stored | None:
        """The smallest batch whose interval overlaps that of the best batch; None without two batches that are ok."""
        rates = [(entry, rate) for entry in self.points if (rate := ranked(entry.record)) is not None]
        if len(rates) < 2:
            return None
        least = max((rate for _, rate in rates), key=lambda rate: rate[0])[1]
        return next(entry for entry, rate in rates if rate[2] >= least)

    @property
    def largest(self) -> int:
        """The largest batch that is ok; 0 if none is."""
        return max((entry.record.batch for entry in self.points if ranked(entry.record) is not None), default=0)


@dataclass(frozen=True, slots=True)
class BatchCurve:
    """The variants of one subject on one machine; the rows differ in the batch, and not in other settings."""

    title: str
    objective: Objective
    series: tuple[BatchSeries, ...]


def ranked(record: Record) -> Rate | None:
    """Return the items per second of a row with their interval; None if the row is not ok or has no samples."""
    return items_per_s(record) if record.status == "ok" else None


def batch_curves(rows: Iterable[Stored]) -> list[BatchCurve]:
    """Return a curve for each group of rows that differ in the batch and have the same code and libraries.

    `rows` must contain one record for each variant and batch.
    """
    found: dict[tuple[object, ...], list[Stored]] = {}
    for entry in rows:
        if entry.record.status != "built":
            found.setdefault(_key_without_batch(entry.record), []).append(entry)
    curves = (_curve(current(entries)) for entries in found.values())
    return [curve for curve in curves if curve is not None]


def _key_without_batch(record: Record) -> tuple[object, ...]:
    subject, machine, _, *others = subject_key(record)
    return subject, machine, *others


def _curve(rows: Sequence[Stored]) -> BatchCurve | None:
    """Return the curve of these rows; None if all have the same batch."""
    if len({entry.record.batch for entry in rows}) < 2:
        return None
    by_name: dict[str, list[Stored]] = {}
    for entry in sorted(rows, key=lambda entry: entry.record.batch):
        by_name.setdefault(name_of(entry.record), []).append(entry)
    style = styles(entry.record for entry in rows)
    return BatchCurve(
        title=title(rows[0].record, batch=False),
        objective=objective_of(rows),
        series=tuple(BatchSeries(name, style[name], tuple(points)) for name, points in by_name.items()),
    )


def figure(curve: BatchCurve) -> Figure:
    """Draw items per second by batch, with a line for each variant that has figures."""
    caption = "items a second with the 95 % interval; ring: saturated from here; hollow: not ok"
    drawn = [
        (series, entry.record, rate)
        for series in curve.series
        for entry in series.points
        if (rate := items_per_s(entry.record)) is not None
    ]
    data = [
        {
            "name": name_text(series.name),
            "batch": record.batch,
            **{key: rounded(value) for key, value in zip(("rate", "low", "high"), rate, strict=True)},
            "status": record.status,
            "fill": filled(series.style, record.status),
            "saturated": series.saturates is not None
            and record is series.saturates.record
            and record.batch != series.largest,
        }
        for series, record, rate in drawn
    ]
    batches = sorted({entry.record.batch for series in curve.series for entry in series.points})
    x = {
        "field": "batch", "type": "ordinal", "title": "batch", "scale": {"domain": batches},
        "axis": {"labelAngle": 0},
    }  # fmt: skip
    y = {"field": "rate", "type": "quantitative", "title": "items a second", "scale": {"zero": True}}
    look = looks({series.name: series.style for series, _, _ in drawn})
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
