"""Energy of one device, by its own counter and by the integral of its power.

A counter moves in steps, on NVIDIA GPUs every 10 to 100 ms (gpuopenanalytics/pynvml#18), and starts from zero when the
driver is loaded. Power is an average over one second on GPUs since Ampere, except GA100 (NVML API Reference,
nvmlDeviceGetPowerUsage). The two have been seen to contradict each other (ml-energy/zeus#181), so both are kept.
"""

from dataclasses import dataclass

from bakeoff.record.monitor import DeviceEnergy

_CONTRADICTION = 0.10
"""Difference between counter and integral, as a share of the larger one, above which a note reports it."""
_COARSE = 0.10
"""Share of the watched time that one step of a counter may take before a note states its accuracy."""
_LEAST_COMPARED_NS = 3_000_000_000
"""Shortest watched time over which counter and integral are compared, since power is an average over one second."""
_MOST_MW = 1_000_000
"""Largest power that a domain with a wrapping counter is assumed to draw: one kilowatt."""


@dataclass(slots=True)
class Counter:
    """Energy counter in millijoules, read at increasing times."""

    period_ns: int
    """Longest time between two steps of the counter."""
    range_mj: float | None = None
    """Value at which the counter wraps around to zero; None if it never does, so that it falls only at a reset."""
    _first_ns: int | None = None
    _last_ns: int = 0
    _last_mj: float = 0.0
    _moved_ns: int = 0
    """Time at which the present value was first read."""
    _still_ns: int = 0
    """Longest time for which the value stayed the same."""
    _total_mj: float = 0.0
    _problem: str = ""

    def add(self, now_ns: int, mj: float) -> None:
        """Add a reading.

        Readings after a reset, or after a gap in which the counter may have wrapped around, do not count.
        """
        if self._problem:
            return
        if self._first_ns is None:
            self._first_ns = self._last_ns = self._moved_ns = now_ns
            self._last_mj = mj
            return
        step = mj - self._last_mj
        if self.range_mj is not None:
            gap_ns = now_ns - self._last_ns
            if gap_ns * _MOST_MW > self.range_mj * 1e9:
                self._problem = (
                    f"its counter was not read for {gap_ns / 1e9:.0f} s, in which it may have wrapped around"
                )
                return
            step += self.range_mj if step < 0 else 0
        elif step < 0:
            self._problem = f"its counter was reset after {(now_ns - self._first_ns) / 1e9:.1f} s"
            return
        if step:
            self._moved_ns = now_ns
        self._still_ns = max(self._still_ns, now_ns - self._moved_ns)
        self._total_mj += step
        self._last_ns, self._last_mj = now_ns, mj

    def total(self) -> tuple[float | None, str]:
        """Return the millijoules between the first and last reading, or None, and a note on accuracy or the reason."""
        if self._problem or self._first_ns is None:
            return None, self._problem or "its counter was not read"
        watched_ns = self._last_ns - self._first_ns
        step_ns = max(self.period_ns, self._still_ns)
        if watched_ns >= step_ns and not self._total_mj:
            return None, f"its counter did not move in {_time(watched_ns)}"
        if watched_ns < step_ns:
            return None, f"its counter moves in steps of {_time(step_ns)}, and the time watched was {_time(watched_ns)}"
        if step_ns > _COARSE * watched_ns:
            return (
                self._total_mj,
                f"its counter is right to {step_ns / watched_ns:.0%}: it moves in steps of {_time(step_ns)}",
            )
        return self._total_mj, ""


@dataclass(slots=True)
class Integral:
    """Integral of power samples at increasing times, joined by straight lines."""

    watched_ns: int = 0
    _mj: float = 0.0
    _last: tuple[int, float] | None = None

    def add(self, now_ns: int, watts: float) -> None:
        if self._last is not None:
            before_ns, before_w = self._last
            self.watched_ns += now_ns - before_ns
            self._mj += (now_ns - before_ns) * 1e-6 * (before_w + watts) / 2
        self._last = now_ns, watts

    @property
    def mj(self) -> float | None:
        """Energy in millijoules; None for fewer than two samples."""
        return self._mj if self.watched_ns else None


def device_energy(device: str, counter: Counter, integral: Integral | None = None, note: str = "") -> DeviceEnergy:
    """Return the energy by counter and by integral, with a note if they contradict each other.

    `integral` is None for a device that does not report power. `note` is added to the other notes.
    """
    counter_mj, said = counter.total()
    integral_mj = None if integral is None else integral.mj
    notes = [note, said]
    if counter_mj is not None and integral_mj is not None and integral is not None:
        difference = abs(counter_mj - integral_mj) / max(counter_mj, integral_mj)
        if difference > _CONTRADICTION and integral.watched_ns >= _LEAST_COMPARED_NS:
            notes.append(
                f"its counter says {counter_mj / 1e3:.4g} J and the integral of its power {integral_mj / 1e3:.4g} J, "
                f"which differ by {difference:.0%}: neither is reliable"
            )
    return DeviceEnergy(device, counter_mj, integral_mj, "; ".join(filter(None, notes)))


def _time(ns: int) -> str:
    return f"{ns / 1e9:.3g} s" if ns >= 1_000_000_000 else f"{ns / 1e6:.3g} ms"
