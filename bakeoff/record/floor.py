"""Floors of a record: the least time that its call can take on its machine, and whether its times are below it."""

from bakeoff.machine.floors import Floor, find_floors
from bakeoff.record.schema import Record

LEAST_SHARE = 0.7
"""A median below this share of a measured floor makes a row unstable."""


def floors(record: Record) -> tuple[Floor, ...]:
    """The datasheet's floor if the GPU is known, then the measured one if there are ceilings."""
    return find_floors(
        # Products of integers can be faster than any measured ceiling: a quantised variant has a floor of traffic only.
        flops=0 if record.quantisation else record.flops,
        minimum_bytes=record.minimum_bytes,
        dtype=record.variant.dtype,
        device=record.variant.device,
        host=record.host,
        ceilings=record.ceilings,
    )


def floor(record: Record) -> Floor | None:
    """The floor that tables show: the measured one, which is higher, or else the datasheet's."""
    found = floors(record)
    return found[-1] if found else None


def share(record: Record) -> float | None:
    """Floor divided by median latency; 1 means that the call takes the least possible time."""
    bound = floor(record)
    return bound.ms / record.latency.median_ms if bound is not None and record.latency is not None else None


def below_floor(record: Record) -> str | None:
    """Why a record's times are too short to be correct; None if they are not. The faster clock's median is used."""
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
