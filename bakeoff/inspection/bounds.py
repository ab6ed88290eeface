"""The most that a perfect compiler could gain in each module that a pass calls: Amdahl's law on its time.

Making a share s of a pass k times as fast makes the pass 1 / (1 - s + s / k) times as fast (Amdahl, AFIPS 1967).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bakeoff.machine.floors import Ceiling, find_floors
from bakeoff.machine.host import Host
from bakeoff.process.inspected import Inspection

WORTH = 0.1
"""Share of a pass from which a module is worth a sweep: the pass can gain 1.11x at most below it."""


@dataclass(frozen=True, slots=True)
class AtFloor:
    """What is left to gain down to the time of a module's work in its own dtype at this machine's peak rates."""

    floor_ms: float
    """Of all its calls in a pass."""
    saved_ms: float
    speedup: float
    source: str
    """Of the device's peak rates: `datasheet` or `measured`."""
    above: bool
    """The module is faster than its floor: the ceilings are too low for it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A module or method that is called from outside of all modules, with all of its calls in a pass."""

    name: str
    cls: str
    calls: float
    """A pass, the mean."""
    ns: tuple[int, ...]
    """In each pass, with all below it."""
    share: float
    """Of all passes together."""
    speedup: float
    """Of the whole pass, if this took no time at all; inf where there is nothing else."""
    flops: int | None
    """In a pass."""
    at_floor: AtFloor | None


def candidates(inspection: Inspection, host: Host, ceilings: Sequence[Ceiling]) -> tuple[Candidate, ...]:
    """The candidates by their time, the largest first; without `ceilings` or a known GPU there are no floors."""
    top = dict.fromkeys(node.name for node in inspection.nodes if node.parent < 0)
    found = [_candidate(inspection, name, host, ceilings) for name in top]
    return tuple(sorted(found, key=lambda one: -sum(one.ns)))


def worth_sweeping(found: Sequence[Candidate]) -> tuple[str, ...]:
    """The names of those that take a tenth of the pass or more."""
    return tuple(one.name for one in found if one.share >= WORTH)


def _candidate(inspection: Inspection, name: str, host: Host, ceilings: Sequence[Ceiling]) -> Candidate:
    nodes = inspection.nodes
    tops = [index for index, node in enumerate(nodes) if node.name == name]  # none is below another: recursion is one
    subtree = sorted({position for index in tops for position in inspection.below(index)})
    ns, passes = inspection.sum_ns(subtree), len(inspection.pass_ns)
    calls = sum(sum(nodes[index].calls) for index in tops) / passes
    whole, own = sum(inspection.pass_ns), sum(ns)
    counts = [nodes[index].own_flops for index in subtree]
    flops = None if None in counts else sum(count or 0 for count in counts)
    return Candidate(
        name=name,
        cls=nodes[tops[0]].cls,
        calls=calls,
        ns=ns,
        share=own / whole,
        speedup=whole / (whole - own) if whole > own else float("inf"),
        flops=flops,
        at_floor=None
        if flops is None
        else _at_floor(inspection, subtree, tops, calls, ns, own / whole, flops, host, ceilings),
    )


def _at_floor(
    inspection: Inspection,
    subtree: Sequence[int],
    tops: Sequence[int],
    calls: float,
    ns: Sequence[int],
    share: float,
    flops: int,
    host: Host,
    ceilings: Sequence[Ceiling],
) -> AtFloor | None:
    """The floor of the candidate's calls; the weights that a call reads are its least traffic."""
    nodes, passes = inspection.nodes, len(inspection.pass_ns)
    dtype = nodes[tops[0]].dtype
    if not dtype or not calls or not median(ns):
        return None
    read = {nodes[index].name: nodes[index].read_bytes for index in subtree}
    often = dict.fromkeys(read, 0.0)
    for index in subtree:
        often[nodes[index].name] += sum(nodes[index].calls) / passes
    dtypes = tuple(dict.fromkeys((dtype, *inspection.autocast)))
    if inspection.device == "cuda" and dtype == "fp32":
        dtypes += ("tf32",)
    floors = find_floors(
        flops=round(flops / calls),
        minimum_bytes=round(sum(size * min(1.0, often[name] / calls) for name, size in read.items())),
        dtypes=dtypes,
        device=inspection.device,
        host=host,
        ceilings=ceilings,
    )
    if not floors:
        return None
    floor = max(floors, key=lambda one: one.source == "measured")
    own_ms, floor_ms = median(ns) / 1e6, floor.ms * calls
    saved_ms = max(0.0, own_ms - floor_ms)
    return AtFloor(floor_ms, saved_ms, 1 / (1 - share * saved_ms / own_ms), floor.source, floor_ms > own_ms)
