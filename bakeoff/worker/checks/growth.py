"""Detects growth over a timed window: of call times (a drift), and of memory that calls leave allocated (a leak)."""

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise

import numpy as np

from bakeoff.record.statistics import modes

LEAST_GROWTH = 1.10
"""Smallest slowdown over a whole window that is reported as a drift, as a ratio."""
LEAST_REPEATED = 4
_SEGMENTS = 10
_FEW = 100
"""Number of samples below which `climb` requires a higher rank correlation."""
LONGEST_REPEAT_S = 10.0
"""Time after which repeated calls end if they have become far slower; the calls made by then are enough to judge."""
_DRIFT_REPEAT_S = 1.0
"""Time for which a suspected drift is measured again: a virtual machine's slow moments last tens of ms."""
_LEAST_BYTES = 2 << 20
_LEAST_SHARE = 0.0025
"""Smallest growth in half of a window that is reported, in bytes and as a share of the process's memory: the larger."""
_STEP_BYTES = 1 << 18
_LEAK_REPEAT_S = 5.0
"""Time for which a suspected leak is measured again."""


def climb(samples: Sequence[int]) -> float:
    """Return the ratio of call times at the end of a window to those at its start; 1.0 if there is no clear trend.

    The lower quartiles of ten consecutive segments must rise nearly without exception (Kendall's tau): load from other
    processes makes some samples long, whereas a drift raises the short ones too. With few samples a burst or two can
    look like a trend, so a higher tau is required. The result is one false alarm in a thousand on a host that is busy a
    third of the time.
    """
    if len(samples) < 2 * _SEGMENTS:
        return 1.0
    lows = [float(np.percentile(part, 25)) for part in np.array_split(np.asarray(samples), _SEGMENTS)]
    pairs = [np.sign(later - earlier) for earlier, later in combinations(lows, 2)]
    tau = float(sum(pairs)) / len(pairs)
    steady = tau >= (0.7 if len(samples) >= _FEW else 0.9)
    return (lows[-1] + lows[-2]) / (lows[0] + lows[1]) if steady else 1.0


def is_steady(samples: Sequence[int], warmup: Sequence[int], blocks: Sequence[int], ratio: float) -> bool:
    """Return whether a window may end before its full time: calls are of one kind, and show no trend.

    The medians of each third of the samples and of the last half of `warmup` must differ by less than `ratio` from the
    median of all samples, and the medians of both halves of the throughput clock's `blocks` from the median of all
    blocks. Of 301 recorded windows on busy and quiet hosts, 79 would have ended early, after 1.5 s or later. Their
    medians differ from those of the whole windows by 0.3 % for half of them, and by 2.9 % at most.
    """
    parts = [*np.array_split(samples, 3), np.asarray(warmup[len(warmup) // 2 :])]
    return (
        all(_is_near(part, samples, ratio) for part in parts)
        and all(_is_near(part, blocks, ratio) for part in np.array_split(blocks, 2))
        and climb(samples) == 1.0
        and modes(samples) is None
    )


def _is_near(part: Sequence[int] | np.ndarray, whole: Sequence[int], ratio: float) -> bool:
    return bool(abs(np.median(part) / np.median(whole) - 1) < ratio)


def confirmed_drift(samples: Sequence[int], host_slowdown: float, time_again: Callable[[int], Sequence[int]]) -> float:
    """Return the ratio of call times at the window's end to those at its start if repeated calls confirm it; else 1.0.

    `samples` are nanoseconds in order. `host_slowdown` is the ratio by which a fixed piece of CPU work became slower in
    the same time. `time_again(count)` times that many calls now, or as many as `LONGEST_REPEAT_S` allows, and returns
    their nanoseconds: if these calls are as fast as at the start, there was no drift.
    """
    grown = climb(samples) / max(1.0, host_slowdown)
    if grown <= LEAST_GROWTH:
        return 1.0
    first = _lower_quartile(samples[: max(2, len(samples) // 10)])
    later = time_again(max(LEAST_REPEATED, round(_DRIFT_REPEAT_S * 1e9 / first)))
    return grown if _lower_quartile(later) / first > (1 + grown) / 2 else 1.0


def _lower_quartile(samples: Sequence[int]) -> int:
    return sorted(samples)[len(samples) // 4]


def _least_leak(held_bytes: int) -> float:
    """Return the smallest growth in half of a window, in bytes, that matters for a process that holds `held_bytes`."""
    return max(_LEAST_BYTES, _LEAST_SHARE * held_bytes)


def is_flat(sizes: Sequence[int], share: float) -> bool:
    """Return whether half of a window added less memory than `share` of the smallest growth that counts as a leak.

    `sizes` are the bytes held by the process at regular moments of the window.
    """
    return not sizes or sizes[-1] - sizes[len(sizes) // 2] < share * _least_leak(sizes[-1])


def suspected_leak(sizes: Sequence[int]) -> int:
    """Return the bytes that the second half of a window added if memory grew in each quarter and by a lot; else 0.

    `sizes` are the bytes held by the process at regular moments of the window.
    """
    if len(sizes) < 8:
        return 0
    quarters = [int(np.median(part)) for part in np.array_split(np.asarray(sizes), 4)]
    grown = sizes[-1] - sizes[len(sizes) // 2]
    climbing = all(later - earlier >= _STEP_BYTES for earlier, later in pairwise(quarters))
    return grown if climbing and grown >= _least_leak(sizes[-1]) else 0


def confirmed_leak(
    sizes: Sequence[int], calls: int, calls_per_round: int, call_ns: int, kept_bytes: Callable[[int], int]
) -> int:
    """Return the bytes that half of the timed window leaked; 0 if only the allocator's memory grew, or none did.

    `calls` were made in the window, each of about `call_ns`. `kept_bytes(rounds)` runs that many rounds of
    `calls_per_round` calls and returns the bytes that they left allocated after the allocator had returned its free
    memory. Growth within the window itself does not measure a leak: the heap fragments between kept and freed blocks,
    and was seen to grow to three times the kept bytes.
    """
    if not suspected_leak(sizes):
        return 0
    wanted = max(1, calls // 2 // calls_per_round)
    taken_s = wanted * calls_per_round * call_ns / 1e9
    rounds = max(1, round(wanted * min(1.0, _LEAK_REPEAT_S / taken_s)))
    lasting = round(kept_bytes(rounds) * wanted / rounds)
    return lasting if lasting >= _least_leak(sizes[-1]) else 0
