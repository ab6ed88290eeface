"""Reduces many samples to the few points that a figure can show."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np


def envelope(samples_ns: Sequence[int], points: int) -> tuple[list[int], list[float]]:
    """Positions and milliseconds of at most `points` samples in their order.

    Each stretch keeps its least and its largest sample: taking every n-th would lose spikes.
    """
    values = np.asarray(samples_ns, dtype=np.int64)
    if len(values) <= points:
        return list(range(len(values))), (values / 1e6).tolist()
    bounds = np.linspace(0, len(values), points // 2 + 1).astype(int)
    kept: set[int] = set()
    for start, stop in pairwise(bounds.tolist()):
        stretch = values[start:stop]
        kept |= {start + int(stretch.argmin()), start + int(stretch.argmax())}
    positions = sorted(kept)
    return positions, (values[positions] / 1e6).tolist()
