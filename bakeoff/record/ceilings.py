"""The best known ceilings of a machine, from all sets that were measured on it.

A set can be too low, because the host was slow or busy meanwhile, but not too high: the best rate of each kind, dtype
and size over all sets is the closest to what the machine can do.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bakeoff.machine.floors import Ceiling
from bakeoff.record.store import Stored, StoredCeilings

LARGEST_OTHER_SHARE = 0.1
"""Share of all cores; where other processes took more, a set counts for its best rates but not for the spread."""


@dataclass(frozen=True, slots=True)
class KnownCeilings:
    """What is known about the ceilings of one machine and device with one number of threads."""

    best: tuple[Ceiling, ...] = ()
    """For each kind, dtype and size the entry with the highest rate."""
    sets: int = 0
    """How many sets were measured on a quiet host."""
    first: str = ""
    """When the first of these sets was measured."""
    last: str = ""
    apart: Mapping[str, float] = field(default_factory=dict)
    """For each kind the largest ratio between two of the sets, over dtypes and sizes; none with fewer than two."""


def best_ceilings(
    records: Iterable[Stored], measured: Iterable[StoredCeilings], machine_id: str, threads: int
) -> KnownCeilings:
    """The best known ceilings of a machine from entries of their own, and from records, which hold the best known of
    their time."""
    every: list[tuple[Ceiling, ...]] = []
    sets: dict[tuple[Ceiling, ...], str] = {}
    for entry in sorted(measured, key=lambda entry: entry.ceilings.created):
        found = entry.ceilings
        if (found.machine.id, found.threads) == (machine_id, threads):
            every.append(found.ceilings)
            if found.other_cpu_share <= LARGEST_OTHER_SHARE:
                sets.setdefault(found.ceilings, found.created)
    for stored in sorted(records, key=lambda stored: stored.record.created):
        record = stored.record
        if record.ceilings and record.threads == threads and stored.machine.id == machine_id:
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
