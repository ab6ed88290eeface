"""Computes the floors of records, the shortest times that a call can take, and a machine's best known ceilings."""

from collections.abc import Iterable, Mapping, Sequence

from bakeoff.machine.floors import Ceiling, Floor, find_floors
from bakeoff.machine.identity import Machine, same_machine
from bakeoff.models.component import Quantisation
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, StoredCeilings

LEAST_SHARE = 0.7
"""A median below this share of a measured floor makes a row unstable."""
FAST_CONVOLUTION = 1 / 4
"""Smallest share of a convolution's multiplications that fast algorithms need: Winograd's F(4x4, 3x3) takes 36 instead
of 144, F(2x2, 3x3) 16 instead of 36 (Lavin and Gray, CVPR 2016); Fourier transforms save most with large kernels
(Vasilache and others, ICLR 2015). Libraries choose such algorithms, but the stated FLOPs are those of the direct
one."""
CLOCK_SHARE = 0.9
"""Factor on a datasheet's floor by compute. Datasheets state FLOP a second at the boost clock, which is not the highest
clock: an H100 SXM has its 989 TFLOP/s in bf16 at 1830 MHz, and runs at up to 1980 MHz. Memory clocks do not rise, so a
floor by traffic has no such factor."""
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
    """Return the dtypes in which a variant of this dtype may multiply, its own first."""
    return (dtype, *_PRODUCTS[quantisation])


def floors(record: Record, ceilings: Sequence[Ceiling] | None = None) -> tuple[Floor, ...]:
    """Return the datasheet's floor if the GPU is known, then the measured one if there are ceilings.

    `ceilings` are the best known ones of the record's machine; the default is those that decided the record's status.
    Engines built for another machine have no floor on this one.
    """
    if record.status == "built":
        return ()
    return find_floors(
        flops=record.flops,
        minimum_bytes=record.minimum_bytes,
        dtypes=work_dtypes(record.variant.dtype, record.quantisation),
        device=record.variant.device,
        host=record.host,
        ceilings=record.ceilings if ceilings is None else ceilings,
    )


def floor(record: Record, ceilings: Sequence[Ceiling] | None = None) -> Floor | None:
    """Return the floor that tables show: the measured one, which is higher, or else the datasheet's."""
    found = floors(record, ceilings)
    return found[-1] if found else None


def share(record: Record, ceilings: Sequence[Ceiling] | None = None) -> float | None:
    """Return the floor divided by the median latency; None if either is unknown.

    Above 1 the call is faster than the floor, which is therefore wrong.
    """
    bound = floor(record, ceilings)
    if bound is None or record.latency is None or record.latency.median_ms <= 0:
        return None
    return bound.ms / record.latency.median_ms


def is_above(record: Record, ceilings: Sequence[Ceiling] | None = None) -> bool:
    """Return whether a row with right outputs is faster than its floor, so that the ceilings are too low for it."""
    return record.status in ("ok", "unstable") and (share(record, ceilings) or 0.0) > 1


def below_floor(record: Record, *also_ms: float) -> str | None:
    """Return why a record's times are too short to be correct; None if they are not. Uses the shortest of its clocks'
    medians and of `also_ms`.

    The record's own ceilings decide: a status does not change when other ceilings become known. A floor by compute
    allows for fast convolution algorithms and, from a datasheet, for a clock above the stated one.
    """
    clocks = (record.latency, record.throughput)
    medians = [*also_ms, *(figures.median_ms for figures in clocks if figures is not None)]
    if not medians:
        return None
    direct = max(0.0, 1 - record.convolution_flops / record.flops) if record.flops else 1.0
    for bound in floors(record):
        compute, traffic = (CLOCK_SHARE, 1.0) if bound.source == "datasheet" else (LEAST_SHARE, LEAST_SHARE)
        fast_ms = bound.compute_ms * (direct + (1 - direct) * FAST_CONVOLUTION)
        computes = compute * fast_ms >= traffic * bound.traffic_ms
        share_, least_ms = (compute, compute * fast_ms) if computes else (traffic, traffic * bound.traffic_ms)
        if min(medians) < least_ms:
            allowing = ", allowing for fast convolution algorithms" if computes and direct < 1 else ""
            return (
                f"below_floor: {min(medians):.4f} ms a call is less than {least_ms:.4f} ms, "
                + ("the" if share_ == 1 else f"{share_:g} of the")
                + f" floor by {bound.source} {'compute' if computes else 'traffic'}{allowing}"
            )
    return None


LARGEST_OTHER_SHARE = 0.1
"""Largest share of all cores that other processes may take during a set of ceilings. Above it, the set counts for the
best rates, and another one is measured."""


def best_ceilings(
    records: Iterable[Stored], measured: Iterable[StoredCeilings], machine: Machine, threads: int
) -> tuple[Ceiling, ...]:
    """Return a machine's best known ceilings with this number of threads, from sets of ceilings and from records: for
    each kind, dtype and size the one with the highest rate.

    Each record states the ceilings that were the best known when it was made.
    """
    found: dict[tuple[str, str, int], Ceiling] = {}
    sets: list[Stored | StoredCeilings] = [*measured, *records]
    for stored in sets:
        if stored.record.threads == threads and same_machine(stored.record.machine, machine):
            for entry in stored.record.ceilings:
                key = (entry.kind, entry.dtype, entry.size)
                if key not in found or entry.best > found[key].best:
                    found[key] = entry
    return tuple(found.values())
