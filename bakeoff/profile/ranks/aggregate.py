"""Report on the records of a run's ranks: what is missing, who waits for whom, and rates that are not averaged."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bakeoff.models.grouping import grouped
from bakeoff.models.words import counted
from bakeoff.profile.ranks.figures import Times, has_device_times, parts_of, spreads_of
from bakeoff.profile.ranks.reading import RankFile, ranks_text, read_run
from bakeoff.record.account import tells_units_apart
from bakeoff.record.ranks import Clock, FoundBy, Problem, RankRow, RanksReport, Straggler
from bakeoff.record.session import SessionRecord

DEADBAND = 0.05
"""Difference between ranks, as a share of a unit, up to which they count as equally fast."""
CAUSE = 0.80
"""Share of a rank's excess time that one phase must explain to be named as the cause."""
_OF_PHASES = ("unit", "phase", "collective")
"""Kinds of ranges without which times by phase are incomplete."""


class _Basis(NamedTuple):
    """Which units the figures cover: the same kinds for every rank, so that ranks can be compared."""

    text: str
    has_units: bool = True
    steady: bool = False
    """Whether only steady units count."""
    clock: Clock = "host"
    parts_steady: bool = False
    """Whether times of phases, too, cover only steady units."""


def aggregate(folder: str | Path) -> RanksReport:
    """Return one report on all ranks' records in a folder; it names files that cannot be read, and the others count.

    Raises BakeoffError as `read_run` does.
    """
    run = read_run(Path(folder))
    files, first = run.files, run.files[0]
    basis = _basis([file.record for file in files])
    rows = _with_waits([_row(file, basis) for file in files])
    straggler, straggler_text = straggler_of([row for row in rows if row.units or not basis.has_units])
    frames_per_s, frames_text = _rate(rows, files)
    findings = grouped(
        (f"{finding.code}: {finding.text}", file.facts.rank)
        for file in files
        for finding in dict.fromkeys(file.record.findings)
    )
    return RanksReport(
        folder=str(folder),
        group=first.facts.group,
        name=first.record.name,
        parallelism=first.facts.parallelism,
        tags=first.record.tags,
        environment=first.record.environment,
        world=run.world,
        rows=rows,
        missing=tuple(run.missing),
        unreadable=tuple(run.unreadable),
        problems=(*run.problems, *_differences(files)),
        counted=basis.text,
        clock=basis.clock,
        frames_per_s=frames_per_s,
        frames_text=frames_text,
        spreads=spreads_of(files, rows),
        straggler=straggler,
        straggler_text=straggler_text,
        findings={text: tuple(ranks) for text, ranks in findings.items()},
    )


def _basis(records: Sequence[SessionRecord]) -> _Basis:
    having = [record for record in records if _units(record, steady=False)[0]]
    if not having:
        return _Basis("whole sessions, because no rank recorded units", has_units=False)
    clock: Clock = "device" if all(map(has_device_times, having)) else "host"
    without = sum(not _units(record, steady=True)[0] for record in having)
    if without:
        text = f"all units, because {without} of {counted(len(having), 'rank has', 'ranks have')} no steady one"
        return _Basis(text, clock=clock)
    if clock == "device":
        text = "steady units; phases by the device's clock, which is kept of all units together"
        return _Basis(text, steady=True, clock=clock)
    if not all(map(tells_units_apart, having)):
        return _Basis("steady units; phases of all units, because not every other unit was kept in full", steady=True)
    return _Basis("steady units", steady=True, parts_steady=True)


def _units(record: SessionRecord, steady: bool) -> tuple[int, int, int]:
    """Return count, frames and nanoseconds of a record's units; with `steady`, of its steady units alone."""
    units = [each for each in record.units if each.kind == "steady" or not steady]
    return sum(each.count for each in units), sum(each.frames for each in units), sum(each.wall_ns for each in units)


