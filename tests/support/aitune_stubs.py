"""Stubs of TensorRT and ModelOpt, so that NVIDIA AITune can be imported on a host that has neither.

AITune 0.6.0 imports both when it is imported. Here each becomes a module of which every attribute is an empty class:
what AITune would do with them does not work, and says so as it would where they are broken. All else of AITune is the
real library. What is installed is never stubbed.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

STUBBED = ("tensorrt", "modelopt")


class _Nothing(type):
    """The class of stub classes: each attribute that it lacks is one more."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing(name)


def _nothing(name: str) -> _Nothing:
    def __init__(_self: Any, *_given: Any, **_named: Any) -> None:  # noqa: N807
        pass

    return _Nothing(name, (), {"__init__": __init__})


class _Stub(ModuleType):
    """A module, all of whose attributes are classes that do nothing."""

    __version__ = "0.0.0"
    __path__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, _nothing(name))
        return getattr(self, name)


class _Finder(MetaPathFinder, Loader):
    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)

    def find_spec(self, fullname: str, _path: Any, _target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in self._names else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def stub_missing() -> tuple[str, ...]:
    """Stub those of STUBBED that are not installed, and return their names."""
    missing = tuple(name for name in STUBBED if find_spec(name) is None)
    if missing:
        sys.meta_path.append(_Finder(missing))
    return missing
