"""Advice from a profile: rules with a condition, a line of evidence, and the most that following it could gain.

A rule is a function from Evidence to Advice in one of the files here, and a line of RULES. It fires only on numbers
that were measured. It never says to use fewer layers, a bigger batch or another GPU: those change what is computed or
what it is for.
"""

from collections.abc import Iterable

from bakeoff.advice.evidence import Advice, Evidence
from bakeoff.advice.rate import compiling, contention, response, slow_clock, too_slow, trend
from bakeoff.advice.wait import copies, glue, launch_bound, sync_inside
from bakeoff.advice.work import audio_window, better_variant, context_head, far_from_floor, slow_kernel, vram

DEADBAND = 0.05
"""Of a unit: what could gain less is not said."""
RULES = (
    launch_bound,
    slow_kernel,
    better_variant,
    far_from_floor,
    copies,
    sync_inside,
    glue,
    audio_window,
    context_head,
    compiling,
    trend,
    too_slow,
    response,
    vram,
    slow_clock,
    contention,
)


def advise(evidence: Evidence) -> tuple[Advice, ...]:
    """What the rules say: first what could gain most, then what has no bound. Gains below the deadband are left out."""
    return worth_saying([one for rule in RULES for one in rule(evidence)], evidence.unit_ms)


def worth_saying(found: Iterable[Advice], unit_ms: float) -> tuple[Advice, ...]:
    """What is left of advice for a unit of this time, in its order."""
    least = DEADBAND * unit_ms
    kept = [one for one in found if one.gain_ms is None or one.gain_ms >= least]
    return tuple(sorted(kept, key=lambda one: (one.gain_ms is None, -(one.gain_ms or 0.0), one.code)))
