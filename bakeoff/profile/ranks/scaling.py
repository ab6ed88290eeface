"""Computes how a pipeline's rate grows with its ranks, from runs that differ in world size alone."""

from collections.abc import Sequence

from bakeoff.models.words import counted
from bakeoff.record.ranks import RanksConfig, RanksReport, Scaling, ScalingPoint


def scaling_of(reports: Sequence[RanksReport]) -> Scaling | None:
    """Return speed-up, efficiency and serial share over the smallest world size; no points for fewer than two sizes.

    Runs count that have the first report's configuration. Notes name the others, and runs without a rate, with ranks
    missing, or of a size that occurred already. The result is None if there are neither points nor notes. The serial
    share is Karp's and Flatt's (Measuring Parallel Processor Performance, CACM 33(5), 1990), which tells a serial part
    (equal at all sizes) from overhead (growing with size).
    """
    notes: list[str] = []
    kept: dict[int, tuple[RanksReport, float]] = {}
    for report in reports:
        rate = report.frames_per_s
        why = _why_not(report, reports[0].config)
        if why or rate is None:
            notes.append(f"{report.folder}: left out of scaling, {why or 'frames a second are unknown'}")
        elif report.world in kept:
            notes.append(f"{report.folder}: left out of scaling, another run has {counted(report.world, 'rank')} too")
        else:
            kept[report.world] = (report, rate)
    if len(kept) < 2:
        return Scaling(0, (), tuple(notes)) if notes and len(reports) > 1 else None
    base_world = min(kept)
    base, base_rate = kept[base_world]
    points = tuple(
        _point(report, rate, base_rate, report.world / base_world) for _, (report, rate) in sorted(kept.items())
    )
    environments = [report.config.environment for report, _ in kept.values()]
    differing = sorted(
        key
        for key in dict.fromkeys(key for each in environments for key in each)
        if len({each.get(key) for each in environments}) > 1
    )
    if differing:
        notes.append(f"differs from {base.folder}: {', '.join(differing)}")
    return Scaling(base_world, points, tuple(notes))


def serial_share(speedup: float, ranks: float) -> float:
    """Return (1/S - 1/p) / (1 - 1/p) for a speed-up S over p times as many ranks, p above 1."""
    return (1 / speedup - 1 / ranks) / (1 - 1 / ranks)


def _point(report: RanksReport, rate: float, base_rate: float, ratio: float) -> ScalingPoint:
    speedup = rate / base_rate
    return ScalingPoint(
        folder=report.folder,
        world=report.world,
        frames_per_s=rate,
        speedup=speedup,
        efficiency=speedup / ratio,
        serial_share=serial_share(speedup, ratio) if ratio > 1 else None,
    )


def _why_not(report: RanksReport, wanted: RanksConfig) -> str:
    found = report.config
    if not report.is_whole:
        return "not all its ranks could be read"
    if found.name != wanted.name:
        return f"its session is {found.name!r:.60}, not {wanted.name!r:.60}"
    if found.parallelism != wanted.parallelism:
        return f"its parallelism is {found.parallelism}, not {wanted.parallelism}"
    for key in dict.fromkeys((*wanted.tags, *found.tags)):
        if found.tags.get(key) != wanted.tags.get(key):
            return f"its tag {key!r:.60} is {found.tags.get(key)!r:.60}, not {wanted.tags.get(key)!r:.60}"
    if found.frames_per_unit != wanted.frames_per_unit:
        return f"a unit has {found.frames_per_unit} frames, not {wanted.frames_per_unit}"
    return ""
