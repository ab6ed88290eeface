"""Decorated calls: what is opened around them, and what is recorded after them."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

from bakeoff.models.errors import BakeoffError
from bakeoff.profile.compat.callbacks import Told
from bakeoff.profile.compat.owner import finder
from bakeoff.profile.compat.profiler import InferixProfiler
from bakeoff.profile.decorators import check_function
from bakeoff.profile.recording import Recording
from bakeoff.profile.wrapping import Args, Kwargs, wrap

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
