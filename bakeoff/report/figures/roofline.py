"""The roofline: FLOP/s of each variant by arithmetic intensity, with the device's limits as roofs.

After Williams, Waterman and Patterson (CACM 52-4, 2009).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from bakeoff.machine.floors import Ceiling, find_datasheet, peak_bandwidth, peak_flops
from bakeoff.models.types import DTYPES
from bakeoff.models.words import si
from bakeoff.record.floor import share, work_dtypes
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored
from bakeoff.report.figures.vega import (
    INK,
    Figure,
    dtype_dashes,
    layer,
    looks,
    name_text,
    points,
    quantity,
    rounded,
    scaled,
    styles,
    tooltip,
)
from bakeoff.report.groups import name_of

_MARGIN = 4
"""Factor by which the roofs extend beyond the outermost point or ridge."""
_MOST: Final = 10**24
"""Upper bound of FLOPs or bytes, of a call or per second, that are drawn; a record may state any number."""


@dataclass(frozen=True, slots=True)
class Roof:
    """The peak rates of a device in one dtype."""

    dtype: str
    flops: float
    """Peak FLOP/s."""
    bytes_per_s: float

    @property
    def name(self) -> str:
        return f"{self.dtype} roof: {si(self.flops)}FLOP/s, {si(self.bytes_per_s)}B/s"

    @property
    def ridge(self) -> float:
        """FLOP per byte beyond which compute is the limit, not memory traffic."""
        return self.flops / self.bytes_per_s

    def at(self, intensity: float) -> float:
        """Return the FLOP/s that the device can reach at most with this many FLOP per byte."""
        return min(self.flops, intensity * self.bytes_per_s)


Point = dict[str, Any]
"""One row of a table as the figure draws it: `name`, `status`, FLOP a byte of the least traffic (`intensity`), FLOP/s
(`rate`), the `dtypes` of its multiplications, and whether it is faster than its own floor or every roof (`above`):
the ceilings are too low for it, or it skipped work."""


def figure(rows: Sequence[Stored], ceilings: Sequence[Ceiling] | None = None) -> Figure | None:
    """Draw roofs as lines and rows as points, on logarithmic axes; None as for `roofline`."""
    found = roofline(rows, ceilings)
    if found is None:
        return None
    roofs, points_ = found
    used = {dtype for point in points_ for dtype in point["dtypes"]}
    roofs = [roof for roof in roofs if roof.dtype in used] or roofs
    above = [point for point in points_ if point["above"]]
    places = [*(roof.ridge for roof in roofs), *(point["intensity"] for point in points_)]
    low, high = min(places) / _MARGIN, max(places) * _MARGIN
    skipped = "" if all(point["status"] == "ok" for point in above) else ", or work was skipped (hollow)"
    rings = f"; ring: above its roof: the ceilings are too low{skipped}" if above else ""
    caption = "FLOPs over least traffic, against FLOPs over the median; B/s of a roof: at such traffic; hollow: not ok"
    caption += rings
    style = styles(entry.record for entry in rows)
    scale = {"type": "log", "domain": [rounded(low), rounded(high)], "nice": False}
    axes = {
        "x": quantity("intensity", "FLOP a byte", axis={"format": "~s"}, scale=scale),
        "y": quantity("rate", "FLOP/s", axis={"format": "~s", "tickCount": 6}, scale={"type": "log"}),
    }
    lines = [
        {"roof": roof.name, "intensity": rounded(place), "rate": rounded(roof.at(place))}
        for roof in roofs
        for place in (low, roof.ridge, high)
    ]
    dashes = {roof.name: list(dtype_dashes(roof.dtype)) or [1, 0] for roof in roofs}
    by_roof = {**scaled("roof", dashes), "legend": {"orient": "top", "columns": 2, "symbolSize": 900}}
    drawn = [
        {
            "name": name_text(point["name"]),
            "intensity": rounded(point["intensity"]),
            "rate": rounded(point["rate"]),
            "fill": int(point["status"] == "ok"),
            "above": point["above"],
        }
        for point in points_
    ]
    told = [*tooltip("name", "intensity"), {"field": "rate", "format": ".3s"}]
    look = looks({point["name"]: style[point["name"]] for point in points_})
    layers = [
        layer(lines, "line", {**axes, "strokeDash": by_roof}, color=INK, strokeWidth=1.3),
        {"data": {"values": drawn}, **points({**axes, **look, "tooltip": told}, size=70)},
    ]
    rows_above = [row for row in drawn if row["above"]]
    ring = layer(rows_above, "point", axes, color=INK, size=320, strokeWidth=1.2, opacity=1)
    independent = dict.fromkeys(("stroke", "strokeDash", "shape", "fill"), "independent")
    spec = {
        "height": 300,
        "layer": [*layers, *([ring] if above else [])],
        "resolve": {"scale": independent, "legend": independent},
    }
    return Figure("roofline", "Roofline", caption, spec)


def roofline(
    rows: Sequence[Stored], ceilings: Sequence[Ceiling] | None = None
) -> tuple[list[Roof], list[Point]] | None:
    """Return the roofs of a device, and the rows with figures, FLOPs and traffic as points; None if there is no roof or
    no such row.

    Roofs come from `ceilings`, by default those of the newest record that has any, else from the GPU's datasheet.
    """
    records = sorted((entry.record for entry in rows), key=lambda record: record.created, reverse=True)
    measured = ceilings or next((record.ceilings for record in records if record.ceilings), ())
    roofs = _roofs(records, measured)
    found = [
        _point(entry.record, entry.record.latency.median_ms, roofs, measured)
        for entry in rows
        if entry.record.latency and entry.record.latency.median_ms > 0 and _is_stated(entry.record)
    ]
    found.sort(key=lambda point: (point["status"] != "ok", -point["rate"]))
    return (roofs, found) if roofs and found else None


def _point(record: Record, median_ms: float, roofs: Sequence[Roof], measured: Sequence[Ceiling]) -> Point:
    intensity, rate = record.flops / record.minimum_bytes, record.flops * 1e3 / median_ms
    over_all = all(rate > roof.at(intensity) for roof in roofs)
    return {
        "name": name_of(record),
        "status": record.status,
        "intensity": intensity,
        "rate": rate,
        "dtypes": work_dtypes(record.variant.dtype, record.quantisation),
        "above": over_all or (share(record, measured) or 0.0) > 1,
    }


def _is_stated(record: Record) -> bool:
    """Return whether the record states FLOPs and traffic, and both are plausible."""
    return 0 < record.flops < _MOST and 0 < record.minimum_bytes < _MOST


def _roofs(records: Sequence[Record], measured: Sequence[Ceiling]) -> list[Roof]:
    """Return the roof of each dtype (int8 if a row multiplies integers): as measured, else from the GPU's datasheet."""
    integers = any("int8" in work_dtypes(record.variant.dtype, record.quantisation) for record in records)
    dtypes = (*DTYPES, *(["int8"] if integers else []))
    if measured:
        pairs = [(dtype, peak_flops(measured, dtype)) for dtype in dtypes]
        found = [Roof(dtype, peak, peak_bandwidth(measured, _traffic(records, dtype))) for dtype, peak in pairs if peak]
        return [roof for roof in found if 0 < roof.flops < _MOST and 0 < roof.bytes_per_s < _MOST]
    datasheet = find_datasheet(records[0].host, records[0].variant.device)
    if datasheet is None:
        return []
    return [Roof(dtype, datasheet.flops[dtype], datasheet.bytes_per_s) for dtype in dtypes if dtype in datasheet.flops]


def _traffic(records: Sequence[Record], dtype: str) -> int:
    """Return the most bytes of a call in `dtype`, else of any call: they decide which cache level bounds the roof."""
    stated = [record for record in records if _is_stated(record)]
    own = [record for record in stated if dtype in work_dtypes(record.variant.dtype, record.quantisation)]
    if any(record.variant.dtype == dtype for record in own):
        own = [record for record in own if record.variant.dtype == dtype]
    return max((record.minimum_bytes for record in own or stated), default=0)
