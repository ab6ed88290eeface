"""`bakeoff session overhead` on the terminal."""

from collections.abc import Iterator

from bakeoff.machine.terminal import lines_of
from bakeoff.models.words import counted
from bakeoff.profile.overhead import OFF, RANGES, Overhead


def render(found: Overhead) -> str:
    """What each way costs, how it was measured, what the account and the monitor say themselves, findings."""
    return lines_of(_lines(found))


def _lines(found: Overhead) -> Iterator[str]:
    width = max(len(cost.way) for cost in found.ways)
    for cost in found.ways:
        yield f"{cost.way:{width}}  {cost.typical} of a unit; by whole blocks {cost.whole}"
    confidence = min(cost.typical.confidence for cost in found.ways)
    yield (
        f"a unit of {found.off_ms:.2f} ms {OFF}; {counted(found.rounds, 'round')} of {counted(found.units, 'unit')} "
        f"of each way in random order, seed {found.seed}; {_interval(confidence, found.rounds)}"
    )
    if found.range_ns is not None:
        share = RANGES * found.range_ns / (found.off_ms * 1e6)
        range_us = found.range_ns / 1e3
        yield f"by the account of a session {RANGES} ranges of {range_us:.2f} us each, {share:.2%} of a unit"
    if found.monitor is not None:
        every = ", ".join(f"{group} every {seconds:g} s" for group, seconds in found.monitor.ran_s.items())
        note = f"; {found.monitor.note}" if found.monitor.note else ""
        yield f"the monitor's own process took {found.monitor.sampling_share:.2%} of one core sampling ({every}){note}"
    yield from (f"not monitored: {text}" for text in found.missing)
    yield from (f"finding {finding.code}: {finding.text}" for finding in found.findings)


def _interval(confidence: float, rounds: int) -> str:
    from bakeoff.record.verdict import LEAST_ROUNDS

    if rounds < LEAST_ROUNDS:
        return f"in brackets all rounds' ratios, since an interval takes {LEAST_ROUNDS}"
    return f"in brackets a {confidence:.1%} interval of the rounds' median"
