"""Advice from the record of a session, without a trace.

Like the rules on profiles (bakeoff.advice.rules), these fire only on measured numbers, and none of them recommends to
compute something else. That a phase takes much of a unit is not advice by itself.
"""

from collections.abc import Iterator
from itertools import accumulate, pairwise
from math import isfinite
from statistics import fmean

from bakeoff.advice.evidence import NOTICE, Advice, Strength, slope, strength
from bakeoff.advice.rules import FEWEST_FOR_TREND, LOOK_FOR_MEMORY, MOST_MEMORY, trend_of, worth_saying
from bakeoff.models.words import counted
from bakeoff.record.account import Account, account, rates
from bakeoff.record.monitor import Point, SeriesRecord, merged
from bakeoff.record.session import GPU_MEMORY, MACHINE_CORES, SessionRecord

TARGET = "target_fps"
"""The tag for the frames per second at which a session should run."""
_LEAST_THROTTLED = 0.01
_LEAST_MONITORED_NS = 30e9
"""Shortest time whose load average is judged: that of a shorter one mostly reflects what ran before."""
_MOST_LOAD = 1.25
"""Largest load average per core that is not reported."""
_POWER_CAP = "power cap"
_MEMORY = ("cpu.process_memory", "gpu.memory")
_LEAST_GROWN_MIB, _LEAST_GROWN = 32.0, 0.01
"""Least growth of memory over the steady units that is reported, and as a share of what was in use at first."""
_FEWEST_OF_MEMORY = 8
"""Fewest points of a memory's series from which its growth is judged."""
_MOST_FOR_TREND = 400
"""Largest number of points for a trend, which compares all pairs of them."""


def advise_session(record: SessionRecord) -> tuple[Advice, ...]:
    """Return the rules' advice, ordered and filtered like a profile's (bakeoff.advice.rules)."""
    found = [one for rule in RULES for one in rule(record)]
    units = account(record)
    if units is not None:
        found += [*unnamed(record, units), *trend(record, units, found)]
    return worth_saying(found, units.unit_ms if units is not None else 0.0)


def _notice(code: str, evidence: str, says: str, where: str = "", how: Strength = "notice") -> Advice:
    return Advice(code, where, evidence, says, None, how)


def unnamed(record: SessionRecord, units: Account) -> Iterator[Advice]:
    """Advise on time of units outside all phases, unless the session names no phases or stopped recording them."""
    unit_ms, ms = units.unit_ms, units.lines[-1].ns / units.units / 1e6
    if len(units.lines) < 2 or (record.cost is not None and "phase" in record.cost.dropped) or ms <= NOTICE * unit_ms:
        return
    evidence = f"{ms:.2f} of {unit_ms:.2f} ms of a unit are in no phase"
    says = "name what runs there with a phase; then compile it with its neighbours, or move it out of the unit"
    yield Advice("glue", "", evidence, says, ms, strength(ms, unit_ms))


def compiling(record: SessionRecord) -> Iterator[Advice]:
    """Advise if a compiler ran in units after the first."""
    count = sum(each.count for each in record.units if each.kind == "compiling")
    kept = {each.index: each for each in record.spans if each.kind == "compiling"}
    first = next((each for each in record.spans if each.index == 0), None)
    later = count - (first is None or first.kind == "compiling")
    if later > 0:
        named = ", ".join(f"unit {index} took {each.ns / 1e6:.0f} ms" for index, each in kept.items() if index)
        units = counted(sum(each.count for each in record.units), "unit")
        evidence = f"{later} of {units} compiled something after the first"
        says = "build every shape before the first unit; a changing shape or number recompiles"
        yield _notice("compiling", f"{evidence}: {named}" if named and len(kept) <= 4 else evidence, says, "", "strong")


def trend(record: SessionRecord, units: Account, others: list[Advice]) -> Iterator[Advice]:
    """Advise if units become slower, or have not stopped becoming faster.

    As many units as were not steady are left out at the start, where most of them are; the slope is robust against the
    rest. If other advice names a cause of slower units, this refers to it.
    """
    points = _steady_points(record)
    if len(points) < FEWEST_FOR_TREND:
        return
    places = [place for place, _ in points]
    count = places[-1] + points[-1][1].count - places[0]
    found = slope([point.mean / 1e6 for _, point in points], places)
    cause = next((one.code for one in others if one.code in _CAUSES), "")
    beside = (f"see {cause}", "mend that first, and measure again") if cause else ("", LOOK_FOR_MEMORY)
    yield from trend_of(found, count, units.unit_ms, beside)


_CAUSES = ("contention", "throttled", "power-cap", "memory-grows")


def _steady_points(record: SessionRecord) -> list[tuple[int, Point]]:
    """Return the times of units, each with the number of its first unit, without as many at the start as `trend`."""
    series = next((each for each in record.series if each.name == "unit" and each.source != "user"), None)
    points = merged(series.points, _MOST_FOR_TREND) if series is not None else ()
    first = sum(each.count for each in record.units if each.kind != "steady")
    places = accumulate((point.count for point in points), initial=0)
    return [(place, point) for place, point in zip(places, points, strict=False) if place >= first]


