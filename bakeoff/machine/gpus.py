"""The NVIDIA GPUs of this machine, read by NVML and without torch."""

import contextlib
from collections.abc import Iterator
from typing import Any

from bakeoff.models.types import Scalar


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """The initialised NVML binding, or None where there is no driver."""
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
    """Free memory of the first GPU; None where there is no driver."""
    with nvml() as library:
        if library is None:
            return None
        return int(library.nvmlDeviceGetMemoryInfo(library.nvmlDeviceGetHandleByIndex(0)).free)
