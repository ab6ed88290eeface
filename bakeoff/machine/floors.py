"""The least time a call can take: its work over the device's peak rate, or its traffic over the bandwidth.

There are two kinds of peak. A datasheet's is an upper bound of the device. A measured one is the best that this machine
reached with plain copies, products and convolutions; faster code may exist, so only a figure well below it is rejected.
The roofline model is that of Williams, Waterman and Patterson (CACM 52-4, 2009).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bakeoff.machine.datasheets import find_datasheet
from bakeoff.machine.host import Host


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The best a device did of plain work: bytes a second for `copy` and `read`, FLOP a second for the others."""

    kind: Literal["copy", "read", "product", "convolution"]
    dtype: str
    size: int
    """Bytes of the working set, or FLOP of one repeat."""
    best: float
    """Per second, of the fastest repeat."""
    median: float
    """Per second, of the median repeat: how far the best can be trusted."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Milliseconds a call; the larger of what work and traffic need."""

    ms: float
    bound: Literal["compute", "traffic"]
    source: Literal["datasheet", "measured"]
    compute_ms: float
    traffic_ms: float


def find_floors(
    *, flops: int, minimum_bytes: int, dtype: str, device: str, host: Host, ceilings: Sequence[Ceiling]
) -> tuple[Floor, ...]:
    """The datasheet's floor where the GPU is known, then the measured one where there are ceilings.

    `flops` and `minimum_bytes` are the work and the compulsory traffic of one call.
    """
    found = []
    sheet = find_datasheet(host, device)
    if sheet is not None and dtype in sheet.flops:
        found.append(_floor(flops, minimum_bytes, sheet.flops[dtype], sheet.bytes_per_s, "datasheet"))
    best_flops = peak_flops(ceilings, dtype)
    bandwidth = peak_bandwidth(ceilings, minimum_bytes)
    if best_flops and bandwidth and minimum_bytes:
        found.append(_floor(flops, minimum_bytes, best_flops, bandwidth, "measured"))
    return tuple(found)


def _floor(
    flops: int, traffic_bytes: int, flops_per_s: float, bytes_per_s: float, source: Literal["datasheet", "measured"]
) -> Floor:
    compute_ms = 1e3 * flops / flops_per_s
    traffic_ms = 1e3 * traffic_bytes / bytes_per_s
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
