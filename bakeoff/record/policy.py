"""Durations and limits of measuring: constants of a sweep, stored in each of its records."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Durations in seconds. Sweeps use the defaults; tests shorten them."""

    warmup_s: float = 1.0
    """Warm-up lasts at least this long."""
    warmup_cap_s: float = 15.0
    """Warm-up ends here even if samples still drift, which is a finding."""
    settle_ratio: float = 0.05
    """Steady: the medians of the last two windows of samples differ by less."""
    min_samples: int = 20
    min_s: float = 5.0
    cap_s: float = 15.0
    """The latency clock stops here whatever its interval, but not before five samples."""
    narrow_ratio: float = 0.01
    """Stop early once the half-width of the median's 95 % interval is below this share of the median."""
    throughput_s: float = 3.0
    """Length of the throughput clock's window."""
    max_samples: int = 2000
    contention: float = 0.2
    """Share of all cores that other processes may take in the timed window before the row is unstable."""
    trace: bool = True
    """Make a traced build afterwards, for times by kernel."""
    startup_deadline_s: float = 120.0
    build_deadline_s: float = 600.0
    large_build_deadline_s: float = 1200.0
    """For weights of a GiB and more."""
    phase_deadline_s: float = 300.0
    """For each other phase."""
