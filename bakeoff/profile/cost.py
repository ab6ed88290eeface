"""Measures the cost of an empty range on this machine, and limits what recording may cost a session."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns

from bakeoff.profile.recording import Recording
from bakeoff.profile.torch_state import DeviceClock

RANGES = 2_000
_A_SAMPLE = 8
"""Number of ranges in one sample: a unit, three phases and four steps."""
_MOST_NS = 200_000_000
_FEWEST = 5
LEAST_NS = 10_000_000
"""Cost of recording below which a session keeps all its levels of ranges, whatever their share of its time."""


def range_cost(make_device: Callable[[], DeviceClock | None] = lambda: None) -> float:
    """Return the cost of one empty range in nanoseconds: the median over 250 units of three phases and four steps each.

    The ranges are recorded as in a session, with CUDA events if `make_device` returns a clock. Fewer units are measured
    if they take more than 0.2 s together.
    """
    scratch = Recording()
    scratch.annotates = False  # 2,000 ranges would flood a trace that is being recorded
    scratch.device = make_device()
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


@dataclass(slots=True)
class Budget:
    """Limit on the cost of recording. Above it the finest level of ranges is dropped: first steps, then phases."""

    range_ns: float
    limit: float
    """Largest share of the session's time that recording may cost."""
    from_ns: int
    """Time from which ranges are counted: the start of the session, or when a level was last dropped."""
    from_count: int = 0

    def exceeded(self, recording: Recording) -> str | None:
        """Drop the finest level if ranges have cost more than the limit.

        Returns the dropped kind, such as `step`, or None.
        """
        now = recording.now()
        with recording.lock:
            cost_ns = (recording.count - self.from_count) * self.range_ns
            if cost_ns < LEAST_NS or cost_ns <= self.limit * (now - self.from_ns):
                return None
            if recording.has_steps:
                recording.has_steps, dropped = False, "step"
            elif recording.has_phases:
                recording.has_phases, dropped = False, "phase"
            else:
                return None
            share = cost_ns / max(1, now - self.from_ns)
            self.from_ns, self.from_count = now, recording.count
        recording.notes.add(
            "left-out",
            f"recording cost {share:.1%} of the time (a range {self.range_ns / 1e3:.1f} us), more than overhead_limit "
            f"{self.limit:.1%}: ranges of kind {dropped} are left out from then on; open fewer of them",
        )
        return dropped
