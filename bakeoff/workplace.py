"""What a worker finds in its environment."""

import os
from collections.abc import Mapping


def worker_environment(threads: int, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with what must be set before torch is imported.

    OpenMP threads that spin between calls make a call fifteen times slower on a busy host, so they wait passively
    unless the user says otherwise.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    environment.setdefault("OMP_WAIT_POLICY", "passive")
    environment["PYTHONUNBUFFERED"] = "1"
    return environment | dict(extra or {})
