"""Takes samples on an absolute schedule, keeps them in bounded series, and limits the cost of sampling."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import BinaryIO, TypeVar

from bakeoff.monitor.request import Probe, Reading, joined
from bakeoff.monitor.series import Histogram, Series
from bakeoff.record.monitor import SERIES, MonitorCost, Monitored, SeriesRecord

MOST_SHARE = 0.005
"""Largest share of an interval that one sample may take; above it the interval doubles."""
_COUNTED = 5
"""Number of samples whose median cost is compared with that share; odd."""


_Told = TypeVar("_Told")


class RawFile:
    """File of all samples as JSON lines.

    The first line is `{"monotonic_ns": ..., "wall_ns": ...}`, the same moment by both clocks. Every other line is a
    value, `{"t_ns": ..., "name": "gpu.power", "source": "GPU-...", "value": 312.5}`, with its time by the monotonic
    clock. The first error ends the file with a complete line, and `problem` gives the reason.
    """

    def __init__(self, path: str) -> None:
        self.problem = ""
        self._path, self._kept_bytes = path, 0
        self._file: BinaryIO | None = None
        with self._trying():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by close()
            self._write({"monotonic_ns": time.monotonic_ns(), "wall_ns": time.time_ns()})

    def write(self, t_ns: int, readings: Iterable[Reading]) -> None:
        """Write the values read at one time; they must be finite."""
        with self._trying():
            self._write(*({"t_ns": t_ns, **reading._asdict()} for reading in readings))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, *lines: Mapping[str, object]) -> None:
        data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        written = 0
        while self._file is not None and written < len(data):
            written += self._file.write(data[written:])
        self._kept_bytes += written

    @contextmanager
    def _trying(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            self.problem = f"not every sample is in {self._path}: it cannot be written ({reason})"
            if self._file is not None:
                with suppress(OSError):
                    self._file.truncate(self._kept_bytes)
                self.close()


class Group:
    """Probes that are sampled together."""

    def __init__(
        self, name: str, probes: Sequence[Probe], interval_s: float, cost_clock: Callable[[], int] | None = None
    ) -> None:
        """`cost_clock` returns the nanoseconds by which samples' cost is measured; None: the sampler's clock."""
        self.name, self.asked_s, self.cost_clock = name, interval_s, cost_clock
        self.all = self.probes = tuple(probes)
        """All probes; `probes` are those that have not failed."""
        self.interval_ns = round(interval_s * 1e9)
        self.due_ns = 0
        self.costs = Histogram()
        """Cost of each sample in nanoseconds."""
        self._recent: deque[int] = deque(maxlen=_COUNTED)
        self._doubled_for_ns = 0
        """Median cost of a sample when the interval was last doubled; 0 if it never was."""

    def took(self, ns: int) -> None:
        """Record that a sample cost `ns`; double the interval if the last ones took too large a share of it."""
        self.costs.add(ns)
        self._recent.append(ns)
        middle_ns = sorted(self._recent)[len(self._recent) // 2]
        if len(self._recent) == _COUNTED and middle_ns > MOST_SHARE * self.interval_ns:
            self._doubled_for_ns = middle_ns
            self.interval_ns *= 2
            self._recent.clear()

    def plan_next(self, origin_ns: int, now_ns: int) -> None:
        """Schedule the next sample after `now_ns`, a whole number of intervals from `origin_ns`."""
        self.due_ns = origin_ns + ((now_ns - origin_ns) // self.interval_ns + 1) * self.interval_ns

    def note(self) -> str:
        """Return a sentence that says why the group was not sampled as often as requested; "" if it was."""
        if not self._doubled_for_ns:
            return ""
        cost = f"{self.name}: one sample took {self._doubled_for_ns / 1e6:.3g} ms"
        limit = f"which is more than {MOST_SHARE:.1%} of the interval"
        return f"{cost}, {limit}, so it was lengthened to {self.interval_ns / 1e9:g} s"


class Sampler:
    """Samples groups of probes.

    The owner calls `sample_due` whenever the time that it returned has passed, then `finish`.
    """

    def __init__(
        self,
        groups: Sequence[Group],
        points: int,
        raw: RawFile | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        cpu_clock: Callable[[], int] = time.process_time_ns,
    ) -> None:
        """Keep at most `points` points of each series.

        Both clocks return nanoseconds; `cpu_clock` is the process's CPU time.
        """
        self._groups, self._points, self._raw = groups, max(2, points), raw
        self._clock, self._cpu_clock = clock, cpu_clock
        self._origin_ns = clock()
        for group in groups:
            group.due_ns = self._origin_ns
        self._series: dict[tuple[str, str], Series] = {}
        self._latest: dict[tuple[str, str], float] = {}
        self._samples = 0
        self._missing: dict[str, None] = {}

    def sample_due(self) -> int | None:
        """Take the samples that are due. Returns the nanoseconds until the next one; None if there are no groups."""
        for group in self._groups:
            if self._clock() >= group.due_ns:
                self._sample(group)
        if not self._groups:
            return None
        return max(0, min(group.due_ns for group in self._groups) - self._clock())

    def latest(self) -> Mapping[str, float]:
        """Return the last value of each series: by its name for the first source, by `name@source` for others."""
        found: dict[str, float] = {}
        for (name, source), value in self._latest.items():
            found[f"{name}@{source}" if name in found else name] = value
        return found

    def finish(self) -> Monitored:
        """Sample every group once more and return the report; times are those of the sampler's clock."""
        for group in self._groups:
            self._sample(group)
        probes = [(group, probe) for group in self._groups for probe in group.all]
        reports = [self._try(group, probe, lambda probe: probe.report()) for group, probe in probes]
        if self._raw is not None:
            self._raw.close()
            self._missing |= {self._raw.problem: None} if self._raw.problem else {}
        return replace(
            joined([Monitored(missing=tuple(self._missing)), *filter(None, reports)]),
            series=tuple(
                SeriesRecord(name, SERIES.get(name, ("", ""))[1], source, series.points())
                for (name, source), series in self._series.items()
            ),
            cost=MonitorCost(
                wall_ns=self._clock() - self._origin_ns,
                cpu_ns=self._cpu_clock(),
                samples=self._samples,
                asked_s={group.name: group.asked_s for group in self._groups},
                ran_s={group.name: group.interval_ns / 1e9 for group in self._groups},
                sample_ns={group.name: round(group.costs.percentile(0.5) or 0) for group in self._groups},
                note="; ".join(filter(None, (group.note() for group in self._groups))),
            ),
        )

    def _sample(self, group: Group) -> None:
        cost_clock = group.cost_clock or self._clock
        begun_ns, cost_ns = self._clock(), cost_clock()
        kept = [
            reading
            for probe in group.probes
            for reading in self._try(group, probe, lambda probe: tuple(probe.sample(begun_ns))) or ()
            if self._keep(begun_ns, reading)
        ]
        if self._raw is not None:
            self._raw.write(begun_ns, kept)
        group.took(cost_clock() - cost_ns)
        group.plan_next(self._origin_ns, self._clock())
        self._samples += 1

    def _try(self, group: Group, probe: Probe, what: Callable[[Probe], _Told]) -> _Told | None:
        """Call `what` with a probe.

        After an unexpected error, note it, stop sampling this probe alone, and return None.
        """
        try:
            return what(probe)
        except Exception as error:  # noqa: BLE001
            group.probes = tuple(each for each in group.probes if each is not probe)
            text = f"{type(probe).__name__} of group {group.name} ended: {type(error).__name__}: {error}"
            self._missing[text] = None
            return None

    def _keep(self, now_ns: int, reading: Reading) -> bool:
        key = reading.name, reading.source
        if not isfinite(reading.value):
            text = f"{reading.name} of {reading.source} had values that are not finite; they are left out"
            self._missing[text] = None
            return False
        self._latest[key] = reading.value
        self._series.setdefault(key, Series(self._points)).add(now_ns, reading.value)
        return True
