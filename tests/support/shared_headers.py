"""What is made once for all tests of a run, since each has a cache folder of its own: torch's C++ headers, precompiled,
and the work that calls of components were counted to be."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from compile_once import SHARED

from bakeoff.machine import paths
from bakeoff.machine.build_cache import header_folder, make_shared
from bakeoff.process import supervisor

_REAL_WORKER = supervisor.WORKER
_COMPILERS = ("inductor", "aoti")


def share_headers(backends: Sequence[str]) -> None:
    """Let this test's cache folder have the headers of all, if one of the backends (all, if none is named) compiles
    with them. The first build that needs them fills the folder."""
    if not backends or any(compiler in backend for backend in backends for compiler in _COMPILERS):
        share("headers")


def share(name: str) -> None:
    """Let this test's cache folder have a folder of all."""
    own = paths.cache_folder() / name
    if supervisor.WORKER == _REAL_WORKER and SHARED in os.environ and not own.exists():
        shared = Path(os.environ[SHARED]) / name
        shared.mkdir(parents=True, exist_ok=True)
        own.parent.mkdir(parents=True, exist_ok=True)
        own.symlink_to(shared)


def shared_headers() -> Callable[[Path, Callable[[], None]], None]:
    """What a build's context has, for engines that a test builds itself."""
    share_headers(_COMPILERS)
    return partial(make_shared, header_folder(paths.cache_folder()))
