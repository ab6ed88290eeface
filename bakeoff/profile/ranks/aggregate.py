"""Report on the records of a run's ranks: what is missing, who waits for whom, and rates that are not averaged."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.profile.ranks.figures import (
    Figures,
    Parts,
    energy_of,
    figures_of,
    gpu_energy_mj,
    has_device_times,
    memory_of,
    parts_of,
    ranks_on,
    spreads_of,
    unit_spreads,
)
from bakeoff.profile.ranks.reading import MOST_RANKS, Chosen, FolderOfRanks, RankFile, choose, ranks_text, read_folder
from bakeoff.record.account import UNATTRIBUTED, tells_units_apart
from bakeoff.record.finding import Finding
from bakeoff.record.ranks import (
    Clock,
    CollectiveWait,
    FoundBy,
    Problem,
    RankPart,
    RankRow,
    RanksConfig,
    RanksReport,
    RankValue,
    SameFinding,
    Straggler,
)
from bakeoff.record.session import SessionRecord

_OF_PHASES = ("unit", "phase", "collective")
"""Kinds of ranges without which times by phase are incomplete."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """Which units the figures cover: the same kinds for every rank, so that ranks can be compared."""

    has_units: bool
    steady: bool
    """Whether only steady units count."""
    clock: Clock
    parts_steady: bool
    """Whether times of phases, too, cover only steady units."""
    text: str


def aggregate(folder: str | Path, expect: int | None = None) -> RanksReport:
    """Return one report on all ranks' records in a folder; it names files that cannot be read, and the others count.

    `expect` is the expected number of ranks; None takes the number that the records state. Raises BakeoffError for a
    folder that cannot be read or contains no record of a rank, and for an impossible `expect`.
    """
    if expect is not None and not 1 <= expect <= MOST_RANKS:
        raise BakeoffError(f"{expect} expected ranks; give a number from 1 to {MOST_RANKS}", "bad-option")
    held = read_folder(Path(folder))
    if not held.files:
        files = counted(len(held.problems), "file")
        text = f"none of {files} in {folder} is a readable record of a rank; the first: {held.problems[0].text}"
        raise BakeoffError(text, "bad-record")
    return _report(str(folder), held, choose(held, expect))


def _report(folder: str, held: FolderOfRanks, chosen: Chosen) -> RanksReport:
    files = chosen.files
    counted = _counted([file.record for file in files])
    parts = {
        file.facts.rank: _parts(file.record, counted)
        for file in files
        if _units(file.record, steady=False)[0] or not counted.has_units
    }
    waits = waits_of(parts)
    waited = total_waits(waits)
    rows = tuple(
        _row(file, counted, parts.get(file.facts.rank, Parts()), waited.get(file.facts.rank)) for file in files
    )
    starts = _starts(files)
    figures: dict[int, Figures] = {}
    for file, row in zip(files, rows, strict=True):
        of_units: Figures = {}
        if row.unit_ns is not None:
            of_units["unit"] = (row.unit_ns / 1e6, "ms")
        if row.frames_per_s is not None:
            of_units["frames_per_s"] = (row.frames_per_s, "frames/s")
        of_parts = parts.get(row.rank, Parts())
        figures[row.rank] = of_units | figures_of(file, of_parts, row.wait_ns, starts.get(row.rank))
    straggler, straggler_text = straggler_of(parts)
    frames_per_s, frames_text = _rate(rows, files)
    energy = energy_of(files)
    return RanksReport(
        folder=folder,
        group=chosen.group,
        config=_config(files, rows),
        world=chosen.world,
        expected=chosen.expected,
        rows=rows,
        missing=chosen.missing,
        torn=held.torn,
        refused=held.refused,
        duplicate=chosen.duplicate,
        foreign=chosen.foreign,
        problems=(*held.problems, *chosen.problems, *_differences(files, rows)),
        counted=counted.text,
        clock=counted.clock,
        frames_per_s=frames_per_s,
        frames_text=frames_text,
        spreads=spreads_of(figures),
        units=unit_spreads(files),
        waits=waits,
        straggler=straggler,
        straggler_text=straggler_text,
        memory=memory_of(files),
        energy=energy,
        energy_mj=gpu_energy_mj(files, energy),
        findings=_findings(files),
    )


def _counted(records: Sequence[SessionRecord]) -> _Counted:
    having = [record for record in records if _units(record, steady=False)[0]]
    if not having:
        clock: Clock = "host"
        return _Counted(False, False, clock, False, "whole sessions, because no rank recorded units")
    clock = "device" if all(map(has_device_times, having)) else "host"
    without = sum(not _units(record, steady=True)[0] for record in having)
    if without:
        text = f"all units, because {without} of {counted(len(having), 'rank has', 'ranks have')} no steady one"
        return _Counted(True, False, clock, False, text)
    if clock == "device":
        alone, why = False, "phases by the device's clock, which is kept of all units together"
    else:
        alone = all(map(tells_units_apart, having))
        why = "" if alone else "phases of all units, because not every other unit was kept in full"
    return _Counted(True, True, clock, alone, f"steady units{'; ' if why else ''}{why}")


def _units(record: SessionRecord, steady: bool) -> tuple[int, int, int]:
    """Return count, frames and nanoseconds of a record's units; with `steady`, of its steady units alone."""
    units = [each for each in record.units if each.kind == "steady" or not steady]
    return sum(each.count for each in units), sum(each.frames for each in units), sum(each.wall_ns for each in units)


