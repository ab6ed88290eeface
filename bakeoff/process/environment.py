"""The environment variables of a worker."""

import os
from collections.abc import Mapping

_KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1"}
"""Make glibc's malloc keep freed memory. By default it returns large blocks to the kernel at each free, and the next
call pays for every page again: eager convolutions took up to twice as long, differently in each process. CUDA's caching
allocator and ONNX Runtime's arena keep memory too."""


def worker_environment(threads: int, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with what must be set before torch is imported; the user's own settings win.

    OpenMP's wait policy is left at the runtime's default (libgomp spins for about ten milliseconds, then sleeps), as
    where an engine is deployed. With OMP_WAIT_POLICY=passive every parallel region must wake threads: on a virtual
    machine a call of a few small operators took five times as long.
    """
    environment = _KEPT_MEMORY | {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    environment["PYTHONUNBUFFERED"] = "1"
    return environment | dict(extra or {})


def user_code_path() -> dict[str, str]:
    """PYTHONPATH with the working folder first: workers find a user's package.module:ATTRIBUTE where the parent did."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")]))}
