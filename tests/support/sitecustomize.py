"""Run at the start of every Python that tests start: where that imports bakeoff's supervisor, workers are forked.

Python imports a module of this name from PYTHONPATH, on which tests have this folder.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

_SUPERVISOR = "bakeoff.process.supervisor"


class _Subprocess:
    """What the supervisor uses of subprocess, from forked_workers, which imports the supervisor itself."""

    def __getattr__(self, name: str) -> Any:
        from forked_workers import Subprocess

        return getattr(Subprocess, name)


class _Supervisor(SourceFileLoader):
    """Of the supervisor's file."""

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.subprocess = _Subprocess()  # type: ignore[attr-defined]


class _Finder:
    """Finds the supervisor alone."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != _SUPERVISOR:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Supervisor(name, spec.origin)
        return spec


if os.environ.get("BAKEOFF_TEST_FORK") != "0":
    sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]
