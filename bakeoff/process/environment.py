"""What a worker finds in its environment."""

import os
from collections.abc import Mapping

_KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
"""Makes glibc's malloc keep what is freed. By itself it gives large blocks back to the kernel with each free, and a
call that takes them again pays for every page: eager convolutions took up to twice as long, and more or less of it from
process to process, as the top of the heap happened to lie. CUDA's caching allocator and ONNX Runtime's arena keep
memory too."""


def worker_environment(threads: int, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with what must be set before torch is imported; what the user set stays.

    OpenMP's threads wait as the runtime has them wait (libgomp's spin for some ten milliseconds, then sleep), as they
    do where an engine is deployed. With OMP_WAIT_POLICY=passive every parallel region pays for a thread that must be
    woken: on a virtual machine a call of a few small operators took five times as long.
    """
    environment = _KEPT_MEMORY | {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    environment["PYTHONUNBUFFERED"] = "1"
    return environment | dict(extra or {})


def user_code_path() -> dict[str, str]:
    """PYTHONPATH with the working folder first: workers find a user's package.module:ATTRIBUTE where the parent did."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")]))}
