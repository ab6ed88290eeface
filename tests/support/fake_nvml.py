"""NVML's binding with GPUs made up by a test, which answer what they are given and refuse the rest.

It imitates pynvml 13.615 (nvidia-ml-py): functions raise subclasses of NVMLError, nvmlDeviceGetUUID and
nvmlDeviceGetHandleByUUID use UUIDs with their prefix, and a MIG instance is a device without clocks or power. A handle
that is no device's is refused by the driver (NVML API Reference, NVML_ERROR_INVALID_ARGUMENT), and so is every query of
a GPU that fell off the bus (NVML_ERROR_GPU_IS_LOST).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    """Base of all of NVML's errors."""


class NVMLError_NotSupported(NVMLError):  # noqa: N801  # pynvml's name
    """The device cannot tell."""


class NVMLError_NotFound(NVMLError):  # noqa: N801
    """No device of that UUID."""


class NVMLError_LibraryNotFound(NVMLError):  # noqa: N801
    """There is no driver."""


class NVMLError_GpuIsLost(NVMLError):  # noqa: N801
    """The GPU has fallen off the bus or is otherwise inaccessible."""


class NVMLError_NoPermission(NVMLError):  # noqa: N801
    """This user may not ask."""


class NVMLError_InvalidArgument(NVMLError):  # noqa: N801
    """The handle is no device's."""


@dataclass
class FakeGpu:
    """One GPU. `facts` are what functions return, by their names without `nvmlDeviceGet`; absent ones are refused.

    A value that is a list is used up from its front, one a call, down to its last. Functions are called, exceptions
    raised.
    """

    uuid: str
    facts: dict[str, Any] = field(default_factory=dict)
    instances: "Sequence[FakeGpu]" = ()
    """MIG instances."""

    def tell(self, name: str) -> Any:
        if name not in self.facts:
            raise NVMLError_NotSupported
        value = self.facts[name]
        if isinstance(value, list):
            value = value.pop(0) if len(value) > 1 else value[0]
        if callable(value):
            value = value()
        if isinstance(value, Exception):
            raise value
        return value


def running(pid: int, used: int | None = None) -> SimpleNamespace:
    """A process on a GPU, and the bytes that it uses; None: they are hidden."""
    return SimpleNamespace(pid=pid, usedGpuMemory=used)


def whole_gpu(uuid: str, name: str = "NVIDIA H100 80GB HBM3", **facts: Any) -> FakeGpu:
    """A GPU that tells everything a record wants."""
    told: dict[str, Any] = {
        "Name": name,
        "MemoryInfo": SimpleNamespace(total=80 << 30, free=79 << 30, used=1 << 30),
        "CudaComputeCapability": (9, 0),
        "MigMode": (0, 0),
        "ComputeMode": 0,
        "PersistenceMode": 1,
        "EnforcedPowerLimit": 700_000,
        "PowerManagementDefaultLimit": 700_000,
        "ClockInfo": 1980,
        "PowerUsage": 500_000,
        "Temperature": 50,
        "CurrentClocksEventReasons": 0,
        "ComputeRunningProcesses": [[]],
        "TotalEnergyConsumption": 1_000_000,
        "ViolationStatus": SimpleNamespace(violationTime=0),
        "UtilizationRates": SimpleNamespace(gpu=37, memory=11),
        "GpmSmUtil": 12.5,
    }
    return FakeGpu(f"GPU-{uuid}", told | facts)


@dataclass
class FakeNvml:
    """Stands in for the module pynvml."""

    gpus: Sequence[FakeGpu]
    driver: str | None = "580.159.03"
    """None: there is no driver."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Each query of a device: its name as in `facts`, and the device's UUID."""

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0
    NVML_PERF_POLICY_POWER = 0
    NVML_PERF_POLICY_THERMAL = 1
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_GPM_METRIC_SM_UTIL = 2
    NVML_GPM_METRICS_GET_VERSION = 1

    def nvmlInit(self) -> None:  # noqa: N802
        if self.driver is None:
            raise NVMLError_LibraryNotFound

    def nvmlShutdown(self) -> None:  # noqa: N802
        pass

    def nvmlSystemGetDriverVersion(self) -> str | None:  # noqa: N802
        return self.driver

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:  # noqa: N802
        for gpu in self.gpus:
            for device in (gpu, *gpu.instances):
                if device.uuid == uuid:
                    return device
        raise NVMLError_NotFound

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> str:  # noqa: N802
        return gpu.uuid

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:  # noqa: N802
        return 7 if gpu.instances else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> FakeGpu:  # noqa: N802
        if index >= len(gpu.instances):
            raise NVMLError_NotFound
        return gpu.instances[index]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, instance: FakeGpu) -> FakeGpu:  # noqa: N802
        for gpu in self.gpus:
            if instance in gpu.instances:
                return gpu
        raise NVMLError_NotSupported

    def nvmlGpmQueryDeviceSupport(self, gpu: FakeGpu) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(isSupportedDevice=int("GpmSmUtil" in gpu.facts))

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, nvmlReturn=-1, value=-1.0)])

    def nvmlGpmSampleAlloc(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(value=None)

    def nvmlGpmSampleGet(self, gpu: FakeGpu, sample: SimpleNamespace) -> SimpleNamespace:  # noqa: N802
        self.asked.append(("GpmSmUtil", gpu.uuid))
        sample.value = gpu.tell("GpmSmUtil")
        return sample

    def nvmlGpmMigSampleGet(self, gpu: FakeGpu, part: int, sample: SimpleNamespace) -> SimpleNamespace:  # noqa: N802
        return self.nvmlGpmSampleGet(gpu.instances[part], sample)

    def nvmlGpmMetricsGet(self, asked: SimpleNamespace) -> None:  # noqa: N802
        """What the later of two samples was told: a test gives the value between it and the one before."""
        if (asked.version, asked.numMetrics, asked.metrics[0].metricId) != (1, 1, self.NVML_GPM_METRIC_SM_UTIL):
            raise NVMLError_InvalidArgument
        if asked.sample1 is asked.sample2 or None in (asked.sample1.value, asked.sample2.value):
            raise NVMLError_InvalidArgument
        asked.metrics[0].nvmlReturn, asked.metrics[0].value = self.NVML_SUCCESS, asked.sample2.value

    def __getattr__(self, name: str) -> Any:
        prefix = "nvmlDeviceGet"
        if not name.startswith(prefix):
            raise AttributeError(name)

        def query(gpu: FakeGpu | None, *_arguments: Any) -> Any:
            if gpu is None:
                raise NVMLError_InvalidArgument
            self.asked.append((name.removeprefix(prefix), gpu.uuid))
            return gpu.tell(name.removeprefix(prefix))

        return query
