"""Rules about the rate of units, and about what disturbed it."""

from collections.abc import Iterator

from bakeoff.advice.evidence import Advice, Evidence
from bakeoff.models.words import counted

_SLOW_RESPONSE_MS = 250.0
_LEAST_TREND = 0.05
"""Of a unit, over all steady units."""
FEWEST_FOR_TREND = 12
LOOK_FOR_MEMORY = "run longer; if it goes on, look for growing memory"
"""What to do about units that become slower where nothing shows why."""
_CLOCK = {"throttled", "power-cap"}
_OTHERS = {"contention", "busy-host", "gpu-shared"}


def compiling(facts: Evidence) -> Iterator[Advice]:
    """Something is compiled while units run."""
    if not facts.compiled:
        return
    yield Advice(
        code="compiling",
        where="",
        evidence=f"{counted(len(facts.compiled), 'event')} of a compiler in steady units: "
        f"{', '.join(facts.compiled[:3])}",
        says="build every shape before the first unit; a changing shape or number recompiles",
        gain_ms=None,
        strength="strong",
    )


def trend(facts: Evidence) -> Iterator[Advice]:
    """Units become slower, or have not stopped becoming faster."""
    disturbed = next((text for code, text in facts.device_findings if code in _OTHERS | _CLOCK), "")
    slower = (disturbed, "mend that first, and measure again") if disturbed else ("", LOOK_FOR_MEMORY)
    yield from trend_of(facts.slope_ms, facts.steady_units, facts.unit_ms, slower)


def trend_of(
    slope_ms: tuple[float, float, float] | None, units: int, unit_ms: float, slower: tuple[str, str]
) -> Iterator[Advice]:
    """The same of a slope with its interval, over this many units of this mean time.

    `slower` is what else was seen where units become slower, "" for nothing, and what to do then.
    """
    if slope_ms is None or units < FEWEST_FOR_TREND:
        return
    slope, low, high = slope_ms
    change = slope * units
    if low <= 0 <= high or abs(change) < _LEAST_TREND * unit_ms:
        return
    seen, says = slower if slope > 0 else ("", "run longer: it is still settling")
    evidence = f"{slope:+.3f} ms from unit to unit [{low:+.3f}, {high:+.3f}], {change:+.1f} ms over the run"
    yield Advice(
        code="trend",
        where="",
        evidence=f"{evidence}; {seen}" if seen else evidence,
        says=says,
        gain_ms=None,
        strength="notice",
    )


def too_slow(facts: Evidence) -> Iterator[Advice]:
    """A unit takes longer than its frames last."""
    if not facts.frame_rate or not facts.frames:
        return
    period = 1000 * facts.frames / facts.frame_rate
    if facts.unit_ms <= period:
        return
    frames = "a frame" if facts.frames == 1 else f"{facts.frames} frames"
    known = "no mix in the records is faster"
    if facts.best_mix is not None and facts.best_mix[1] < facts.unit_ms:
        mix, ms, record = facts.best_mix
        known = f"the fastest in the records takes {ms:.1f} ms: {mix} ({record})"
    yield Advice(
        code="too-slow",
        where="",
        evidence=f"{facts.unit_ms:.1f} ms for {frames} of {period:.1f} ms at {facts.frame_rate:g} a second",
        says=f"{1 - period / facts.unit_ms:.0%} less is needed; {known}",
        gain_ms=None,
        strength="information",
    )


def response(facts: Evidence) -> Iterator[Advice]:
    """How late an action is seen."""
    if facts.unit == "call" or 2 * facts.unit_ms <= _SLOW_RESPONSE_MS:
        return
    yield Advice(
        code="response",
        where="",
        evidence=f"an action is seen one to two {facts.unit}s later: {facts.unit_ms:.0f} to {2 * facts.unit_ms:.0f} ms",
        says="only a shorter unit changes that",
        gain_ms=None,
        strength="information",
    )


def slow_clock(facts: Evidence) -> Iterator[Advice]:
    """The GPU lowered its clock."""
    for code, text in facts.device_findings:
        if code in _CLOCK:
            yield Advice(code, "", text, "cool it, or compare at a locked clock", None, "strong")


def contention(facts: Evidence) -> Iterator[Advice]:
    """Other processes took part of the machine."""
    for code, text in facts.device_findings:
        if code in _OTHERS:
            yield Advice("contention", "", text, "stop what else runs, and measure again", None, "notice")
