"""Measures what recording costs: an empty range on this machine, and whether a session spends more than it may."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns

from bakeoff.profile.recording import Recording
from bakeoff.profile.torch_state import DeviceClock

RANGES = 2_000
_A_SAMPLE = 8
"""Ranges of one sample: a unit of three phases and four steps."""
_MOST_NS = 200_000_000
_FEWEST = 5
LEAST_NS = 10_000_000
"""A session that recording has cost less than this keeps all its levels, whatever the share."""


def range_cost(make_device: Callable[[], DeviceClock | None] = lambda: None) -> float:
    """Nanoseconds of one empty range: median of 2,000, in units of three phases and four steps each.

    They take the same way as those of a session, CUDA events included. Fewer are made where they take longer than
    0.2 s together.
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
    """Decides when the finest level is left out: first steps, then phases."""

    range_ns: float
    limit: float
    """Share of the session's time."""
    from_ns: int
    """Since when ranges are counted: the start of the session, or when a level was dropped last."""
    from_count: int = 0

    def exceeded(self, recording: Recording) -> str | None:
        """Drop a level if ranges have cost more than the limit. Returns the kind that was dropped, as in `step`."""
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
            "level-dropped",
            f"recording cost {share:.1%} of the time (a range {self.range_ns / 1e3:.1f} us), more than overhead_limit "
            f"{self.limit:.1%}: ranges of kind {dropped} are left out from then on; open fewer of them",
        )
        return dropped
