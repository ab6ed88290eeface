"""Whether a series of figures only wanders or really climbs: slow calls that get slower, memory that only grows."""

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np

LEAST_GROWTH = 1.10
"""A climb of less over a whole window is not called a drift."""
_LEAK_BYTES = 2 << 20
_LEAK_SHARE = 0.0025
_STEP_BYTES = 1 << 18
_SEGMENTS = 10
_FEW = 100


def climb(samples: Sequence[int]) -> float:
    """How much slower the end of a window is than its beginning, as a ratio; 1.0 where there is no climb to speak of.

    The lower quartiles of ten consecutive segments must rise nearly without exception (Kendall's tau): a neighbour's
    load makes some samples long, a drift raises the short ones too. Of few samples a burst or two may look like a
    climb, so that more is asked of them: one in a thousand on a host that is busy a third of the time.
    """
    if len(samples) < 2 * _SEGMENTS:
        return 1.0
    lows = [float(np.percentile(part, 25)) for part in np.array_split(np.asarray(samples), _SEGMENTS)]
    pairs = [np.sign(later - earlier) for earlier, later in combinations(lows, 2)]
    tau = float(sum(pairs)) / len(pairs)
    steady = tau >= (0.7 if len(samples) >= _FEW else 0.9)
    return (lows[-1] + lows[-2]) / (lows[0] + lows[1]) if steady else 1.0


def least_leak(size: int) -> float:
    """Bytes of growth in half of a window that matter to a process that holds `size`."""
    return max(_LEAK_BYTES, _LEAK_SHARE * size)


def leak(sizes: Sequence[int]) -> int:
    """Bytes that the second half of a window added, if memory grew in each of its quarters and by a lot; else 0."""
    if len(sizes) < 8:
        return 0
    quarters = [int(np.median(part)) for part in np.array_split(np.asarray(sizes), 4)]
    grown = sizes[-1] - sizes[len(sizes) // 2]
    climbing = all(later - earlier >= _STEP_BYTES for earlier, later in pairwise(quarters))
    return grown if climbing and grown >= least_leak(sizes[-1]) else 0
