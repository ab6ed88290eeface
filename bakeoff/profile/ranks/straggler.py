"""Which rank the others wait for, and by which phase.

Ranks that meet in a collective wait there for the last one, so all take the same time a unit and the one that waits
least is the slow one. Where nothing is collective, it is the one whose phases take longest. It is compared with the
median of the other ranks: a median that it is part of would hide half of what it costs two ranks.
"""

from collections.abc import Mapping
from statistics import median

from bakeoff.profile.ranks.parts import Parts
from bakeoff.record.ranks import CollectiveWait, FoundBy, RankValue, Straggler

DEADBAND = 0.05
"""Share of a unit; below it ranks count as equally fast."""
CAUSE = 0.80
"""Share of a rank's excess that one phase must explain to be named."""


def waits_of(parts: Mapping[int, Parts]) -> tuple[CollectiveWait, ...]:
    """By collective, each rank's time in it less the least time of any rank in it; the longest waits first.

    Only collectives that at least two ranks have. Times are those of all calls together, so that ranks which are slow
    in turns, one in even units and one in odd ones, show no wait.
    """
    found = []
    for name in dict.fromkeys(name for each in parts.values() for name in each.collectives):
        times = {rank: each.collectives[name] for rank, each in parts.items() if name in each.collectives}
        if len(times) > 1:
            least = min(times.values())
            waits = tuple(RankValue(rank, ns - least) for rank, ns in sorted(times.items()))
            found.append(CollectiveWait(name, least, waits))
    return tuple(sorted(found, key=lambda one: -max(wait.ns for wait in one.waits)))


def total_waits(waits: tuple[CollectiveWait, ...]) -> dict[int, float]:
    """By rank, its waits in all collectives; ranks that are in none are absent."""
    totals: dict[int, float] = {}
    for collective in waits:
        for wait in collective.waits:
            totals[wait.rank] = totals.get(wait.rank, 0.0) + wait.ns
    return totals


def straggler_of(parts: Mapping[int, Parts]) -> tuple[Straggler | None, str]:
    """The straggler and a sentence about it; None and why where there is none."""
    if len(parts) < 2:
        return None, "one rank alone has nothing to be compared with"
    work = {rank: sum(each.work.values()) for rank, each in parts.items()}
    whole = median(work[rank] + sum(each.collectives.values()) for rank, each in parts.items())
    waits = total_waits(waits_of(parts))
    by: FoundBy
    if waits:
        by = "least wait in collectives"
        rank = min(waits, key=lambda each: (waits[each], each))
        margin = _others(waits, rank) - waits[rank]
    else:
        by = "own time of phases"
        rank = max(work, key=lambda each: (work[each], -each))
        margin = work[rank] - _others(work, rank)
    if whole <= 0 or margin <= DEADBAND * whole:
        return None, f"no straggler: by {by}, ranks differ by less than {DEADBAND:.0%} of a unit"
    found = _explained(rank, by, margin, work[rank] - _others(work, rank), parts)
    return found, _sentence(found)


def _others(values: Mapping[int, float], rank: int) -> float:
    """The median of the other ranks, of which there is at least one."""
    return median(value for each, value in values.items() if each != rank)


def _explained(rank: int, by: FoundBy, margin: float, excess: float, parts: Mapping[int, Parts]) -> Straggler:
    names = dict.fromkeys(name for each in parts.values() for name in each.work)
    over = {
        name: parts[rank].work.get(name, 0.0)
        - _others({each: held.work.get(name, 0.0) for each, held in parts.items()}, rank)
        for name in names
    }
    largest = max(over, key=lambda name: over[name], default="")
    share = over[largest] / excess if excess > 0 and largest else None
    cause = largest if share is not None and share >= CAUSE else ""
    return Straggler(rank, by, margin, excess, cause, share, largest)


def _sentence(found: Straggler) -> str:
    start = (
        f"rank {found.rank} is the straggler: it waits {found.margin_ns / 1e6:.3f} ms a unit less in collectives than "
        "the median of the others"
        if found.found_by == "least wait in collectives"
        else f"rank {found.rank} is the straggler: its phases take {found.margin_ns / 1e6:.3f} ms a unit longer than "
        "the median of the others"
    )
    if found.share is None:
        return f"{start}; its own work is not longer, so that no phase explains it"
    told = f"{found.largest} explains {found.share:.0%} of the {found.excess_ns / 1e6:.3f} ms that its work is longer"
    return f"{start}; {told}" if found.cause else f"{start}; no one phase is the cause: {told}"