def _row(file: RankFile, basis: _Basis) -> RankRow:
    facts, record = file.facts, file.record
    units, frames, wall_ns = _units(record, basis.steady)
    over = _units(record, basis.parts_steady)[0] if basis.has_units else 1
    phases: Times = {}
    collectives: Times = {}
    if over:
        phases, collectives = parts_of(record, basis.clock, basis.parts_steady)
    return RankRow(
        rank=facts.rank,
        file=file.name,
        status=record.status,
        host=facts.host,
        device=facts.device,
        ns=record.ns,
        units=units,
        frames=frames,
        unit_ns=wall_ns / units if units > 0 else None,
        frames_per_s=frames * 1e9 / wall_ns if min(units, frames, wall_ns) > 0 else None,
        phases={name: ns / over for name, ns in phases.items()},
        collectives={name: ns / over for name, ns in collectives.items()},
        waits={},
    )


def _with_waits(rows: Sequence[RankRow]) -> tuple[RankRow, ...]:
    """Return the rows with each rank's wait in each collective: its time in it less the shortest of any rank.

    Only collectives that at least two ranks have count. Times are those of all calls together, so that ranks which are
    slow in turns, one in even units and one in odd ones, show no wait.
    """
    having = Counter(name for row in rows for name in row.collectives)
    least = {
        name: min(row.collectives[name] for row in rows if name in row.collectives)
        for name, count in having.items()
        if count > 1
    }
    waits = [{name: ns - least[name] for name, ns in row.collectives.items() if name in least} for row in rows]
    return tuple(replace(row, waits=each) for row, each in zip(rows, waits, strict=True))


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
        rate = sum(row.frames_per_s or 0.0 for row in counting)
        return rate, f"sum over the {counted(len(counting), 'rank')} read, each with videos of its own"
    # One video: its unit is done when the slowest rank's is. Some pipelines count frames on one rank alone.
    slowest = max(timed, key=lambda rank: (timed[rank], -rank))
    rate = max(row.frames / row.units for row in counting) * 1e9 / timed[slowest]
    if timed[slowest] - min(timed.values()) <= DEADBAND * timed[slowest]:
        return rate, f"one video by all ranks, whose units take the same time within {DEADBAND:.0%}"
    return rate, f"one video by all ranks: at the pace of rank {slowest}, whose units take longest"


def _differences(files: Sequence[RankFile]) -> Iterator[Problem]:
    for file in files:
        record, rank = file.record, file.facts.rank
        if record.status != "ok":
            yield Problem("failed", f"rank {rank} ended {record.status:.200}")
        lost = [kind for kind in (record.cost.dropped if record.cost else ()) if kind in _OF_PHASES]
        if lost:
            text = f"rank {rank} left out ranges of kind {', '.join(lost)} to limit the cost of recording"
            yield Problem("dropped", f"{text}; its times by phase are less than it took")
    counts = {file.facts.rank: _units(file.record, steady=False)[0] for file in files}
    usual = Counter(counts.values()).most_common(1)[0][0]
    for count in dict.fromkeys(count for count in counts.values() if count != usual):
        ranks = ranks_text([rank for rank, own in counts.items() if own == count])
        yield Problem("differs", f"rank {ranks}: {counted(count, 'unit')}, where most ranks have {usual}")
    for device in sorted({file.facts.device for file in files} - {""}):
        sharing = [file.facts.rank for file in files if file.facts.device == device]
        if len(sharing) > 1:
            text = f"ranks {ranks_text(sharing)} share {device:.80}; each sees its memory, and its energy counts once"
            yield Problem("shared-device", text)


