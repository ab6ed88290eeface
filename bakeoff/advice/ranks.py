"""Advice on the ranks of a distributed run: what its slowest rank costs, and what is lost as ranks are added.

Like the rules on profiles (bakeoff.advice.rules), these fire only on measured numbers. That ranks wait for one another
is not advice by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from bakeoff.advice.evidence import Advice, strength
from bakeoff.advice.rules import worth_saying
from bakeoff.record.ranks import RanksReport, Scaling, ScalingPoint

_SAME_SHARE = 0.02
"""A serial share that grows by no more than this counts as unchanged."""


@dataclass(frozen=True, slots=True)
class RanksFacts:
    """What the rules read about the ranks of a run."""

    report: RanksReport
    unit_ms: float
    scaling: Scaling | None
    """Comparison with runs of other numbers of ranks; None if there are none."""


def advise_ranks(report: RanksReport, scaling: Scaling | None = None) -> tuple[Advice, ...]:
    """Return the rules' advice, ordered and filtered like a profile's (bakeoff.advice.rules); none without units."""
    unit_ms = ms_a_unit(report)
    if unit_ms is None:
        return ()
    facts = RanksFacts(report, unit_ms, scaling)
    return worth_saying([one for rule in RULES for one in rule(facts)], unit_ms)


def straggler(facts: RanksFacts) -> Iterator[Advice]:
    """Advise on a rank that is slower than the others."""
    found = facts.report.straggler
    if found is None:
        return
    margin_ms = found.margin_ns / 1e6
    evidence = (
        f"it waits {margin_ms:.2f} ms a unit less in collectives than the median of the others"
        if found.found_by == "least wait in collectives"
        else f"its phases take {margin_ms:.2f} ms a unit longer than the median of the others"
    )
    if found.share is not None:
        evidence += (
            f"; {found.largest} has {found.share:.0%} of the {found.excess_ns / 1e6:.2f} ms that it works longer"
        )
    if found.cause:
        says = f"make {found.cause} there as short as on the others: look for more work, lower clocks or a busier host"
    elif found.share is not None:
        says = "all its phases are longer: look for lower clocks, another GPU or a busier host"
    else:
        says = "its own phases are not longer: name what runs between them, and look at its network and host"
    yield Advice(
        code="straggler",
        where=f"rank {found.rank}",
        evidence=evidence,
        says=says,
        gain_ms=margin_ms,
        strength=strength(margin_ms, facts.unit_ms),
    )


def scaling_loss(facts: RanksFacts) -> Iterator[Advice]:
    """Advise if the rate grows less than the number of ranks."""
    points = facts.scaling.points if facts.scaling is not None else ()
    here = next((point for point in points if point.folder == facts.report.folder), None)
    if here is None or here.serial_share is None or here.efficiency >= 1:
        return
    base = points[0]
    gain_ms = (1 - here.efficiency) * facts.unit_ms
    collective_ms = median(row.collective_ns for row in facts.report.rows) / 1e6
    together = f"; {collective_ms:.2f} ms a unit in collectives" if collective_ms > 0 else ""
    yield Advice(
        code="scaling-loss",
        where="",
        evidence=f"{here.world} ranks are {here.speedup:.2f} times as fast as {base.world}, {here.efficiency:.0%} of "
        f"{here.world / base.world:g} times; serial share {here.serial_share:.2f}{together}",
        says=_mend(points, here),
        gain_ms=gain_ms,
        strength=strength(gain_ms, facts.unit_ms),
    )


def _mend(points: tuple[ScalingPoint, ...], here: ScalingPoint) -> str:
    """Return what to do, by Karp and Flatt: serial work's share is the same at all sizes, communication's grows."""
    before = [point for point in points if point.serial_share is not None and point.world < here.world]
    if not before or before[-1].serial_share is None or here.serial_share is None:
        return "divide what every rank does alone, and overlap collectives with work; a third size tells which it is"
    grown = here.serial_share - before[-1].serial_share
    shares = f"{before[-1].serial_share:.2f} at {before[-1].world} ranks, {here.serial_share:.2f} at {here.world}"
    if grown > _SAME_SHARE:
        return f"the serial share grows ({shares}): send less, or overlap collectives with work"
    return f"the serial share does not grow ({shares}): divide what every rank does alone"


RULES = (straggler, scaling_loss)


def ms_a_unit(report: RanksReport) -> float | None:
    """Return a run's milliseconds per unit; None if no rank recorded any unit.

    In a data-parallel run it is the harmonic mean of the ranks' times, otherwise, as all ranks make one video, the
    slowest rank's time.
    """
    units = [row.unit_ns / 1e6 for row in report.rows if row.unit_ns is not None and row.unit_ns > 0]
    if not units:
        return None
    if report.config.parallelism == "data":
        return len(units) / sum(1 / ms for ms in units)
    return max(units)
