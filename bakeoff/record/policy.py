"""Durations and limits of measuring. They are constants of a sweep and are stored in each of its records.

A suite of bakeoff.toml may set each of them, and a sweep's `--row-timeout` replaces both build deadlines.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """Durations are in seconds. Where an entry is not the default, pages that show statuses say so."""

    warmup_s: float = 0.5
    """Warm-up lasts at least this long."""
    warmup_cap_s: float = 15.0
    """Warm-up ends after this time at the latest, with a finding if samples still drift."""
    settle_ratio: float = 0.05
    """Samples are steady if the medians of the last two windows differ by less than this share."""
    min_samples: int = 20
    """The latency clock takes at least this many samples, and for at least `min_s`."""
    min_s: float = 1.5
    full_s: float = 5.0
    """Least time instead of `min_s` if calls are of two kinds, show a trend or differ from those of warm-up, or if
    memory grows. Records that do not state it had no shorter time."""
    cap_s: float = 15.0
    """Both clocks together stop after this time and `throughput_s` even if the interval is wide, but not before five
    latency samples and three of throughput."""
    narrow_ratio: float = 0.01
    """Sampling stops when the half-width of the median's 95 % interval is below this share of the median."""
    throughput_s: float = 0.75
    """The throughput clock takes samples for this time, and as much longer as the latency clock does."""
    max_samples: int = 2000
    """Each clock keeps at most this many samples."""
    contention: float = 0.2
    """Share of all cores that other processes may take in the timed window before the row is unstable."""
    unsteady_ratio: float = 0.05
    """Two modes of the samples, and on a CPU the medians of both clocks, are a finding if they are further apart than
    this share of the smaller one; so is a half-width of the interval above this share of the median."""
    trace: bool = True
    """Whether a call is traced after the timing."""
    beside: bool = False
    """Whether builds on a GPU run beside others: kernels chosen by timing may then not be the best (`built-beside`)."""
    startup_deadline_s: float = 120.0
    build_deadline_s: float = 600.0
    large_build_deadline_s: float = 1200.0
    """Deadline of the build for weights of a GiB and more, or with a search of kernels (TensorRT, max-autotune). It and
    `build_deadline_s` hold for the reference outputs and the trace too."""
    phase_deadline_s: float = 300.0
    """Deadline of each other phase."""

    @property
    def window(self) -> dict[str, float]:
        """Numbers that decide when warm-up and sampling end, besides the smallest number of samples."""
        times = ("warmup_s", "warmup_cap_s", "min_s", "full_s", "cap_s", "throughput_s")
        return {name: getattr(self, name) for name in (*times, "settle_ratio", "narrow_ratio", "max_samples")}