def straggler_of(rows: Sequence[RankRow]) -> tuple[Straggler | None, str]:
    """Return the straggler, the rank that the others wait for, and a sentence about it; or None and the reason.

    Ranks that meet in a collective wait there for the last one, so all take the same time per unit and the slow rank is
    the one that waits least. Without collectives, it is the rank whose phases take longest. It is compared with the
    median of the other ranks: with two ranks, a median that includes it would hide half of the difference.
    """
    if len(rows) < 2:
        return None, "one rank alone has nothing to be compared with"
    work = {row.rank: row.work_ns for row in rows}
    unit_ns = median(row.work_ns + sum(row.collectives.values()) for row in rows)
    waits = {row.rank: row.wait_ns for row in rows if row.wait_ns is not None}
    by: FoundBy
    if waits:
        by = "least wait in collectives"
        rank = min(waits, key=lambda each: (waits[each], each))
        margin = _others(waits, rank) - waits[rank]
        how = "it waits that much less in collectives than the median of the others"
    else:
        by = "own time of phases"
        rank = max(work, key=lambda each: (work[each], -each))
        margin = work[rank] - _others(work, rank)
        how = "its phases take that much longer than the median of the others"
    if unit_ns <= 0 or margin <= DEADBAND * unit_ns:
        return None, f"no straggler: by {by}, ranks differ by less than {DEADBAND:.0%} of a unit"
    excess = work[rank] - _others(work, rank)
    over = {
        name: ns - _others({row.rank: row.phases.get(name, 0.0) for row in rows}, rank)
        for name, ns in next(row for row in rows if row.rank == rank).phases.items()
    }
    largest = max(over, key=lambda name: over[name], default="")
    share = over[largest] / excess if excess > 0 and largest else None
    cause = largest if share is not None and share >= CAUSE else ""
    found = Straggler(rank, by, margin, excess, cause, share, largest)
    cost = f"it costs at most {margin / 1e6:.3f} of {unit_ns / 1e6:.3f} ms a unit"
    return found, f"rank {rank} is the straggler: {cost}, because {how}; {_explained(found)}"


def _others(values: Mapping[int, float], rank: int) -> float:
    return median(value for each, value in values.items() if each != rank)


def _explained(found: Straggler) -> str:
    if found.share is None:
        return "its own work is not longer, so that no phase explains it: look at its network and host"
    share = f"{found.largest} explains {found.share:.0%} of the {found.excess_ns / 1e6:.3f} ms that its work is longer"
    if found.cause:
        return f"{share}: look there for more work, lower clocks or a busier host"
    return f"no one phase is the cause, {share}: look for lower clocks, another GPU or a busier host"


def scaling_of(reports: Sequence[RanksReport]) -> tuple[dict[int, float], tuple[str, ...]]:
    """Return frames a second by number of ranks, the fewest first, and which runs were left out and why.

    Runs count that differ from the first one in their number of ranks alone; notes name versions that differ too. There
    are no rates for fewer than two numbers of ranks.
    """
    rates: dict[int, float] = {}
    notes: list[str] = []
    for report in reports:
        reason = _differs(report, reports[0])
        if report.world in rates:
            reason = f"another run has {counted(report.world, 'rank')} too"
        if reason or report.frames_per_s is None:
            notes.append(f"{report.folder}: left out of scaling, {reason or 'frames a second are unknown'}")
            continue
        rates[report.world] = report.frames_per_s
        own, first = report.environment, reports[0].environment
        others = [key for key in sorted({*own, *first}) if own.get(key) != first.get(key)]
        notes += [f"{report.folder} differs from {reports[0].folder}: {', '.join(others)}"] if others else []
    return dict(sorted(rates.items())) if len(rates) > 1 else {}, tuple(notes)


def _differs(report: RanksReport, first: RanksReport) -> str:
    if not report.is_whole:
        return "not all its ranks could be read"
    both = report, first
    for name in ("name", "parallelism", "tags"):
        own, wanted = (getattr(each, name) for each in both)
        if own != wanted:
            return f"its {name} is {own!r:.60}, not {wanted!r:.60}"
    frames, usual = (
        max((row.frames / row.units for row in each.rows if row.units), default=0) for each in (report, first)
    )
    return f"a unit has {frames:g} frames, not {usual:g}" if frames != usual else ""
