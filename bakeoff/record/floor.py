"""Floors of a record: the least time that its call can take on its machine, and whether its times are below it."""

from collections.abc import Mapping, Sequence

from bakeoff.machine.floors import Ceiling, Floor, find_floors
from bakeoff.models.component import Quantisation
from bakeoff.record.schema import Record

LEAST_SHARE = 0.7
"""A median below this share of a measured floor makes a row unstable."""
_PRODUCTS: Mapping[Quantisation, tuple[str, ...]] = {
    "": (),
    "dynamic": ("int8",),
    "static": ("int8",),
    "fp8": ("fp8",),
    "weight-only": ("unknown",),
}
"""The dtypes besides its own in which a class of quantised variants multiplies. `fp8` is not measured, and the dtype in
which weight-only kernels multiply is their own choice: such rows have a floor of traffic only."""


def floors(record: Record, ceilings: Sequence[Ceiling] | None = None) -> tuple[Floor, ...]:
    """The datasheet's floor if the GPU is known, then the measured one if there are ceilings.

    `ceilings` are the best known of the record's machine; by default those that its status was decided with.
    """
    return find_floors(
        flops=record.flops,
        minimum_bytes=record.minimum_bytes,
        dtypes=(record.variant.dtype, *_PRODUCTS[record.quantisation]),
        device=record.variant.device,
        host=record.host,
        ceilings=record.ceilings if ceilings is None else ceilings,
    )


def floor(record: Record, ceilings: Sequence[Ceiling] | None = None) -> Floor | None:
    """The floor that tables show: the measured one, which is higher, or else the datasheet's."""
    found = floors(record, ceilings)
    return found[-1] if found else None


def share(record: Record, ceilings: Sequence[Ceiling] | None = None) -> float | None:
    """Floor divided by median latency; 1 means that the call takes the least possible time."""
    bound = floor(record, ceilings)
    if bound is None or record.latency is None or record.latency.median_ms <= 0:
        return None
    return bound.ms / record.latency.median_ms


def below_floor(record: Record) -> str | None:
    """Why a record's times are too short to be correct; None if they are not. The faster clock's median is used.

    The record's own ceilings decide: a status does not change when other ceilings become known.
    """
    medians = [figures.median_ms for figures in (record.latency, record.throughput) if figures is not None]
    if not medians:
        return None
    for bound in floors(record):
        least_ms = bound.ms if bound.source == "datasheet" else LEAST_SHARE * bound.ms
        if min(medians) < least_ms:
            return (
                f"below_floor: {min(medians):.4f} ms a call is less than {least_ms:.4f} ms, "
                + ("the" if bound.source == "datasheet" else f"{LEAST_SHARE:g} of the")
                + f" floor by {bound.source} {bound.bound}"
            )
    return None
