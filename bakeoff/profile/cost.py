"""Measures the cost of an empty range on this machine."""

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns

from bakeoff.profile.recording import Recording
from bakeoff.profile.torch_state import DeviceClock

RANGES = 2_000
_A_SAMPLE = 8
"""Number of ranges in one sample: a unit, three phases and four steps."""
_MOST_NS = 200_000_000
_FEWEST = 5


def range_cost(make_device: Callable[[], DeviceClock | None] = lambda: None) -> float:
    """Return the cost of one empty range in nanoseconds: the median over 250 units of three phases and four steps each.

    The ranges are recorded as in a session, with CUDA events if `make_device` returns a clock. Fewer units are measured
    if they take more than 0.2 s together.
    """
    scratch = Recording()
    scratch.annotates = False  # 2,000 ranges would flood a trace that is being recorded
    scratch.device_clock = make_device()
    scratch.begin()
    samples: list[float] = []
    began = perf_counter_ns()
    while len(samples) < RANGES // _A_SAMPLE:
        started = perf_counter_ns()
        with scratch.unit(1):
            with scratch.phase("denoise"):
                for index in range(4):
                    with scratch.step(index, 1.0):
                        pass
            with scratch.phase("context"):
                pass
            with scratch.phase("decode"):
                pass
        ended = perf_counter_ns()
        samples.append((ended - started) / _A_SAMPLE)
        if ended - began > _MOST_NS and len(samples) >= _FEWEST:
            break
    scratch.end()
    return median(samples)
