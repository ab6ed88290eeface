"""Advice from the record of a session, without a trace.

Like the rules on profiles (bakeoff.advice.rules), these fire only on measured numbers, and none of them recommends to
compute something else. That a phase takes much of a unit is not advice by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isfinite
from statistics import fmean

from bakeoff.advice.evidence import NOTICE, Advice, slope, strength
from bakeoff.advice.rules import FEWEST_FOR_TREND, LOOK_FOR_MEMORY, MOST_MEMORY, trend_of, worth_saying
from bakeoff.models.words import counted
from bakeoff.record.account import Account, account, rates
from bakeoff.record.monitor import Point, SeriesRecord, merged
from bakeoff.record.session import GPU_MEMORY, SessionRecord

TARGET = "target_fps"
"""The tag for the frames per second at which a session should run."""
OVERHEAD_LIMIT = 0.01
"""Share of a session that recording may take if the record lacks its setting `overhead_limit`."""
_LEAST_THROTTLED = 0.01
_MOST_MONITOR = 0.01
"""Largest CPU time of the monitor, over the time it ran, that is not reported."""
_LEAST_MONITORED_NS = 30e9
"""Shortest time that is judged: in a shorter one, starting the monitor dominates its share, and a load average mostly
reflects what ran before."""
_MOST_LOAD = 1.25
"""Largest load average per core that is not reported."""
_LEAST_OTHERS = 0.5
"""Least load, beyond the cores that this process used, at which other processes may have taken cores from it."""
_LEAST_CHANGE = 0.1
"""Least relative change between the halves of a session for its CPU share to have fallen or its memory grown."""
_POWER_CAP = "power cap"
_MEMORY_GROWS = "free what is kept from unit to unit"
_MEMORY = ("cpu.process_memory", "gpu.memory")
_LEAST_GROWN_MIB, _LEAST_GROWN = 32.0, 0.01
"""Least growth of memory over the steady units that is reported, and as a share of what was in use at first."""
_FEWEST_OF_MEMORY = 8
"""Fewest points of a memory's series from which its growth is judged."""
_MOST_FOR_TREND = 400
"""Largest number of points for a trend, which compares all pairs of them."""


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """What the rules read about a session."""

    record: SessionRecord
    account: Account | None
    """None for a session without units."""


def advise_session(record: SessionRecord) -> tuple[Advice, ...]:
    """Return the rules' advice, ordered and filtered like a profile's (bakeoff.advice.rules)."""
    facts = SessionFacts(record, account(record))
    found = [one for rule in RULES for one in rule(facts)]
    return worth_saying(found, facts.account.unit_ms if facts.account is not None else 0.0)


def unnamed(facts: SessionFacts) -> Iterator[Advice]:
    """Advise on time of units outside all phases, unless the session names no phases or stopped recording them."""
    cost = facts.record.cost
    if facts.account is None or len(facts.account.lines) < 2 or (cost is not None and "phase" in cost.dropped):
        return
    unit_ms, ms = facts.account.unit_ms, facts.account.lines[-1].ns / facts.account.units / 1e6
    if ms <= NOTICE * unit_ms:
        return
    yield Advice(
        code="glue",
        where="",
        evidence=f"{ms:.2f} of {unit_ms:.2f} ms of a unit are in no phase",
        says="name what runs there with a phase; then compile it with its neighbours, or move it out of the unit",
        gain_ms=ms,
        strength=strength(ms, unit_ms),
    )


def compiling(facts: SessionFacts) -> Iterator[Advice]:
    """Advise if a compiler ran in units after the first."""
    units = facts.record.units
    count = sum(each.count for each in units if each.kind == "compiling")
    kept = {each.index: each for each in facts.record.spans if each.kind == "compiling"}
    first = next((each for each in facts.record.spans if each.index == 0), None)
    later = count - (first is None or first.kind == "compiling")
    if later <= 0:
        return
    named = ", ".join(f"unit {index} took {each.ns / 1e6:.0f} ms" for index, each in kept.items() if index)
    yield Advice(
        code="compiling",
        where="",
        evidence=f"{later} of {counted(sum(each.count for each in units), 'unit')} compiled something after the first"
        + (f": {named}" if named and len(kept) <= 4 else ""),
        says="build every shape before the first unit; a changing shape or number recompiles",
        gain_ms=None,
        strength="strong",
    )


def trend(facts: SessionFacts) -> Iterator[Advice]:
    """Advise if units become slower, or have not stopped becoming faster.

    As many units as were not steady are left out at the start, where most of them are; the slope is robust against the
    rest.
    """
    points = _steady_points(facts.record)
    if facts.account is None or len(points) < FEWEST_FOR_TREND:
        return
    places = [place for place, _ in points]
    units = places[-1] + points[-1][1].count - places[0]
    found = slope([point.mean / 1e6 for _, point in points], places)
    yield from trend_of(found, units, facts.account.unit_ms, _beside_slower(facts.record))


