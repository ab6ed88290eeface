"""Floors of a record: the least time that its call can take on its machine, and whether its times are below it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bakeoff.machine.floors import Ceiling, Floor, find_floors
from bakeoff.models.component import Quantisation
from bakeoff.record.schema import Record

LEAST_SHARE = 0.7
"""A median below this share of a measured floor makes a row unstable."""
FAST_CONVOLUTION = 1 / 4
"""Share of a convolution's multiplications that fast algorithms take at least: Winograd's F(4x4, 3x3) takes 36 instead
of 144, F(2x2, 3x3) 16 instead of 36 (Lavin and Gray, CVPR 2016); Fourier transforms save most with large kernels
(Vasilache and others, ICLR 2015). Libraries choose such algorithms, and FLOPs are those of the direct one."""
CLOCK_SHARE = 0.9
"""A datasheet states FLOP a second at the boost clock, which is not the highest: an H100 SXM has its 989 TFLOP/s in
bf16 at 1830 MHz, and runs at up to 1980 MHz. Memory clocks do not rise, so a floor by traffic is strict."""
_PRODUCTS: Mapping[Quantisation, tuple[str, ...]] = {
    "": (),
    "dynamic": ("int8",),
    "static": ("int8",),
    "fp8": ("fp8",),
    "mxfp8": ("fp8",),
    "nvfp4": ("unknown",),
    "weight-only": ("unknown",),
}
"""The dtypes besides its own in which a class of quantised variants multiplies. `fp8` is not measured, products of
`nvfp4` have no known peak, and the dtype in which weight-only kernels multiply is their own choice: such rows have a
floor of traffic only."""


def work_dtypes(dtype: str, quantisation: Quantisation) -> tuple[str, ...]:
    """The dtypes in which a variant of this dtype may multiply, its own first."""
    return (dtype, *_PRODUCTS[quantisation])


def floors(record: Record, ceilings: Sequence[Ceiling] | None = None) -> tuple[Floor, ...]:
    """The datasheet's floor if the GPU is known, then the measured one if there are ceilings.

    `ceilings` are the best known of the record's machine; by default those that its status was decided with.
    """
    return find_floors(
        flops=record.flops,
        minimum_bytes=record.minimum_bytes,
        dtypes=work_dtypes(record.variant.dtype, record.quantisation),
        device=record.variant.device,
        host=record.host,
        ceilings=record.ceilings if ceilings is None else ceilings,
    )


def floor(record: Record, ceilings: Sequence[Ceiling] | None = None) -> Floor | None:
    """The floor that tables show: the measured one, which is higher, or else the datasheet's."""
    found = floors(record, ceilings)
    return found[-1] if found else None


def share(record: Record, ceilings: Sequence[Ceiling] | None = None) -> float | None:
    """Floor divided by median latency; above 1 the call is faster than the floor, which is none then."""
    bound = floor(record, ceilings)
    if bound is None or record.latency is None or record.latency.median_ms <= 0:
        return None
    return bound.ms / record.latency.median_ms


def is_above(record: Record, ceilings: Sequence[Ceiling] | None = None) -> bool:
    """Whether a row that is ok is above 100 % of its floor: the ceilings are too low for it."""
    return record.status == "ok" and (share(record, ceilings) or 0.0) > 1


def below_floor(record: Record) -> str | None:
    """Why a record's times are too short to be correct; None if they are not. The faster clock's median is used.

    The record's own ceilings decide: a status does not change when other ceilings become known. A floor by compute
    allows for fast convolution algorithms and, from a datasheet, for a clock above the stated one.
    """
    medians = [figures.median_ms for figures in (record.latency, record.throughput) if figures is not None]
    if not medians:
        return None
    for bound in floors(record):
        least = _least(bound, record)
        if min(medians) < least.ms:
            allowing = ", allowing for fast convolution algorithms" if least.fast else ""
            return (
                f"below_floor: {min(medians):.4f} ms a call is less than {least.ms:.4f} ms, "
                + ("the" if least.share == 1 else f"{least.share:g} of the")
                + f" floor by {bound.source} {least.bound}{allowing}"
            )
    return None


@dataclass(frozen=True, slots=True)
class _Least:
    """The time that a call certainly takes."""

    ms: float
    bound: str
    share: float
    """Of the floor."""
    fast: bool
    """The floor is that of fast convolution algorithms."""


def _least(bound: Floor, record: Record) -> _Least:
    direct = max(0.0, 1 - record.convolution_flops / record.flops) if record.flops else 1.0
    compute_ms = bound.compute_ms * (direct + (1 - direct) * FAST_CONVOLUTION)
    datasheet = bound.source == "datasheet"
    compute, traffic = (CLOCK_SHARE, 1.0) if datasheet else (LEAST_SHARE, LEAST_SHARE)
    if compute * compute_ms >= traffic * bound.traffic_ms:
        return _Least(compute * compute_ms, "compute", compute, direct < 1)
    return _Least(traffic * bound.traffic_ms, "traffic", traffic, False)
