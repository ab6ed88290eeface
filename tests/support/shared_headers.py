"""torch's C++ headers, precompiled once for all tests of a run, since each has a cache folder of its own."""

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

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
_COUNTING = """#!/bin/sh
case " $* " in *" c++-header "*) echo header >> "$BAKEOFF_TEST_COMPILED" ;; esac
for argument; do
  case "$argument" in *.cpp) if grep -q _chk_kernel "$argument"; then echo check >> "$BAKEOFF_TEST_COMPILED"; fi ;; esac
done
exec {compiler} "$@"
"""


@contextmanager
def counted_compiler(log: Path) -> Iterator[None]:
    """Have g++ write a line for each header that it precompiles, and for each check of vector instructions.

    Workers are not forked then, which would find the headers of whoever had forked ones make them.
    """
    compiler = Path(os.environ[SHARED]) / "bin" / "g++"
    if not compiler.exists():
        compiler.parent.mkdir()
        compiler.write_text(_COUNTING.format(compiler=shutil.which("g++")))
        compiler.chmod(0o755)
    log.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(compiler.parent), prepend=os.pathsep)
        patch.setenv("BAKEOFF_TEST_COMPILED", str(log))
        yield


def compiled_for_all() -> Path:
    """The log of the compiler that made the headers."""
    return Path(os.environ[SHARED]) / "compiled"


def share_headers(backends: Sequence[str]) -> None:
    """Put the headers into this test's cache folder, if one of the backends (all, if none is named) compiles with them.

    The first test that needs them has them made, as a sweep does.
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
            with counted_compiler(compiled_for_all()), HeaderBuilds(cache, print) as builds:
                builds.start(make_plan(request).rows)
                builds.finish()
                made = header_folder(cache)
            header_folder(cache).symlink_to(made)  # the usual compiler is another one by its path
    own.parent.mkdir(parents=True, exist_ok=True)
    own.symlink_to(cache / "headers")


def shared_headers() -> tuple[Path, ...]:
    """The headers as a build's context has them, for engines that a test builds itself."""
    share_headers(_COMPILERS)
    return usable_headers(header_folder(paths.cache_folder()))