def _steady_points(record: SessionRecord) -> list[tuple[int, Point]]:
    """Return the times of units, each with the number of its first unit, without as many at the start as `trend`."""
    series = next((each for each in record.series if each.name == "unit" and each.source != "user"), None)
    points = merged(series.points, _MOST_FOR_TREND) if series is not None else ()
    first = sum(each.count for each in record.units if each.kind != "steady")
    places = accumulate((point.count for point in points), initial=0)
    return [(place, point) for place, point in zip(places, points, strict=False) if place >= first]


def growing(facts: SessionFacts) -> Iterator[Advice]:
    """Advise on memory that grows with the units: in each quarter of the steady ones' time, so that neither a warm-up
    nor a single allocation counts.
    """
    units = _steady_points(facts.record)
    if len(units) < FEWEST_FOR_TREND:
        return
    count = sum(point.count for _, point in units)
    for series in (each for name in _MEMORY for each in _monitored(facts.record, name)):
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
        yield Advice(
            code="memory-grows",
            where=series.source,
            evidence=f"{series.name} grew by {grown / count:.2f} MiB a unit, {grown:,.0f} MiB over "
            f"{counted(count, 'steady unit')}: {' to '.join(f'{mean:,.0f}' for mean in means)} MiB by quarter",
            says=f"{_MEMORY_GROWS}: outputs in a list, caches, graphs of gradients; compare two snapshots of "
            "tracemalloc, on a GPU of torch.cuda.memory_snapshot",
            gain_ms=None,
            strength="notice",
        )


def _beside_slower(record: SessionRecord) -> tuple[str, str]:
    """Return what a session's series show while its units become slower, "" for nothing, and the recommended action."""
    own, load = _halves(record, "cpu.process"), _halves(record, "cpu.load")
    if own is not None and load is not None:
        others = [tasks - percent / 100 for tasks, percent in zip(load, own, strict=True)]
        if own[1] < (1 - _LEAST_CHANGE) * own[0] and others[1] > max(others[0], _LEAST_OTHERS):
            seen = (
                f"contention: this process had {own[0] / 100:.2f} of a core in the first half and {own[1] / 100:.2f} "
                f"in the second, at loads of {load[0]:.1f} and {load[1]:.1f}"
            )
            return seen, "stop what else runs, and measure again"
    memory = {name: _halves(record, name) for name in _MEMORY}
    known = {name: halves for name, halves in memory.items() if halves is not None}
    for name, (first, second) in known.items():
        if second > (1 + _LEAST_CHANGE) * first:
            return f"{name} had {first:,.0f} MiB in the first half and {second:,.0f} in the second", _MEMORY_GROWS
    if known:
        return f"{' and '.join(known)} did not grow", "run longer; if it goes on, look at clocks and at what else runs"
    return "", LOOK_FOR_MEMORY


def _halves(record: SessionRecord, name: str) -> tuple[float, float] | None:
    """Return the means of a monitored quantity in the first and the second half of its time.

    None if it was not monitored in both halves, or has several sources, such as the memory of several GPUs.
    """
    found = list(_monitored(record, name))
    if len(found) != 1 or len(found[0].points) < 2:
        return None
    points = found[0].points
    middle = (points[0].t_ns + points[-1].t_ns) / 2
    first, second = (
        SeriesRecord(name, "", "", tuple(point for point in points if (point.t_ns < middle) == early)).mean
        for early in (True, False)
    )
    return None if first is None or second is None else (first, second)


def memory(facts: SessionFacts) -> Iterator[Advice]:
    """Advise if the memory of the GPU is nearly full. Sessions with several GPUs get no such advice."""
    used, total_mib = list(_monitored(facts.record, "gpu.memory")), gpu_memory_mib(facts.record)
    peak_mib = used[0].greatest if len(used) == 1 else None
    if peak_mib is None or total_mib is None or peak_mib <= MOST_MEMORY * total_mib:
        return
    largest = max(facts.record.parameters, key=lambda model: model.bytes or 0, default=None)
    known = (
        f"; the largest model, {largest.name}, has {largest.bytes / 2**20:,.0f}" if largest and largest.bytes else ""
    )
    yield Advice(
        code="vram",
        where=used[0].source,
        evidence=f"{peak_mib:,.0f} of {total_mib:,.0f} MiB at the peak{known}",
        says="free what is not needed any more; hold weights in a smaller dtype, the largest model's first",
        gain_ms=None,
        strength="strong",
    )


