"""Whether a worker's samples fit into the time that its parent saw pass, by a clock the worker cannot change."""

from collections.abc import Mapping

from bakeoff.process.phases import TIMED
from bakeoff.record.schema import Clock, Measurement

_SLOWEST, _FASTEST = 0.5, 1.1
"""Seconds of the worker's clock in a second of this process's."""
_EARLY_S, _LATE_S = 0.25, 0.05
"""How much shorter or longer the phases may seem because an event is read late on a busy host: at the begin or end."""
_LEAST_SHARE = 0.3
"""Of the timed phases that samples and checks fill where a call is much longer than the work around it. Where calls
take as long as the intervals between readings of memory and speed, each second one is not timed."""
_LONG_CALL_NS = 10_000_000


def clock_span(
    measurement: Measurement, phase_s: Mapping[str, float], worker_phase_s: Mapping[str, float]
) -> str | None:
    """Why samples and the time of their phases contradict each other; None if they do not, or nothing was timed.

    The phases of both clocks are taken together, because they may alternate.
    """
    seconds = sum(phase_s.get(phase, 0.0) for phase in TIMED)
    if measurement.latency is None or not seconds:
        return None
    by_worker = sum(worker_phase_s.get(phase, 0.0) for phase in TIMED)
    if by_worker and not _SLOWEST * (seconds - _LATE_S) <= by_worker <= _FASTEST * seconds + _EARLY_S:
        return f"the timed phases took {seconds:.2f} s, by the clock of the measured process {by_worker:.2f} s"
    covered = _sampled_s(measurement)
    if covered > _FASTEST * seconds + _EARLY_S:
        return f"samples add up to {covered:.2f} s, but the timed phases took {seconds:.2f} s"
    if measurement.window_checks is not None:
        covered += measurement.window_checks.seconds
    figures = measurement.latency.figures
    if figures is not None and figures.median_ms * 1e6 >= _LONG_CALL_NS and covered < _LEAST_SHARE * seconds:
        return f"samples and checks add up to {covered:.2f} s only, but the timed phases took {seconds:.2f} s"
    return None


def _sampled_s(measurement: Measurement) -> float:
    """Seconds of all calls in the timed phases, those included whose samples were not kept."""
    total = 0.0
    for clock in (measurement.latency, measurement.throughput):
        if clock is not None and clock.samples_ns:
            total += _sampled_ns(clock) / 1e9
    return total


def _sampled_ns(clock: Clock) -> float:
    """Of one clock. Where blocks were ended early, which ones is not recorded: the least time that all calls took."""
    most = clock.calls_per_sample
    all_calls = len(clock.samples_ns) * most
    if not 0 < clock.calls < all_calls:
        return sum(clock.samples_ns) / len(clock.samples_ns) * max(clock.calls, all_calls)
    total, left = 0, clock.calls
    for sample in sorted(clock.samples_ns):
        total += sample * min(left, most)
        left -= min(left, most)
    return total
