"""Samples of GPUs by NVML: one query for each requested quantity of each requested device.

Power, clocks, temperature and reasons for lower clocks belong to a whole GPU; a MIG instance has only its memory and
its SM activity (NVML API Reference, "Multi Instance GPU Management").
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bakeoff.machine.gpus import REASONS, Gpu, find_gpu
from bakeoff.models.grouping import grouped
from bakeoff.monitor.energy import Counter, Integral, device_energy
from bakeoff.monitor.request import MIB, GpuQuantity, Reading, joined
from bakeoff.record.monitor import DeviceEnergy, Monitored, ThrottleTime

COUNTER_PERIOD_NS = 100_000_000
"""Longest time seen between two steps of a GPU's energy counter."""
_LEAST_GPM_NS = 100_000_000
"""Two GPM samples must be further apart than this (NVML API Reference, nvmlGpmMetricsGet)."""
_PATIENCE = 3
"""Number of consecutive refusals after which a query that was answered before is given up."""
_POWER, _COUNTER = "gpu.power", "the energy counter"
_OF_WHOLE_GPU = ("temperature", "power", "clocks", "throttle")


class _Unknown(Exception):
    """Raised if a device does not support a metric and NVML has no error for it."""


@dataclass(slots=True)
class _Query:
    """One query of one device.

    It is given up if it is refused before its first answer, or `_PATIENCE` times in a row.
    """

    name: str
    """Name of the series, or of the quantity if it has no series."""
    question: Callable[[int], float | None]
    """Returns the value at a time in nanoseconds; None if there is nothing to record now."""
    refused_in_a_row: int = 0
    problem: str = ""
    """Reason for the last refusal."""
    answered_ns: int | None = None
    """Time of the last answer."""
    given_up: bool = False

    def put(self, now_ns: int, errors: tuple[type[Exception], ...]) -> float | None:
        if self.given_up:
            return None
        try:
            value = self.question(now_ns)
        except errors as error:
            self.refused_in_a_row += 1
            text = str(error)
            self.problem = text if isinstance(error, _Unknown) else f"NVML says '{text or type(error).__name__}'"
            self.given_up = self.answered_ns is None or self.refused_in_a_row == _PATIENCE
            return None
        self.refused_in_a_row, self.answered_ns = 0, now_ns
        return value

    def missing(self) -> str:
        """Return the report's words after the query's name, such as `is unknown: ...`; "" if it was not given up."""
        if not self.given_up:
            return ""
        after = "" if self.answered_ns is None else f" after {self.answered_ns / 1e9:.1f} s"
        return f"is unknown{after}: {self.problem}"


