"""Steady state: calls until compilation has ended and the samples agree."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from bakeoff.backends.backend import Call
from bakeoff.worker.clocks.clock import TimingConfig, time_checked_call

Activity = Callable[[], Mapping[str, int]]
"""Reads counters that move when anything is compiled, tuned or captured."""

_LEAST_WINDOW = 3
_LARGEST_WINDOW = 200


def warm_up(calls: Sequence[Call], activity: Activity, config: TimingConfig) -> tuple[list[int], bool]:
    """Call until no counter moves and the last samples agree with the ones before, for `warmup_s` at least.

    Returns the samples in nanoseconds, at most the newest `max_samples`, and whether steady state was reached before
    `warmup_cap_s`. Every set of inputs is called once at least.
    """
    policy = config.policy
    samples: list[int] = []
    started = time.monotonic()
    quiet_since, counters = 0, dict(activity())
    while True:
        samples.append(time_checked_call(calls, len(samples), config))
        elapsed = time.monotonic() - started
        enough = max(2 * window_of(samples), len(calls))
        if elapsed >= policy.warmup_s and len(samples) - quiet_since >= enough:
            moved = dict(activity())
            if moved != counters:
                counters, quiet_since = moved, len(samples)
            elif agree(samples, policy.settle_ratio):
                return samples[-policy.max_samples :], True
        if elapsed >= policy.warmup_cap_s and len(samples) >= len(calls):
            return samples[-policy.max_samples :], False


def window_of(samples: Sequence[int]) -> int:
    """How many of the newest samples are compared with as many before them."""
    return max(_LEAST_WINDOW, min(len(samples) // 4, _LARGEST_WINDOW))


def agree(samples: Sequence[int], ratio: float) -> bool:
    """Whether the medians of the last two windows differ by less than this share; both must have samples."""
    window = window_of(samples)
    return abs(median(samples[-window:]) / median(samples[-2 * window : -window]) - 1) < ratio
