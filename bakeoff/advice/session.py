"""Evidence from the record of a session, without a trace, for the rules on profiles (bakeoff.advice.rules).

That a phase takes much of a unit is no evidence by itself.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from math import inf, isfinite
from statistics import fmean

from bakeoff.advice.evidence import Advice, Evidence, slope
from bakeoff.advice.rules import FEWEST_FOR_TREND, advise
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
Finding = tuple[str, str]
"""A code and its text."""


def advise_session(record: SessionRecord) -> tuple[Advice, ...]:
    """Return the rules' advice, the largest gain first."""
    return advise(evidence_of_session(record))


def evidence_of_session(record: SessionRecord) -> Evidence:
    """Return the facts of a session; the time of a unit is 0 without units."""
    units, rate, points = account(record), rates(record), _steady_points(record)
    places = [place for place, _ in points]
    has_trend = len(points) >= FEWEST_FOR_TREND
    return Evidence(
        unit="unit",
        unit_ms=units.unit_ms if units is not None else 0.0,
        frames=rate.fps / rate.bps if rate.fps and rate.bps else 0.0,
        frame_rate=_target(record),
        unattributed_ms=_nameless_ms(record, units),
        compiled=_compiled(record),
        slope_ms=slope([point.mean / 1e6 for _, point in points], places) if has_trend else None,
        steady_units=places[-1] + points[-1][1].count - places[0] if has_trend else 0,
        memory=_memory(record),
        device_findings=[*_clocks(record), *(_growing(record, points) if has_trend else ()), *_crowded(record)],
    )


def _target(record: SessionRecord) -> float:
    """Return the frames per second that the tag asks for; 0 if it is no number above 0."""
    target = record.tags.get(TARGET)
    is_number = isinstance(target, int | float) and not isinstance(target, bool)
    return float(target) if is_number and 0 < target < inf else 0.0  # type: ignore[operator, arg-type]


def _nameless_ms(record: SessionRecord, units: Account | None) -> float:
    """Return the time of a unit outside all phases; 0 if the session names no phases or stopped recording them."""
    if units is None or len(units.lines) < 2 or (record.cost is not None and "phase" in record.cost.dropped):
        return 0.0
    return units.lines[-1].ms


def _compiled(record: SessionRecord) -> str:
    """Describe in how many units after the first a compiler ran; "" for none."""
    count = sum(each.count for each in record.units if each.kind == "compiling")
    first = next((each for each in record.spans if each.index == 0), None)
    later = count - (first is None or first.kind == "compiling")
    units = counted(sum(each.count for each in record.units), "unit")
    return f"{later} of {units} compiled something after the first" if later > 0 else ""


def _steady_points(record: SessionRecord) -> list[tuple[int, Point]]:
    """Return the times of units, each with the number of its first unit.

    As many units as were not steady are left out at the start, where most of them are.
    """
    series = next((each for each in record.series if each.name == "unit" and each.source != "user"), None)
    points = merged(series.points, _MOST_FOR_TREND) if series is not None else ()
    first = sum(each.count for each in record.units if each.kind != "steady")
    places = accumulate((point.count for point in points), initial=0)
    return [(place, point) for place, point in zip(places, points, strict=False) if place >= first]


def _growing(record: SessionRecord, units: Sequence[tuple[int, Point]]) -> Iterator[Finding]:
    """Yield memory that grows with the units: in each quarter of the steady ones' time, so that neither a warm-up nor a
    single allocation counts."""
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
        yield "memory-grows", f"{series.name} grew by {grown / count:.2f} MiB a unit, {over} ({series.source})"


def _memory(record: SessionRecord) -> tuple[float, str] | None:
    """Return the share of the GPU's memory at the peak, and a text; None if unknown, or with several GPUs."""
    used, total_mib = list(_monitored(record, "gpu.memory")), gpu_memory_mib(record)
    peak_mib = used[0].greatest if len(used) == 1 else None
    if peak_mib is None or total_mib is None:
        return None
    largest = max(record.parameters, key=lambda model: model.bytes or 0, default=None)
    text = f"{peak_mib:,.0f} of {total_mib:,.0f} MiB at the peak"
    if largest is not None and largest.bytes:
        text += f"; the largest model, {largest.name}, has {largest.bytes / 2**20:,.0f}"
    return peak_mib / total_mib, text


def _clocks(record: SessionRecord) -> Iterator[Finding]:
    """Yield each reason for which a GPU lowered its clocks."""
    clocks = {series.source: series.mean for series in _monitored(record, "gpu.clock")}
    for each in record.monitored.throttled if record.monitored is not None else ():
        if each.share > _LEAST_THROTTLED:
            mhz = clocks.get(each.device)
            at = f", {mhz:,.0f} MHz on average" if mhz is not None else ""
            code = "power-cap" if each.reason == _POWER_CAP else "throttled"
            yield code, f"{each.reason} for {each.share:.1%} of the time{at} ({each.device})"


def _crowded(record: SessionRecord) -> Iterator[Finding]:
    """Yield that more tasks wanted to run than the machine has cores, of which the process may use some alone."""
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
            yield "contention", f"a load of {series.mean:.1f} on the machine's {counted(int(cores), 'core')}{process}"


def gpu_memory_mib(record: SessionRecord) -> float | None:
    """Return the total memory of the session's GPU in MiB; None if the record's environment does not have it."""
    try:
        found = float(record.environment[GPU_MEMORY])
    except (KeyError, ValueError):
        return None
    return found if isfinite(found) and found > 0 else None


def _monitored(record: SessionRecord, name: str) -> Iterator[SeriesRecord]:
    yield from (series for series in (record.monitored.series if record.monitored else ()) if series.name == name)
