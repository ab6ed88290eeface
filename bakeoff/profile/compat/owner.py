"""Which profiler a decorated call is recorded by."""

from collections.abc import Callable
from typing import Any

from bakeoff.profile.compat.callbacks import is_method
from bakeoff.profile.compat.profiler import InferixProfiler
from bakeoff.profile.profiler import Profiler, installed
from bakeoff.profile.session import Session, current

Find = Callable[[tuple[Any, ...]], InferixProfiler | None]
"""From the positional arguments of a call; None where it is recorded nowhere."""
_ATTRIBUTES = ("_profiler", "profiler")


def finder(function: Callable[..., Any]) -> Find:
    """How the profiler of calls of this function is found: that of `self`, else the installed one."""
    has_self = is_method(function)

    def find(args: tuple[Any, ...]) -> InferixProfiler | None:
        found = _of_self(args[0]) if has_self and args else _installed()
        return found if found is not None and found.enabled else None

    return find


def _of_self(owner: object) -> InferixProfiler | None:
    try:
        if not getattr(owner, "_profiling_enabled", True):
            return None
        given = [getattr(owner, name, None) for name in _ATTRIBUTES]
    except Exception:  # noqa: BLE001  # a property of somebody's class may raise anything, and has no profiler then
        given = []
    for each in given:
        if isinstance(each, InferixProfiler):
            return each
        if isinstance(each, Profiler):
            return InferixProfiler.around(each)
    return _installed()


def _installed() -> InferixProfiler | None:
    if installed:
        return InferixProfiler.around(installed[0])
    session = current()
    return InferixProfiler.around(session.profiler) if isinstance(session, Session) else None