def slow_clock(facts: SessionFacts) -> Iterator[Advice]:
    """Advise on each reason for which a GPU lowered its clocks."""
    monitored = facts.record.monitored
    clocks = {series.source: series for series in _monitored(facts.record, "gpu.clock")}
    for each in monitored.throttled if monitored is not None else ():
        if each.share <= _LEAST_THROTTLED:
            continue
        clock = clocks.get(each.device)
        mean_mhz = clock.mean if clock is not None else None
        capped = each.reason == _POWER_CAP
        yield Advice(
            code="power-cap" if capped else "throttled",
            where=each.device,
            evidence=f"{each.reason} for {each.share:.1%} of the time"
            + (f", {mean_mhz:,.0f} MHz on average" if mean_mhz is not None else ""),
            says="raise the power limit if it may be, or compare at a locked clock"
            if capped
            else "cool it, or compare at a locked clock",
            gain_ms=None,
            strength="strong",
        )


def too_slow(facts: SessionFacts) -> Iterator[Advice]:
    """Report a session that makes fewer frames per second than its tag `target_fps` asks for."""
    target, found = facts.record.tags.get(TARGET), rates(facts.record)
    if isinstance(target, bool) or not isinstance(target, int | float) or found.fps is None:
        return
    if not found.fps < target:  # NaN too
        return
    yield Advice(
        code="too-slow",
        where="",
        evidence=f"{found.fps:.2f} frames a second; the tag {TARGET} asks for {target:g}",
        says=f"a unit must take {1 - found.fps / target:.0%} less",
        gain_ms=None,
        strength="information",
    )


def monitor_heavy(facts: SessionFacts) -> Iterator[Advice]:
    """Advise if the monitor took much of a core and did not lengthen its intervals enough by itself."""
    cost = facts.record.monitored.cost if facts.record.monitored is not None else None
    if cost is None or cost.wall_ns < _LEAST_MONITORED_NS:
        return
    share = cost.cpu_ns / cost.wall_ns
    slower = [name for name, seconds in cost.ran_s.items() if seconds > cost.asked_s.get(name, seconds)]
    if (min(share, cost.sampling_share) if slower else share) <= _MOST_MONITOR:
        return
    lengthened = [f"{name} every {cost.ran_s[name]:g} s instead of {cost.asked_s[name]:g}" for name in slower]
    yield Advice(
        code="monitor-heavy",
        where="",
        evidence="; ".join(
            [f"the monitor took {share:.2%} of a core for {counted(cost.samples, 'sample')}", *lengthened]
        ),
        says="give longer intervals, or switch off what nobody reads",
        gain_ms=None,
        strength="notice",
    )


def overhead(facts: SessionFacts) -> Iterator[Advice]:
    """Advise if recording took more of the session than its limit, or was stopped early because of it."""
    cost, asked = facts.record.cost, facts.record.settings.get("overhead_limit")
    limit = asked if isinstance(asked, float) else OVERHEAD_LIMIT
    if cost is None or not facts.record.ns:
        return
    share = cost.ns / facts.record.ns
    if share <= limit and not cost.dropped:
        return
    dropped = f"; not recorded to the end: {', '.join(cost.dropped)}" if cost.dropped else ""
    yield Advice(
        code="overhead",
        where="",
        evidence=f"{counted(cost.ranges, 'range', form=',')} of {cost.range_ns:,.0f} ns took {share:.2%} of the session"
        f"{dropped}",
        says="record fewer and longer ranges; steps are the most",
        gain_ms=None,
        strength="notice",
    )


def contention(facts: SessionFacts) -> Iterator[Advice]:
    """Advise if more tasks wanted to run than there are cores."""
    cores, watched = facts.record.environment.get("cores", ""), facts.record.monitored
    cost = watched.cost if watched is not None else None
    if not cores.isdecimal() or cost is None or cost.wall_ns < _LEAST_MONITORED_NS:
        return
    own = next((series.mean for series in _monitored(facts.record, "cpu.process")), None)
    for series in _monitored(facts.record, "cpu.load"):
        if series.mean is not None and series.mean > _MOST_LOAD * int(cores):
            process = f"; this process had {own / 100:.2f} of a core" if own is not None else ""
            yield Advice(
                code="contention",
                where="",
                evidence=f"a load of {series.mean:.1f} on {counted(int(cores), 'core')}{process}",
                says="stop what else runs, and measure again",
                gain_ms=None,
                strength="notice",
            )


RULES = (unnamed, compiling, trend, growing, memory, slow_clock, too_slow, contention, monitor_heavy, overhead)


def gpu_memory_mib(record: SessionRecord) -> float | None:
    """Return the total memory of the session's GPU in MiB; None if the record's environment does not have it."""
    try:
        found = float(record.environment[GPU_MEMORY])
    except (KeyError, ValueError):
        return None
    return found if isfinite(found) and found > 0 else None


def _monitored(record: SessionRecord, name: str) -> Iterator[SeriesRecord]:
    yield from (series for series in (record.monitored.series if record.monitored else ()) if series.name == name)