def _parts(record: SessionRecord, counted: _Counted) -> Parts:
    units = _units(record, counted.parts_steady)[0] if counted.has_units else 1
    return parts_of(record, counted.clock, counted.parts_steady).over(units)


def _row(file: RankFile, counted: _Counted, parts: Parts, wait_ns: float | None) -> RankRow:
    facts, record = file.facts, file.record
    units, frames, wall_ns = _units(record, counted.steady)
    return RankRow(
        rank=facts.rank,
        file=file.name,
        status=record.status,
        host=facts.host,
        device=facts.device,
        local_rank=facts.local_rank,
        pid=facts.pid,
        ns=record.ns,
        units=units,
        frames=frames,
        units_ns=wall_ns,
        unit_ns=wall_ns / units if units > 0 else None,
        frames_per_s=frames * 1e9 / wall_ns if min(units, frames, wall_ns) > 0 else None,
        work_ns=sum(parts.work.values()),
        collective_ns=sum(parts.collectives.values()),
        wait_ns=wait_ns,
        parts=tuple(_each_part(parts)),
    )


def _each_part(parts: Parts) -> Iterator[RankPart]:
    """Yield the times of phases, then of collectives, then the time in no phase."""
    yield from (RankPart(name, ns, False) for name, ns in parts.work.items() if name != UNATTRIBUTED)
    yield from (RankPart(name, ns, True) for name, ns in parts.collectives.items())
    if UNATTRIBUTED in parts.work:
        yield RankPart(UNATTRIBUTED, parts.work[UNATTRIBUTED], False)


def _rate(rows: Sequence[RankRow], files: Sequence[RankFile]) -> tuple[float | None, str]:
    """Return the run's frames per second, None if unknown, and a text that says how they were computed or why not."""
    kinds = {file.facts.parallelism for file in files}
    counting = [row for row in rows if row.frames_per_s is not None]
    timed = {row.rank: row.unit_ns for row in rows if row.unit_ns}
    if len(kinds) > 1:
        return None, "unknown: some ranks say that all make one video, others that each makes its own"
    if not counting:
        return None, "unknown: no rank counted frames"
    if kinds == {"data"}:
        # Each rank makes videos of its own.
        rate = sum(row.frames_per_s or 0.0 for row in counting)
        return rate, f"sum over the {counted(len(counting), 'rank')} read, each with videos of its own"
    # One video: its unit is done when the slowest rank's is. Some pipelines count frames on one rank alone.
    slowest = max(timed, key=lambda rank: (timed[rank], -rank))
    rate = max(row.frames / row.units for row in counting) * 1e9 / timed[slowest]
    if timed[slowest] - min(timed.values()) <= DEADBAND * timed[slowest]:
        return rate, f"one video by all ranks, whose units take the same time within {DEADBAND:.0%}"
    return rate, f"one video by all ranks: at the pace of rank {slowest}, whose units take longest"


def _starts(files: Sequence[RankFile]) -> dict[int, int]:
    """Return each session's start in nanoseconds after rank 0's, for the ranks on rank 0's host."""
    first = next((file for file in files if file.facts.rank == 0), None)
    return {
        file.facts.rank: file.record.started_wall_ns - first.record.started_wall_ns
        for file in files
        if first is not None and file.facts.host == first.facts.host
    }


def _config(files: Sequence[RankFile], rows: Sequence[RankRow]) -> RanksConfig:
    first = files[0]
    frames = [row.frames / row.units for row in rows if row.units > 0 and row.frames > 0]
    return RanksConfig(
        name=first.record.name,
        parallelism=first.facts.parallelism,
        tags=first.record.tags,
        frames_per_unit=max(frames, default=None),
        environment=first.record.environment,
    )


