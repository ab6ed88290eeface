"""Computes the floors of records, the shortest times that a call can take, and a machine's best known ceilings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
    for bound in floors(record):
        shortest = _shortest_time(bound, record)
        if min(medians) < shortest.ms:
            allowing = ", allowing for fast convolution algorithms" if shortest.fast else ""
            return (
                f"below_floor: {min(medians):.4f} ms a call is less than {shortest.ms:.4f} ms, "
                + ("the" if shortest.share == 1 else f"{shortest.share:g} of the")
                + f" floor by {bound.source} {shortest.bound}{allowing}"
            )
    return None


@dataclass(frozen=True, slots=True)
class _ShortestTime:
    """Least time that a call can take, after all allowances."""

    ms: float
    bound: str
    share: float
    """Factor by which the floor was multiplied."""
    fast: bool
    """Whether the time allows for fast convolution algorithms."""


def _shortest_time(bound: Floor, record: Record) -> _ShortestTime:
    direct = max(0.0, 1 - record.convolution_flops / record.flops) if record.flops else 1.0
    compute_ms = bound.compute_ms * (direct + (1 - direct) * FAST_CONVOLUTION)
    datasheet = bound.source == "datasheet"
    compute, traffic = (CLOCK_SHARE, 1.0) if datasheet else (LEAST_SHARE, LEAST_SHARE)
    if compute * compute_ms >= traffic * bound.traffic_ms:
        return _ShortestTime(compute * compute_ms, "compute", compute, direct < 1)
    return _ShortestTime(traffic * bound.traffic_ms, "traffic", traffic, False)


LARGEST_OTHER_SHARE = 0.1
"""Largest share of all cores that other processes may take during a set of ceilings. Above it, the set counts for the
best rates but not for the spread between sets."""


@dataclass(frozen=True, slots=True)
class KnownCeilings:
    """Known ceilings of one machine and device with one number of threads."""

    best: tuple[Ceiling, ...] = ()
    """For each kind, dtype and size, the ceiling with the highest rate."""
    sets: int = 0
    """Number of sets measured on a quiet host."""
    first: str = ""
    """Time at which the first of these sets was measured; `last` is that of the last one."""
    last: str = ""
    apart: Mapping[str, float] = field(default_factory=dict)
    """For each kind, the largest ratio between two of the sets, over dtypes and sizes; empty with fewer than two
    sets."""


def best_ceilings(
    records: Iterable[Stored], measured: Iterable[StoredCeilings], machine: Machine, threads: int
) -> KnownCeilings:
    """Return a machine's best known ceilings with this number of threads, from sets of ceilings and from records.

    Each record states the ceilings that were the best known when it was made.
    """
    every: list[tuple[Ceiling, ...]] = []
    sets: dict[tuple[Ceiling, ...], str] = {}
    for entry in sorted(measured, key=lambda entry: entry.record.created):
        found = entry.record
        if same_machine(found.machine, machine) and found.threads == threads:
            every.append(found.ceilings)
            if found.other_cpu_share <= LARGEST_OTHER_SHARE:
                sets.setdefault(found.ceilings, found.created)
    for stored in sorted(records, key=lambda stored: stored.record.created):
        record = stored.record
        if record.ceilings and record.threads == threads and same_machine(record.machine, machine):
            every.append(record.ceilings)
    dates = sorted(sets.values())
    return KnownCeilings(
        best=_best(every),
        sets=len(sets),
        first=dates[0] if dates else "",
        last=dates[-1] if dates else "",
        apart=_apart(list(sets)),
    )


def _best(sets: Sequence[Sequence[Ceiling]]) -> tuple[Ceiling, ...]:
    found: dict[tuple[str, str, int], Ceiling] = {}
    for entry in (entry for each in dict.fromkeys(map(tuple, sets)) for entry in each):
        key = (entry.kind, entry.dtype, entry.size)
        if key not in found or entry.best > found[key].best:
            found[key] = entry
    return tuple(found.values())


def _apart(sets: Sequence[Sequence[Ceiling]]) -> dict[str, float]:
    rates: dict[tuple[str, str, int], list[float]] = {}
    for entry in (entry for each in sets for entry in each if entry.best > 0):
        rates.setdefault((entry.kind, entry.dtype, entry.size), []).append(entry.best)
    apart: dict[str, float] = {}
    for (kind, _, _), found in rates.items():
        if len(found) > 1:
            apart[kind] = max(apart.get(kind, 1.0), max(found) / min(found))
    return apart
