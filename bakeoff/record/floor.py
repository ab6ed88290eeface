"""The time below which a call cannot be: its work over the peak of the device, or its traffic over the bandwidth.

Two kinds of peak. A datasheet's is what the device can do at all. A measured one is the best that this very machine did
of plain copies, products and convolutions; nothing promises that it cannot be done better, so only a figure well below
it is disbelieved. The roofline model is that of Williams, Waterman and Patterson (CACM 52-4, 2009).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bakeoff.machine.datasheets import find_datasheet
from bakeoff.record.schema import Ceiling, Record

DISBELIEVED = 0.7
"""A figure below this share of a measured floor is not ranked."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Milliseconds a call; the larger of what work and traffic need."""

    ms: float
    bound: Literal["compute", "traffic"]
    source: Literal["datasheet", "measured"]
    compute_ms: float
    traffic_ms: float


def floors(record: Record) -> tuple[Floor, ...]:
    """The datasheet's floor where the GPU is known, then the measured one where there are ceilings."""
    found = []
    sheet = find_datasheet(record.host, record.variant.device)
    if sheet is not None and record.variant.dtype in sheet.flops:
        found.append(_floor(record, sheet.flops[record.variant.dtype], sheet.bytes_per_s, "datasheet"))
    flops = peak_flops(record.ceilings, record.variant.dtype)
    bandwidth = peak_bandwidth(record.ceilings, record.minimum_bytes)
    if flops and bandwidth and record.minimum_bytes:
        found.append(_floor(record, flops, bandwidth, "measured"))
    return tuple(found)


def _floor(record: Record, flops: float, bandwidth: float, source: Literal["datasheet", "measured"]) -> Floor:
    # Integer products may be faster than any ceiling that was measured: a quantised variant is held to traffic alone.
    compute_ms = 0.0 if record.quantisation else 1e3 * record.flops / flops
    traffic_ms = 1e3 * record.minimum_bytes / bandwidth
    bound: Literal["compute", "traffic"] = "compute" if compute_ms >= traffic_ms else "traffic"
    return Floor(max(compute_ms, traffic_ms), bound, source, compute_ms, traffic_ms)


def peak_flops(ceilings: Sequence[Ceiling], dtype: str) -> float:
    """FLOP a second, the best of all products and convolutions in `dtype`; 0 where none was measured."""
    kinds = ("product", "convolution")
    return max((entry.best for entry in ceilings if entry.kind in kinds and entry.dtype == dtype), default=0.0)


def peak_bandwidth(ceilings: Sequence[Ceiling], traffic_bytes: int) -> float:
    """Bytes a second that traffic of this size can have at best: that of the largest working set not larger than it.

    A smaller working set fits a nearer cache, so its rate bounds that of a larger one from above; traffic smaller than
    all that was measured has the best rate there is. 0 where nothing was measured.
    """
    moves = [entry for entry in ceilings if entry.kind in ("copy", "read")]
    sizes = sorted({entry.size for entry in moves})
    if not sizes:
        return 0.0
    size = max((size for size in sizes if size <= traffic_bytes), default=sizes[0])
    return max(entry.best for entry in moves if entry.size >= size)


def floor(record: Record) -> Floor | None:
    """The floor that tables show: the measured one, which is nearer to what can be had, else the datasheet's."""
    found = floors(record)
    return found[-1] if found else None


def share(record: Record) -> float | None:
    """The floor over the median of the latency clock: 1 means that nothing is left to gain."""
    bound = floor(record)
    return bound.ms / record.latency.median_ms if bound is not None and record.latency is not None else None


def below_floor(record: Record) -> str:
    """Why a record's figures cannot be believed, or ""; the lower of its two clocks' medians decides."""
    medians = [figures.median_ms for figures in (record.latency, record.throughput) if figures is not None]
    if not medians:
        return ""
    for bound in floors(record):
        least_ms = bound.ms if bound.source == "datasheet" else DISBELIEVED * bound.ms
        if min(medians) < least_ms:
            return (
                f"below_floor: {min(medians):.4f} ms a call is less than {least_ms:.4f} ms, "
                + ("the" if bound.source == "datasheet" else f"{DISBELIEVED:g} of the")
                + f" floor by {bound.source} {bound.bound}"
            )
    return ""
