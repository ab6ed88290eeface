"""The NVIDIA GPUs of this machine, read from NVML without torch."""

import contextlib
from collections.abc import Iterator
from typing import Any

from bakeoff.models.types import Scalar


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """The initialised NVML binding, or None if there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def read_gpus() -> tuple[dict[str, Scalar], ...]:
    """Name, UUID, driver, memory in bytes and compute capability of each GPU; empty if there is no driver."""
    with nvml() as library:
        if library is None:
            return ()
        driver = library.nvmlSystemGetDriverVersion()
        found: list[dict[str, Scalar]] = []
        for index in range(library.nvmlDeviceGetCount()):
            handle = library.nvmlDeviceGetHandleByIndex(index)
            major, minor = library.nvmlDeviceGetCudaComputeCapability(handle)
            found.append(
                {
                    "name": library.nvmlDeviceGetName(handle),
                    "uuid": library.nvmlDeviceGetUUID(handle),
                    "driver": driver,
                    "memory_bytes": int(library.nvmlDeviceGetMemoryInfo(handle).total),
                    "compute_capability": f"{major}.{minor}",
                }
            )
        return tuple(found)


def free_bytes() -> int | None:
    """Free memory of the first GPU; None if there is no driver."""
    with nvml() as library:
        if library is None:
            return None
        return int(library.nvmlDeviceGetMemoryInfo(library.nvmlDeviceGetHandleByIndex(0)).free)
