"""Samples of GPUs by NVML: one query for each quantity that is asked, of the devices asked and no others.

Power, clocks, temperature and reasons for lower clocks belong to a whole GPU; a MIG instance has only its memory and
its SM activity (NVML API Reference, "Multi Instance GPU Management").
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bakeoff.machine.gpus import REASONS, ask, find_gpu
from bakeoff.monitor.energy import Counter, Integral, device_energy
from bakeoff.monitor.request import MIB, GpuQuantity, ProbeReport, Reading
from bakeoff.record.monitor import DeviceEnergy, ThrottleTime

COUNTER_PERIOD_NS = 100_000_000
"""Longest time seen between two steps of a GPU's energy counter."""
_LEAST_GPM_NS = 100_000_000
"""Two GPM samples must lie further apart (NVML API Reference, nvmlGpmMetricsGet)."""
_PATIENCE = 3
"""Refusals in a row after which a question that was answered before is asked no more."""
_POWER, _COUNTER = "gpu.power", "the energy counter"
_OF_WHOLE_GPU = ("temperature", "power", "clocks", "throttle")


class _Unknown(Exception):
    """Why a device does not tell something, where it is no error of NVML."""


@dataclass(slots=True)
class _Query:
    """One question about one device. One that is refused at first is not asked again."""

    name: str
    """The series' name, or what else it is about."""
    question: Callable[[int], float | None]
    """Given the time. None where there is nothing to record of it now."""
    errors: tuple[type[Exception], ...]
    asked: int = 0
    refused: int = 0
    refused_in_a_row: int = 0
    problem: str = ""
    """The last reason for a refusal."""
    answered_ns: int | None = None
    """Time of the last answer."""
    given_up: bool = False

    def put(self, now_ns: int) -> float | None:
        if self.given_up:
            return None
        self.asked += 1
        try:
            value = self.question(now_ns)
        except self.errors as error:
            self.refused += 1
            self.refused_in_a_row += 1
            self.problem = (
                str(error) if isinstance(error, _Unknown) else f"NVML says '{str(error) or type(error).__name__}'"
            )
            self.given_up = self.answered_ns is None or self.refused_in_a_row == _PATIENCE
            return None
        self.refused_in_a_row, self.answered_ns = 0, now_ns
        return value

    def known_s(self, begun_ns: int) -> float | None:
        """Seconds from `begun_ns` after which it was not answered any more; None where it was, or never was."""
        return (self.answered_ns - begun_ns) / 1e9 if self.given_up and self.answered_ns is not None else None

    def missing(self, begun_ns: int) -> str:
        """What is unknown for this question's sake, to be preceded by names; "" where it was answered every time."""
        if not self.refused:
            return ""
        known_s = self.known_s(begun_ns)
        if known_s is not None:
            return f"is unknown after {known_s:.1f} s: {self.problem}"
        if self.given_up:
            return f"is unknown: {self.problem}"
        return f"was not told {self.refused} of {self.asked} times: {self.problem}"


class _SmActivity:
    """Share of SMs that were busy between two samples of GPM, which GPUs since Hopper have."""

    def __init__(self, library: Any, gpu: Any, whole: Any) -> None:
        self._library, self._whole = library, whole
        self._instance = None if gpu is whole else gpu
        self._metrics: Any = None
        self._before: tuple[int, Any] | None = None
        self._spare: Any = None

    def __call__(self, now_ns: int) -> float | None:
        """Percent since the call before; None where that is too short ago. Raises NVML's errors and _Unknown."""
        library = self._library
        if self._metrics is None:
            self._prepare()
        if self._before is not None and now_ns - self._before[0] <= _LEAST_GPM_NS:
            return None
        sample, self._spare = self._spare or library.nvmlGpmSampleAlloc(), None
        if self._instance is None:
            library.nvmlGpmSampleGet(self._whole, sample)
        else:
            part = library.nvmlDeviceGetGpuInstanceId(self._instance)
            library.nvmlGpmMigSampleGet(self._whole, part, sample)
        before, self._before = self._before, (now_ns, sample)
        if before is None:
            return None
        self._spare = before[1]
        self._metrics.sample1, self._metrics.sample2 = before[1], sample
        library.nvmlGpmMetricsGet(self._metrics)
        metric = self._metrics.metrics[0]
        if metric.nvmlReturn != library.NVML_SUCCESS:
            raise _Unknown(f"GPM returned error {metric.nvmlReturn}")
        return float(metric.value)

    def _prepare(self) -> None:
        library = self._library
        if not library.nvmlGpmQueryDeviceSupport(self._whole).isSupportedDevice:
            raise _Unknown("this GPU has no GPM, which Hopper and newer ones have")
        self._metrics = library.c_nvmlGpmMetricsGet_t()
        self._metrics.version = library.NVML_GPM_METRICS_GET_VERSION
        self._metrics.numMetrics = 1
        self._metrics.metrics[0].metricId = library.NVML_GPM_METRIC_SM_UTIL