def growing(record: SessionRecord) -> Iterator[Advice]:
    """Advise on memory that grows with the units: in each quarter of the steady ones' time, so that neither a warm-up
    nor a single allocation counts.
    """
    units = _steady_points(record)
    if len(units) < FEWEST_FOR_TREND:
        return
    count = sum(point.count for _, point in units)
    for series in (each for name in _MEMORY for each in _monitored(record, name)):
        points = [point for point in series.points if units[0][1].t_ns <= point.t_ns <= units[-1][1].t_ns]
        if len(points) < _FEWEST_OF_MEMORY:
            continue
        edges = [len(points) * quarter // 4 for quarter in range(5)]
        means = [fmean(point.mean for point in points[low:high]) for low, high in pairwise(edges)]
        grown = (means[-1] - means[0]) * 4 / 3
        if grown < max(_LEAST_GROWN_MIB, _LEAST_GROWN * means[0]) or any(
            later - earlier < grown / 8 for earlier, later in pairwise(means)
        ):
            continue
        quarters = " to ".join(f"{mean:,.0f}" for mean in means)
        over = f"{grown:,.0f} MiB over {counted(count, 'steady unit')}: {quarters} MiB by quarter"
        says = (
            "free what is kept from unit to unit: outputs in a list, caches, graphs of gradients; compare two "
            "snapshots of tracemalloc, on a GPU of torch.cuda.memory_snapshot"
        )
        yield _notice(
            "memory-grows", f"{series.name} grew by {grown / count:.2f} MiB a unit, {over}", says, series.source
        )


def memory(record: SessionRecord) -> Iterator[Advice]:
    """Advise if the memory of the GPU is nearly full. Sessions with several GPUs get no such advice."""
    used, total_mib = list(_monitored(record, "gpu.memory")), gpu_memory_mib(record)
    peak_mib = used[0].greatest if len(used) == 1 else None
    if peak_mib is None or total_mib is None or peak_mib <= MOST_MEMORY * total_mib:
        return
    largest = max(record.parameters, key=lambda model: model.bytes or 0, default=None)
    known = (
        f"; the largest model, {largest.name}, has {largest.bytes / 2**20:,.0f}" if largest and largest.bytes else ""
    )
    evidence = f"{peak_mib:,.0f} of {total_mib:,.0f} MiB at the peak{known}"
    says = "free what is not needed any more; hold weights in a smaller dtype, the largest model's first"
    yield _notice("vram", evidence, says, used[0].source, "strong")


def slow_clock(record: SessionRecord) -> Iterator[Advice]:
    """Advise on each reason for which a GPU lowered its clocks."""
    clocks = {series.source: series.mean for series in _monitored(record, "gpu.clock")}
    for each in record.monitored.throttled if record.monitored is not None else ():
        if each.share > _LEAST_THROTTLED:
            mhz = clocks.get(each.device)
            evidence = f"{each.reason} for {each.share:.1%} of the time"
            capped = each.reason == _POWER_CAP
            says = "raise the power limit if it may be" if capped else "cool it"
            yield _notice(
                "power-cap" if capped else "throttled",
                evidence if mhz is None else f"{evidence}, {mhz:,.0f} MHz on average",
                f"{says}, or compare at a locked clock",
                each.device,
                "strong",
            )


def too_slow(record: SessionRecord) -> Iterator[Advice]:
    """Report a session that makes fewer frames per second than its tag `target_fps` asks for."""
    target, fps = record.tags.get(TARGET), rates(record).fps
    if isinstance(target, bool) or not isinstance(target, int | float) or fps is None:
        return
    if fps < target:  # not for NaN
        evidence = f"{fps:.2f} frames a second; the tag {TARGET} asks for {target:g}"
        yield _notice("too-slow", evidence, f"a unit must take {1 - fps / target:.0%} less", "", "information")


def contention(record: SessionRecord) -> Iterator[Advice]:
    """Advise if more tasks wanted to run than the machine has cores; the process may have been held to some of them."""
    allowed = record.environment.get("cores", "")
    cores = record.environment.get(MACHINE_CORES, allowed)
    cost = record.monitored.cost if record.monitored is not None else None
    if not cores.isdecimal() or cost is None or cost.wall_ns < _LEAST_MONITORED_NS:
        return
    own = next((series.mean for series in _monitored(record, "cpu.process")), None)
    for series in _monitored(record, "cpu.load"):
        if series.mean is not None and series.mean > _MOST_LOAD * int(cores):
            used = f" had {own / 100:.2f} of a core" if own is not None else ""
            held = f"{' and' if used else ''} may use {allowed} of them" if allowed != cores else ""
            process = f"; this process{used}{held}" if used or held else ""
            evidence = f"a load of {series.mean:.1f} on the machine's {counted(int(cores), 'core')}{process}"
            yield _notice("contention", evidence, "stop what else runs, and measure again")


RULES = (compiling, growing, memory, slow_clock, too_slow, contention)
"""Rules that need no account of units; `unnamed` and `trend` need one."""


def gpu_memory_mib(record: SessionRecord) -> float | None:
    """Return the total memory of the session's GPU in MiB; None if the record's environment does not have it."""
    try:
        found = float(record.environment[GPU_MEMORY])
    except (KeyError, ValueError):
        return None
    return found if isfinite(found) and found > 0 else None


def _monitored(record: SessionRecord, name: str) -> Iterator[SeriesRecord]:
    yield from (series for series in (record.monitored.series if record.monitored else ()) if series.name == name)