class _SmActivity:
    """Share of SMs that were busy between two GPM samples; GPUs have GPM since Hopper."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._metrics: Any = None
        self._last: Any = None
        self._spare: Any = None
        self._last_ns: int | None = None

    def __call__(self, now_ns: int) -> float | None:
        """Return the percentage since the previous call; None for the first call, or if the previous one is too recent.

        Raises NVML's errors and _Unknown.
        """
        library, gpu = self._gpu.library, self._gpu
        if self._metrics is None:
            self._prepare()
        if self._last_ns is not None and now_ns - self._last_ns <= _LEAST_GPM_NS:
            return None
        if gpu.handle is gpu.whole:
            library.nvmlGpmSampleGet(gpu.whole, self._spare)
        else:
            library.nvmlGpmMigSampleGet(gpu.whole, library.nvmlDeviceGetGpuInstanceId(gpu.handle), self._spare)
        before, before_ns = self._last, self._last_ns
        self._last, self._last_ns, self._spare = self._spare, now_ns, before
        if before_ns is None:
            return None
        self._metrics.sample1, self._metrics.sample2 = before, self._last
        library.nvmlGpmMetricsGet(self._metrics)
        metric = self._metrics.metrics[0]
        if metric.nvmlReturn != library.NVML_SUCCESS:
            raise _Unknown(f"GPM returned error {metric.nvmlReturn}")
        return float(metric.value)

    def _prepare(self) -> None:
        library = self._gpu.library
        if not library.nvmlGpmQueryDeviceSupport(self._gpu.whole).isSupportedDevice:
            raise _Unknown("this GPU has no GPM, which Hopper and newer ones have")
        self._last, self._spare = library.nvmlGpmSampleAlloc(), library.nvmlGpmSampleAlloc()
        self._metrics = library.c_nvmlGpmMetricsGet_t()
        self._metrics.version = library.NVML_GPM_METRICS_GET_VERSION
        self._metrics.numMetrics = 1
        self._metrics.metrics[0].metricId = library.NVML_GPM_METRIC_SM_UTIL


@dataclass(slots=True)
class _Device:
    """One GPU or MIG instance that is watched."""

    uuid: str
    gpu: Gpu
    whole_uuid: str
    counter: Counter | None
    """Energy counter; None if power is not requested or another instance of the same GPU reports its energy."""
    integral: Integral = field(default_factory=Integral)
    queries: Sequence[_Query] = ()
    reasons_told: int = 0
    """Number of samples in which the reasons for lower clocks were read."""
    reasons: dict[int, int] = field(default_factory=dict)
    """Number of these samples in which a reason was set, by the reason's bit."""

    def questions(self) -> Iterator[tuple[GpuQuantity, str, Callable[[int], float | None]]]:
        """Yield every possible query: its quantity, its name, and the function that reads the value."""
        library, part, whole = self.gpu.library, self.gpu.handle, self.gpu.whole
        sensor, clock = library.NVML_TEMPERATURE_GPU, library.NVML_CLOCK_SM
        yield "memory", "gpu.memory", lambda _: library.nvmlDeviceGetMemoryInfo(part).used / MIB
        yield "busy", "gpu.busy", lambda _: float(library.nvmlDeviceGetUtilizationRates(part).gpu)
        yield "sm_active", "gpu.sm_active", _SmActivity(self.gpu)
        yield "temperature", "gpu.temperature", lambda _: float(library.nvmlDeviceGetTemperature(whole, sensor))
        yield "power", _POWER, self._power_w
        if self.counter is not None:
            yield "power", _COUNTER, self._count
        yield "clocks", "gpu.clock", lambda _: float(library.nvmlDeviceGetClockInfo(whole, clock))
        yield "throttle", "the reasons for lower clocks", self._keep_reasons

    def _power_w(self, now_ns: int) -> float:
        watts: float = self.gpu.library.nvmlDeviceGetPowerUsage(self.gpu.whole) / 1e3
        self.integral.add(now_ns, watts)
        return watts

    def _count(self, now_ns: int) -> None:
        assert self.counter is not None
        self.counter.add(now_ns, self.gpu.library.nvmlDeviceGetTotalEnergyConsumption(self.gpu.whole))

    def _keep_reasons(self, _now_ns: int) -> None:
        told = self.gpu.library.nvmlDeviceGetCurrentClocksEventReasons(self.gpu.whole)
        self.reasons_told += 1
        for bit in REASONS:
            if told & bit:
                self.reasons[bit] = self.reasons.get(bit, 0) + 1

    def report(self) -> Monitored:
        """Return the device's energy, throttling and failures; queries that failed in the same way share a sentence."""
        energy: tuple[DeviceEnergy, ...] = ()
        if self.counter is not None:
            notes = [] if self.gpu.handle is self.gpu.whole else [f"of the whole GPU, of which {self.uuid} is a part"]
            ended = [
                query.answered_ns
                for query in self.queries
                if query.name in (_POWER, _COUNTER) and query.given_up and query.answered_ns is not None
            ]
            notes += [f"of the first {min(ended) / 1e9:.1f} s"] if ended else []
            energy = (device_energy(self.whole_uuid, self.counter, self.integral, "; ".join(notes)),)
        names = grouped((text, query.name) for query in self.queries if (text := query.missing()))
        shares = ((REASONS[bit], count / self.reasons_told) for bit, count in sorted(self.reasons.items()))
        return Monitored(
            energy=energy,
            throttled=tuple(ThrottleTime(self.uuid, reason, share) for reason, share in shares),
            missing=tuple(f"{', '.join(several)} of {self.uuid} {text}" for text, several in names.items()),
        )


class GpuProbe:
    """Probe of quantities of GPUs, which are given by their UUIDs."""

    def __init__(self, library: Any, uuids: Sequence[str], quantities: Collection[GpuQuantity]) -> None:
        """`library` is the initialised pynvml, or None if there is no driver."""
        self._begun_ns: int | None = None
        self._devices: list[_Device] = []
        self._errors = (_Unknown,) if library is None else (library.NVMLError, _Unknown)
        self._notes: list[str] = []
        counted: set[str] = set()
        for uuid in uuids:
            gpu = None if library is None else find_gpu(library, uuid)
            if gpu is None:
                reason = "no NVIDIA driver answers" if library is None else "NVML knows no device of that UUID"
                self._notes.append(f"{uuid} was not watched: {reason}")
                continue
            whole_uuid = uuid if gpu.whole is gpu.handle else str(gpu.ask("UUID") or uuid)
            shared = [quantity for quantity in _OF_WHOLE_GPU if quantity in quantities]
            if gpu.whole is not gpu.handle and shared:
                self._notes.append(f"{uuid} is a part of {whole_uuid}: {', '.join(shared)} are of the whole GPU")
            counts = "power" in quantities and whole_uuid not in counted
            device = _Device(uuid, gpu, whole_uuid, Counter(COUNTER_PERIOD_NS) if counts else None)
            device.queries = [_Query(name, how) for what, name, how in device.questions() if what in quantities]
            counted |= {whole_uuid}
            self._devices.append(device)

    def sample(self, now_ns: int) -> Iterator[Reading]:
        begun_ns = self._begun_ns = now_ns if self._begun_ns is None else self._begun_ns
        for device in self._devices:
            for query in device.queries:
                value = query.put(now_ns - begun_ns, self._errors)
                if value is not None:
                    yield Reading(query.name, device.uuid, value)

    def report(self) -> Monitored:
        return joined([Monitored(missing=tuple(self._notes)), *(device.report() for device in self._devices)])
