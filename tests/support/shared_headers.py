"""torch's C++ headers, precompiled once for all tests of a run, since each has a cache folder of its own."""

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from bakeoff.machine import paths
from bakeoff.machine.build_cache import header_folder, usable_headers
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.process import supervisor
from bakeoff.sweeps.headers import HeaderBuilds

SHARED = "BAKEOFF_TEST_SHARED"
"""The folder that all processes of a run of the tests share."""
_REAL_WORKER = supervisor.WORKER
_COMPILERS = ("inductor", "aoti")


def share_headers(backends: Sequence[str]) -> None:
    """Put the headers into this test's cache folder, if one of the backends (all, if none is named) compiles with them.

    The first test that needs them has them made, as a sweep does; tests/bakeoff/sweeps/test_headers.py, which tests
    just that, does not come here.
    """
    compiles = not backends or any(compiler in backend for backend in backends for compiler in _COMPILERS)
    own = paths.cache_folder() / "headers"
    if not compiles or supervisor.WORKER != _REAL_WORKER or SHARED not in os.environ or own.exists():
        return
    cache = Path(os.environ[SHARED])
    cache.mkdir(exist_ok=True)
    with (cache / "headers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not header_folder(cache).exists():
            request = Request("toy", backends=("inductor[]", "aoti[]"), dtypes=("fp32",), device="cpu", threads=1)
            with HeaderBuilds(cache, print) as builds:
                builds.start(make_plan(request).rows)
                builds.finish()
    own.parent.mkdir(parents=True, exist_ok=True)
    own.symlink_to(cache / "headers")


def shared_headers() -> tuple[Path, ...]:
    """The headers as a build's context has them, for engines that a test builds itself."""
    share_headers(_COMPILERS)
    return usable_headers(header_folder(paths.cache_folder()))
