"""Noise levels of the OWL samplers, from 1 (noise) to 0 (clean)."""

from itertools import pairwise
from math import isfinite

from bakeoff.models.errors import BakeoffError

SHIFT = 3.0


def uniform(steps: int) -> tuple[float, ...]:
    """Levels 1 to 0 in equal steps: the sampler of the weights of June 2025 (owl-wms, branch `profiling`)."""
    return tuple(1 - step / steps for step in range(steps + 1))


def euler3(steps: int) -> tuple[float, ...]:
    """The levels of `uniform`, shifted by 3 towards noise: diffusers' FlowMatchEulerDiscreteScheduler(shift=3)."""
    return tuple(SHIFT * level / (1 + (SHIFT - 1) * level) for level in uniform(steps))


def read_schedule(text: str) -> tuple[float, ...]:
    """Levels that are typed as `1:0.25:0`. Raises BakeoffError unless they fall from 1 to 0."""
    try:
        levels = tuple(float(part) for part in text.split(":"))
    except ValueError:
        levels = ()
    falls = len(levels) > 1 and all(isfinite(level) and before > level for before, level in pairwise(levels))
    if not falls or levels[0] != 1 or levels[-1] != 0:
        raise BakeoffError(
            f"owl: schedule is '{text}'; write noise levels that fall from 1 to 0, as 1:0.25:0", code="bad-option"
        )
    return levels
