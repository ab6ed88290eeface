"""torch's C++ headers, precompiled once for all tests of a run, since each has a cache folder of its own."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from compile_once import SHARED

from bakeoff.machine import paths
from bakeoff.machine.build_cache import header_folder, make_shared
from bakeoff.process import supervisor

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
    compiler = log.parent / "bin" / "g++"
    compiler.parent.mkdir()
    compiler.write_text(_COUNTING.format(compiler=shutil.which("g++")))
    compiler.chmod(0o755)
    log.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(compiler.parent), prepend=os.pathsep)
        patch.setenv("BAKEOFF_TEST_COMPILED", str(log))
        yield


def share_headers(backends: Sequence[str]) -> None:
    """Let this test's cache folder have the headers of all, if one of the backends (all, if none is named) compiles
    with them. The first build that needs them fills the folder."""
    compiles = not backends or any(compiler in backend for backend in backends for compiler in _COMPILERS)
    own = paths.cache_folder() / "headers"
    if compiles and supervisor.WORKER == _REAL_WORKER and SHARED in os.environ and not own.exists():
        shared = Path(os.environ[SHARED]) / "headers"
        shared.mkdir(parents=True, exist_ok=True)
        own.parent.mkdir(parents=True, exist_ok=True)
        own.symlink_to(shared)


def shared_headers() -> Callable[[Path, Callable[[], None]], None]:
    """What a build's context has, for engines that a test builds itself."""
    share_headers(_COMPILERS)
    return partial(make_shared, header_folder(paths.cache_folder()))