@dataclass(slots=True)
class _Device:
    """One GPU or MIG instance that is watched."""

    uuid: str
    gpu: Any
    whole: Any
    whole_uuid: str
    queries: list[_Query] = field(default_factory=list)
    counter: Counter | None = None
    """None where energy is not asked, or another instance of the same GPU tells it."""
    integral: Integral = field(default_factory=Integral)
    reasons_told: int = 0
    """Samples that told reasons for lower clocks, or that there was none."""
    reasons: dict[int, int] = field(default_factory=dict)
    """In how many of them a reason was set, by its bit."""

    def power_w(self, milliwatts: int, now_ns: int) -> float:
        self.integral.add(now_ns, milliwatts / 1e3)
        return milliwatts / 1e3

    def keep_reasons(self, reasons: int) -> None:
        self.reasons_told += 1
        for bit in REASONS:
            if reasons & bit:
                self.reasons[bit] = self.reasons.get(bit, 0) + 1

    def energy(self, begun_ns: int) -> Iterator[DeviceEnergy]:
        if self.counter is not None:
            notes = [] if self.gpu is self.whole else [f"of the whole GPU, of which {self.uuid} is a part"]
            known = [query.known_s(begun_ns) for query in self.queries if query.name in (_POWER, _COUNTER)]
            ended = [seconds for seconds in known if seconds is not None]
            if ended:
                notes.append(f"of the first {min(ended):.1f} s")
            yield device_energy(self.whole_uuid, self.counter, self.integral, "; ".join(notes))

    def throttled(self) -> Iterator[ThrottleTime]:
        for bit, count in sorted(self.reasons.items()):
            yield ThrottleTime(self.uuid, REASONS[bit], count / self.reasons_told)

    def missing(self, begun_ns: int) -> Iterator[str]:
        """One sentence for all questions that ended in the same way."""
        names: dict[str, list[str]] = {}
        for query in self.queries:
            if text := query.missing(begun_ns):
                names.setdefault(text, []).append(query.name)
        for text, several in names.items():
            yield f"{', '.join(several)} of {self.uuid} {text}"


class GpuProbe:
    """Quantities of GPUs that are known by their UUIDs."""

    def __init__(self, library: Any, uuids: Sequence[str], quantities: Collection[GpuQuantity]) -> None:
        """`library` is the initialised pynvml, or None where there is no driver."""
        self._begun_ns: int | None = None
        self._devices: list[_Device] = []
        self._notes: list[str] = []
        counted: set[str] = set()
        for uuid in uuids:
            gpu = None if library is None else find_gpu(library, uuid)
            if gpu is None:
                reason = "no NVIDIA driver answers" if library is None else "NVML knows no device of that UUID"
                self._notes.append(f"{uuid} was not watched: {reason}")
                continue
            handle, whole = gpu.handle, gpu.whole
            whole_uuid = uuid if whole is handle else str(ask(library, "nvmlDeviceGetUUID", whole) or uuid)
            device = _Device(uuid, handle, whole, whole_uuid)
            if "power" in quantities and whole_uuid not in counted:
                counted.add(whole_uuid)
                device.counter = Counter(COUNTER_PERIOD_NS)
            device.queries += _queries(library, device, quantities)
            shared = [quantity for quantity in _OF_WHOLE_GPU if quantity in quantities]
            if whole is not handle and shared:
                self._notes.append(f"{uuid} is a part of {whole_uuid}: {', '.join(shared)} are of the whole GPU")
            self._devices.append(device)

    def sample(self, now_ns: int) -> Iterator[Reading]:
        if self._begun_ns is None:
            self._begun_ns = now_ns
        for device in self._devices:
            for query in device.queries:
                value = query.put(now_ns)
                if value is not None:
                    yield Reading(query.name, device.uuid, value)

    def report(self) -> ProbeReport:
        begun_ns = self._begun_ns or 0
        return ProbeReport(
            tuple(energy for device in self._devices for energy in device.energy(begun_ns)),
            tuple(time for device in self._devices for time in device.throttled()),
            (*self._notes, *(text for device in self._devices for text in device.missing(begun_ns))),
        )


def _queries(library: Any, device: _Device, quantities: Collection[GpuQuantity]) -> Iterator[_Query]:
    errors = (library.NVMLError, _Unknown)
    gpu, whole, counter = device.gpu, device.whole, device.counter

    def energy(now_ns: int) -> None:
        if counter is not None:
            counter.add(now_ns, library.nvmlDeviceGetTotalEnergyConsumption(whole))

    def power(now_ns: int) -> float:
        return device.power_w(library.nvmlDeviceGetPowerUsage(whole), now_ns)

    def reasons(_now_ns: int) -> None:
        device.keep_reasons(library.nvmlDeviceGetCurrentClocksEventReasons(whole))

    if "memory" in quantities:
        yield _Query("gpu.memory", lambda _: library.nvmlDeviceGetMemoryInfo(gpu).used / MIB, errors)
    if "busy" in quantities:
        yield _Query("gpu.busy", lambda _: float(library.nvmlDeviceGetUtilizationRates(gpu).gpu), errors)
    if "sm_active" in quantities:
        yield _Query("gpu.sm_active", _SmActivity(library, gpu, whole), errors)
    if "temperature" in quantities:
        sensor = library.NVML_TEMPERATURE_GPU
        yield _Query("gpu.temperature", lambda _: float(library.nvmlDeviceGetTemperature(whole, sensor)), errors)
    if "power" in quantities:
        yield _Query(_POWER, power, errors)
    if counter is not None:
        yield _Query(_COUNTER, energy, errors)
    if "clocks" in quantities:
        clock = library.NVML_CLOCK_SM
        yield _Query("gpu.clock", lambda _: float(library.nvmlDeviceGetClockInfo(whole, clock)), errors)
    if "throttle" in quantities:
        yield _Query("the reasons for lower clocks", reasons, errors)