def _differences(files: Sequence[RankFile], rows: Sequence[RankRow]) -> list[Problem]:
    found = [Problem("failed", f"rank {row.rank} ended {row.status:.200}") for row in rows if row.status != "ok"]
    for file in files:
        lost = [kind for kind in (file.record.cost.dropped if file.record.cost else ()) if kind in _OF_PHASES]
        if lost:
            text = f"rank {file.facts.rank} left out ranges of kind {', '.join(lost)} to limit the cost of recording"
            found.append(Problem("dropped", f"{text}; its times by phase are less than it took"))
    names = {file.record.name for file in files}
    if len(names) > 1:
        text = ", ".join(sorted(f"{name:.60}" for name in names)[:5])
        found.append(Problem("differs", f"the ranks' sessions have different names: {text}"))
    if len({file.facts.parallelism for file in files}) > 1:
        found.append(Problem("differs", "some ranks are of parallelism model, others of data"))
    found += _ragged(files)
    for device in sorted({file.facts.device for file in files} - {""}):
        sharing = ranks_on(files, device)
        if len(sharing) > 1:
            text = f"ranks {ranks_text(sharing)} share {device:.80}; its memory and energy count once"
            found.append(Problem("shared-device", text))
    return [*found, *_apart(files)]


def _ragged(files: Sequence[RankFile]) -> list[Problem]:
    counts = {file.facts.rank: _units(file.record, steady=False)[0] for file in files}
    usual = Counter(counts.values()).most_common(1)[0][0]
    odd: dict[int, list[int]] = {}
    for rank, count in counts.items():
        if count != usual:
            odd.setdefault(count, []).append(rank)
    return [
        Problem(
            "ragged",
            f"rank {ranks_text(ranks)}: {counted(count, 'unit')}, where most ranks have {usual}; compared by index",
        )
        for count, ranks in odd.items()
    ]


def _apart(files: Sequence[RankFile]) -> list[Problem]:
    """Return a problem if two sessions do not overlap: one is perhaps of an earlier run with the same group."""
    times = [
        (file.record.started_wall_ns, file.record.started_wall_ns + file.record.ns, file.facts.rank)
        for file in files
        if file.facts.host == files[0].facts.host
    ]
    if len(times) < 2:
        return []
    last, first = max(times), min(times, key=lambda each: each[1])
    if last[0] <= first[1]:
        return []
    text = f"rank {first[2]}'s session was over {(last[0] - first[1]) / 1e9:.1f} s before rank {last[2]}'s began"
    return [Problem("apart", f"{text}; are they of one run?")]


def _findings(files: Sequence[RankFile]) -> tuple[SameFinding, ...]:
    having: dict[Finding, list[int]] = {}
    for file in files:
        for finding in dict.fromkeys(file.record.findings):
            having.setdefault(finding, []).append(file.facts.rank)
    return tuple(SameFinding(tuple(ranks), finding) for finding, ranks in having.items())


DEADBAND = 0.05
"""Difference between ranks, as a share of a unit, up to which they count as equally fast."""
CAUSE = 0.80
"""Share of a rank's excess time that one phase must explain to be named as the cause."""


def waits_of(parts: Mapping[int, Parts]) -> tuple[CollectiveWait, ...]:
    """Return each rank's wait in each collective: its time in it less the shortest of any rank; longest waits first.

    Only collectives that at least two ranks have are included. Times are those of all calls together, so that ranks
    which are slow in turns, one in even units and one in odd ones, show no wait.
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
    """Return each rank's wait in all collectives together; ranks in no collective are absent."""
    totals: dict[int, float] = {}
    for collective in waits:
        for wait in collective.waits:
            totals[wait.rank] = totals.get(wait.rank, 0.0) + wait.ns
    return totals


def straggler_of(parts: Mapping[int, Parts]) -> tuple[Straggler | None, str]:
    """Return the straggler, the rank that the others wait for, and a sentence about it; or None and the reason.

    Ranks that meet in a collective wait there for the last one, so all take the same time per unit and the slow rank is
    the one that waits least. Without collectives, it is the rank whose phases take longest. It is compared with the
    median of the other ranks: with two ranks, a median that includes it would hide half of the difference.
    """
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
    """Return the median value of the ranks other than `rank`, of which there must be at least one."""
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
