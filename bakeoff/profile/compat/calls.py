"""Decorated calls: their profiler, what their callbacks tell, what is opened around them and recorded after them."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

from bakeoff.models.errors import BakeoffError
from bakeoff.profile.compat.profiler import InferixProfiler
from bakeoff.profile.decorators import check_function
from bakeoff.profile.plain import error_text
from bakeoff.profile.profiler import Profiler, installed
from bakeoff.profile.recording import Recording
from bakeoff.profile.session import Session, current
from bakeoff.profile.wrapping import Args, Kwargs, wrap


@dataclass(frozen=True, slots=True)
class Told:
    """What a callback told of a call; nothing where it raised, and then `error` says what."""

    data: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


def tell(callback: Callable[..., Any] | None, *args: Any, **kwargs: Any) -> Told:
    """Call a callback that returns a mapping. Never raises."""
    if callback is None:
        return Told()
    try:
        return Told(dict(callback(*args, **kwargs)))
    except Exception as error:  # noqa: BLE001  # somebody's callback may raise anything, and must not end the pipeline
        return Told(error=error_text(error))


def tell_event(
    callback: Callable[..., Any] | None, function: Callable[..., Any], result: Any, args: Any, kwargs: Mapping[str, Any]
) -> Told:
    """Data of an event after a call: `callback(result, *args, **kwargs)`.

    A callback that does not take the positional arguments gets them by the names of the function's parameters.
    """
    if callback is None or takes(callback, (result, *args), kwargs):
        return tell(callback, result, *args, **kwargs)
    named = _by_name(function, args, kwargs)
    if named is not None and takes(callback, (result,), named):
        return tell(callback, result, **named)
    return tell(callback, result, *args, **kwargs)


def takes(callback: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call with these arguments fits its signature; True where it has none."""
    try:
        inspect.signature(callback).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def is_method(function: Callable[..., Any]) -> bool:
    """Whether its first parameter is `self` or `cls`: what decorators see of a method while its class is made."""
    try:
        return next(iter(inspect.signature(function).parameters), "") in ("self", "cls")
    except (TypeError, ValueError):
        return False


def _by_name(function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments by name, without `self`; None of a function with `*args`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[is_method(function) :]
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_POSITIONAL for each in parameters) or len(args) > len(parameters):
        return None
    return {each.name: value for each, value in zip(parameters, args, strict=False)} | dict(kwargs)


F = TypeVar("F", bound=Callable[..., Any])
Open = Callable[[InferixProfiler, Recording, Args, Kwargs], AbstractContextManager[object]]


def required(name: str, recording: Recording, told: Told, key: str) -> Mapping[str, Any] | None:
    """What was told, if it has this key; else a failed event."""
    if key in told.data:
        return told.data
    recording.event(name, {"error": told.error or f"the callback gives no '{key}'"}, failed=True)
    return None


class Call:
    """A call after which something is recorded; `wrap` sets its result."""

    __slots__ = ("_after", "_profiler", "args", "error", "kwargs", "result")

    def __init__(
        self, after: Callable[[InferixProfiler, "Call"], None], profiler: InferixProfiler, args: Args, kwargs: Kwargs
    ) -> None:
        self._after, self._profiler, self.args, self.kwargs = after, profiler, args, kwargs
        self.result: Any = None
        self.error: BaseException | None = None

    def __enter__(self) -> "Call":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.error = error
        try:
            self._after(self._profiler, self)
        finally:
            self.error = None  # as in bakeoff.profile.decorators


def afterwards(what: str, function: F, after: Callable[[InferixProfiler, Call], None]) -> F:
    check_function(what, function)
    find = finder(function)

    def opened(args: Args, kwargs: Kwargs, _again: bool) -> AbstractContextManager[object] | None:
        profiler = find(args)
        return None if profiler is None else Call(after, profiler, args, kwargs)

    return wrap(function, opened, always=True)


def as_one(what: str, function: F, opened: Open) -> F:
    """The function with a range around each call. A generator is refused: it is no one step or block."""
    check_function(what, function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        text = f"@{what} is applied to the generator {name_of(function)}; apply it to what makes one step or block"
        raise BakeoffError(text, "bad-option")
    find = finder(function)

    def open_now(args: Args, kwargs: Kwargs, _again: bool) -> AbstractContextManager[object] | None:
        profiler = find(args)
        recording = None if profiler is None else profiler.recording
        return None if profiler is None or recording is None else opened(profiler, recording, args, kwargs)

    return wrap(function, open_now, always=True)


def name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def check_callback(what: str, given: object) -> None:
    if given is not None and not callable(given):
        text = f"@{what} was given {given!r:.80}; give a function of the positional and keyword arguments"
        raise BakeoffError(text, "bad-option")


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
