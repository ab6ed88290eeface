"""Whether calls leave memory allocated (a leak)."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

_LEAST_BYTES = 2 << 20
_LEAST_SHARE = 0.0025
"""Growth in half of a window that is reported, in bytes and as a share of what the process holds; both are needed."""
_STEP_BYTES = 1 << 18
_REPEAT_S = 5.0
"""How long a suspected leak is measured again."""


def least_leak(held_bytes: int) -> float:
    """Bytes of growth in half of a window that matter to a process that holds `held_bytes`."""
    return max(_LEAST_BYTES, _LEAST_SHARE * held_bytes)


def suspected_leak(sizes: Sequence[int]) -> int:
    """Bytes that the second half of a window added, if memory grew in each of its quarters and by a lot; else 0.

    `sizes` are bytes held by the process at regular moments of the window.
    """
    if len(sizes) < 8:
        return 0
    quarters = [int(np.median(part)) for part in np.array_split(np.asarray(sizes), 4)]
    grown = sizes[-1] - sizes[len(sizes) // 2]
    climbing = all(later - earlier >= _STEP_BYTES for earlier, later in pairwise(quarters))
    return grown if climbing and grown >= least_leak(sizes[-1]) else 0


def confirmed_leak(
    sizes: Sequence[int], calls: int, calls_per_round: int, call_ns: int, kept_bytes: Callable[[int], int]
) -> int:
    """Bytes that half of the timed window added for good; 0 where the growth was the allocator's, or none.

    `calls` were made in the window, each of about `call_ns`. `kept_bytes(rounds)` runs that many rounds of
    `calls_per_round` calls and returns what they left allocated after the allocator gave back what it could. The growth
    within the window itself does not measure a leak: the heap fragments between kept and freed blocks, and was seen to
    grow to three times what was kept.
    """
    if not suspected_leak(sizes):
        return 0
    wanted = max(1, calls // 2 // calls_per_round)
    taken_s = wanted * calls_per_round * call_ns / 1e9
    rounds = max(1, round(wanted * min(1.0, _REPEAT_S / taken_s)))
    lasting = round(kept_bytes(rounds) * wanted / rounds)
    return lasting if lasting >= least_leak(sizes[-1]) else 0
