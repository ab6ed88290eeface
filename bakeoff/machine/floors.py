"""Computes the least time of a call: its work divided by the device's peak rate, or its traffic by the bandwidth.

There are two kinds of peak rates. A rate from a datasheet is an upper bound of the device. A measured rate is the best
that this machine reached in plain copies, matrix products and convolutions. Faster code may exist, so a row is rejected
only if it is well below a measured floor. The roofline model is that of Williams, Waterman and Patterson (CACM 52-4,
2009).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from bakeoff.machine.host import Host


@dataclass(frozen=True, slots=True)
class Datasheet:
    """Peak rates of a GPU: bytes a second, and FLOP a second for each dtype.

    `flops` is the highest rate of a dtype for any dtype of accumulation.
    """

    name: str
    """The device's name in NVML, as in the list of supported GPUs in the README of NVIDIA's driver; one with more words
    is another product (a laptop's GPU, an MIG instance)."""
    bytes_per_s: float
    flops: Mapping[str, float]
    source: str


def _tera(fp32: float, tf32: float, bf16: float, fp16: float) -> dict[str, float]:
    rates = {"fp32": fp32, "tf32": tf32, "bf16": bf16, "fp16": fp16}
    return {dtype: rate * 1e12 for dtype, rate in rates.items()}


_HOPPER = _tera(67, 494.7, 989.5, 989.5)
_ADA, _BLACKWELL = (
    f"NVIDIA {name} GPU architecture whitepaper (fp16 with fp16 accumulation)" for name in ("Ada", "RTX Blackwell")
)
_PRO = "NVIDIA RTX Blackwell PRO GPU architecture whitepaper"
_SHEETS = (
    Datasheet(
        "NVIDIA B200", 8e12, _tera(75, 1125, 2250, 2250), "NVIDIA HGX B200 datasheet, per GPU, halved where sparse"
    ),
    Datasheet("NVIDIA H200", 4.8e12, _HOPPER, "NVIDIA H200 Tensor Core GPU datasheet (SXM), halved where sparse"),
    Datasheet("NVIDIA H100 80GB HBM3", 3.35e12, _HOPPER, "NVIDIA H100 Tensor Core GPU datasheet (SXM)"),
    Datasheet(
        "NVIDIA H100 NVL",
        3.938e12,
        _tera(60, 417.5, 835.5, 835.5),
        "NVIDIA H100 NVL product brief and datasheet, halved where sparse",
    ),
    Datasheet(
        "NVIDIA H100 PCIe", 2.039e12, _tera(51.2, 378, 756, 756), "NVIDIA H100 Tensor Core GPU architecture whitepaper"
    ),
    Datasheet("NVIDIA GH200 480GB", 4e12, _HOPPER, "NVIDIA GH200 Grace Hopper Superchip datasheet (96 GB HBM3)"),
    Datasheet("NVIDIA GH200 144G HBM3e", 4.9e12, _HOPPER, "NVIDIA GH200 Grace Hopper Superchip datasheet (HBM3e)"),
    Datasheet("NVIDIA A100-SXM4-80GB", 2.039e12, _tera(19.5, 156, 312, 312), "NVIDIA A100 80GB datasheet (SXM)"),
    Datasheet("NVIDIA A100 80GB PCIe", 1.935e12, _tera(19.5, 156, 312, 312), "NVIDIA A100 80GB datasheet (PCIe)"),
    Datasheet("NVIDIA A100-SXM4-40GB", 1.555e12, _tera(19.5, 156, 312, 312), "NVIDIA A100 40GB datasheet"),
    Datasheet("NVIDIA A100-PCIE-40GB", 1.555e12, _tera(19.5, 156, 312, 312), "NVIDIA A100 40GB datasheet"),
    Datasheet("NVIDIA L40S", 0.864e12, _tera(91.6, 183, 362.05, 362.05), "NVIDIA L40S datasheet"),
    Datasheet("NVIDIA L4", 0.3e12, _tera(30.3, 60, 121, 121), "NVIDIA L4 datasheet, halved where sparse"),
    Datasheet("NVIDIA GeForce RTX 4080", 0.7168e12, _tera(48.7, 48.7, 97.5, 194.9), f"{_ADA}, RTX 4080"),
    Datasheet("NVIDIA GeForce RTX 4090", 1.008e12, _tera(82.6, 82.6, 165.2, 330.3), f"{_ADA}, RTX 4090"),
    Datasheet("NVIDIA GeForce RTX 5080", 0.96e12, _tera(56.3, 56.3, 112.6, 225.1), f"{_BLACKWELL}, RTX 5080"),
    Datasheet("NVIDIA GeForce RTX 5090", 1.792e12, _tera(104.8, 104.8, 209.5, 419.0), f"{_BLACKWELL}, RTX 5090"),
    Datasheet(
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        1.792e12,
        _tera(126, 251.9, 503.8, 503.8),
        f"{_PRO}, table 4",
    ),
    Datasheet(
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        1.792e12,
        _tera(109.7, 219.5, 438.9, 438.9),
        f"{_PRO}, table 4",
    ),
)


def find_datasheet(host: Host, device: str) -> Datasheet | None:
    """Return the datasheet of the host's first GPU; None on a CPU and for a GPU that is not in the table."""
    if device != "cuda" or not host.gpus:
        return None
    name = str(host.gpus[0]["name"])
    return next((sheet for sheet in _SHEETS if sheet.name == name), None)


WORK_DTYPES: Mapping[str, tuple[str, ...]] = {
    "cpu": ("fp32", "bf16", "fp16", "int8"),
    "cuda": ("fp32", "tf32", "bf16", "fp16", "int8"),
}
"""The dtypes whose products can be measured, by device."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A measured peak rate of a device: bytes a second for `copy` and `read`, FLOP a second for the other kinds."""

    kind: Literal["copy", "read", "product", "convolution"]
    dtype: str
    """One of models.types.DTYPES, or `int8` for products of integers, which count as FLOP."""
    size: int
    """Bytes of the working set, or FLOP of one repeat."""
    best: float
    """Rate of the fastest repeat."""
    median: float
    """Rate of the median repeat; one close to `best` means that the best is reproducible."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The least time of a call in milliseconds: the larger of the times for work and for traffic."""

    ms: float
    bound: Literal["compute", "traffic"]
    source: Literal["datasheet", "measured"]
    compute_ms: float
    traffic_ms: float


def find_floors(
    *, flops: int, minimum_bytes: int, dtypes: Sequence[str], device: str, host: Host, ceilings: Sequence[Ceiling]
) -> tuple[Floor, ...]:
    """Return the datasheet's floor if the GPU is known, then the measured one if there are ceilings.

    `flops` and `minimum_bytes` are the work and the least memory traffic of one call. `dtypes` are those in which the
    work may be done, the variant's own first; the floor assumes the highest of their rates. If one of these rates is
    unknown, only the traffic counts; if the first one is unknown, there is no floor.
    """
    found = []
    sheet = find_datasheet(host, device)
    if sheet is not None and dtypes[0] in sheet.flops:
        rates = [sheet.flops.get(dtype, 0.0) for dtype in dtypes]
        found.append(_floor(flops, minimum_bytes, rates, sheet.bytes_per_s, "datasheet"))
    rates = [peak_flops(ceilings, dtype) for dtype in dtypes]
    bandwidth = peak_bandwidth(ceilings, minimum_bytes)
    if rates[0] > 0 and bandwidth > 0 and minimum_bytes > 0:
        found.append(_floor(flops, minimum_bytes, rates, bandwidth, "measured"))
    return tuple(found)


def _floor(
    flops: int,
    traffic_bytes: int,
    rates: Sequence[float],
    bytes_per_s: float,
    source: Literal["datasheet", "measured"],
) -> Floor:
    """Return the floor at the highest of `rates`, in FLOP a second; a rate of 0 is unknown, and only traffic counts
    then."""
    compute_ms = 1e3 * flops / max(rates) if min(rates) > 0 else 0.0
    traffic_ms = 1e3 * traffic_bytes / bytes_per_s
    bound: Literal["compute", "traffic"] = "compute" if compute_ms >= traffic_ms else "traffic"
    return Floor(max(compute_ms, traffic_ms), bound, source, compute_ms, traffic_ms)


def peak_flops(ceilings: Sequence[Ceiling], dtype: str) -> float:
    """Return the highest FLOP a second of all products and convolutions in `dtype`; 0 if none was measured."""
    kinds = ("product", "convolution")
    return max((entry.best for entry in ceilings if entry.kind in kinds and entry.dtype == dtype), default=0.0)


def peak_bandwidth(ceilings: Sequence[Ceiling], traffic_bytes: int) -> float:
    """Return an upper bound of the bandwidth for traffic of this size, in bytes a second; 0 if none was measured.

    It is the highest rate of the working sets that are at least as large as the largest one not above `traffic_bytes`.
    Smaller working sets fit into a faster cache, so their rates are not relevant for this traffic. If all working sets
    are larger, the highest rate of all is returned.
    """
    moves = [entry for entry in ceilings if entry.kind in ("copy", "read")]
    sizes = sorted({entry.size for entry in moves})
    if not sizes:
        return 0.0
    size = max((size for size in sizes if size <= traffic_bytes), default=sizes[0])
    return max(entry.best for entry in moves if entry.size >= size)
