"""Profiling decorators for functions, methods, coroutines, generators and asynchronous generators.

A range around a coroutine lasts until the coroutine returns, waiting included. Around a generator only the time inside
the generator counts, not the time of the code that iterates over it: each resumption is a range within the range that
it was resumed in, and all of them together are one call. With `unit`, each item that a generator yields is a unit.
Sessions and events cover a generator as a whole.

Decorators find the session by `current()`. Outside sessions, ranges go to the installed profiler, as those of
`Profiler.stage` do; if none is installed, or it is off, a decorated function is called as it is. If a profiler is on
but not installed, the first such call says so on stderr.
"""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Literal, TypeVar, cast

from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import Scalar
from bakeoff.profile.plain import error_text
from bakeoff.profile.profiler import installed, recording_now, tell_unheard
from bakeoff.profile.ranges import NOTHING, UNKNOWN
from bakeoff.profile.recording import AskedKind, Recording
from bakeoff.profile.session import NoSession, Session
from bakeoff.profile.settings import check_tags
from bakeoff.profile.wrapping import Args, Kwargs, wrap

F = TypeVar("F", bound=Callable[..., Any])
Bound = Mapping[str, Any]
"""Arguments of a call by the names of the parameters, defaults included."""
_Bind = Callable[[Args, Kwargs], Bound]
_Recording = Recording | NoSession
_Open = Callable[[_Recording, Args, Kwargs, bool], AbstractContextManager[object]]
"""Opens the range of a call with these arguments; the last argument says whether the call was counted already."""


class Marker:
    """A decorator that is also a context manager: `with profile.phase("decode"):` opens what a call would open."""

    def __init__(
        self,
        decorate: Callable[[Callable[..., Any]], Callable[..., Any]],
        opened: Callable[[], AbstractContextManager[object] | None],
    ) -> None:
        self._decorate, self._open = decorate, opened
        self._opened: list[AbstractContextManager[object]] = []

    def __call__(self, function: F) -> F:
        return cast(F, self._decorate(function))

    def __enter__(self) -> object:
        opened = self._open() or NOTHING
        entered = opened.__enter__()
        self._opened.append(opened)
        return entered

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.pop().__exit__(kind, error, trace)


def phase(name: str) -> Marker:
    """Return a marker that records a `with` block, or each call of a decorated function, as a phase.

    Raises BakeoffError if the name is no text, or if the marker decorates something else than a function.
    """
    return _named("phase", name)


def stage(name: str) -> Marker:
    """Return a marker that records a `with` block, or each call of a decorated function, as a stage.

    Raises BakeoffError as `phase` does.
    """
    return _named("stage", name)


def _named(what: Literal["phase", "stage"], name: str) -> Marker:
    check_name(what, name)

    def opened(recording: _Recording, again: bool = False) -> AbstractContextManager[object]:
        return recording.phase(name, again) if what == "phase" else recording.stage(name, again)

    def decorate(function: F) -> F:
        check_function(what, function)
        return _as_range(function, lambda recording, _args, _kwargs, again: opened(recording, again))

    return Marker(decorate, lambda: _opened_now(opened))


def unit(
    frames: int | Callable[[Bound], int] = 0,
    latents: int | Callable[[Bound], int] = 0,
    kind: AskedKind | Callable[[Bound], AskedKind] = "steady",
) -> Marker:
    """Return a marker that records a `with` block, or each call of a decorated function, as a unit.

    For a decorator, each parameter may be a function of the call's arguments by name. Raises BakeoffError if the marker
    decorates something else than a function.
    """

    def decorate(function: F) -> F:
        bind = _binder("unit", function)

        def opened(recording: _Recording, args: Args, kwargs: Kwargs, _again: bool) -> AbstractContextManager[object]:
            def value(given: Any) -> Any:
                return _called(recording, "unit", given, bind, args, kwargs) if callable(given) else given

            return recording.unit(value(frames), value(latents), value(kind))

        return _as_range(function, opened)

    return Marker(decorate, lambda: _opened_now(lambda recording: recording.unit(frames, latents, kind)))


def step(
    index: str | int | Callable[[Bound], Any] | None = None,
    timestep: str | float | Callable[[Bound], Any] | None = None,
) -> Marker:
    """Return a marker that records a `with` block, or each call of a decorated function, as a denoising step.

    For a `with` block, `index` and `timestep` are values. For a decorator, they are names of the function's parameters,
    or functions of the arguments by name; a function for `index` may return both, as a tuple. Without an index, calls
    are counted, as by `Session.step`. Raises BakeoffError for a name that no parameter has, and as `phase` does.
    """

    def decorate(function: F) -> F:
        bind = _binder("step", function)
        at_index, at_timestep = (_argument("step", function, given) for given in (index, timestep))

        def opened(recording: _Recording, args: Args, kwargs: Kwargs, again: bool) -> AbstractContextManager[object]:
            place = _called(recording, "step", at_index, bind, args, kwargs, UNKNOWN)
            at = _called(recording, "step", at_timestep, bind, args, kwargs)
            if isinstance(place, tuple) and len(place) == 2:
                place, at = place
            return recording.step(place, at, again)

        return _as_range(function, opened)

    return Marker(decorate, lambda: _opened_now(lambda recording: recording.step(index, timestep)))


def session(name: str, tags: Mapping[str, Scalar] | None = None) -> Marker:
    """Return a marker that records a `with` block, or each call of a decorated function, as a session.

    The session is one of the installed profiler; within an open session of that profiler it is a stage. Raises
    BakeoffError for wrong tags, and as `phase` does.
    """
    check_name("session", name)
    check_tags(tags or {})

    def opened() -> Session | NoSession | None:
        if not installed:
            tell_unheard()
            return None
        return installed[0].session(name, tags)

    def decorate(function: F) -> F:
        check_function("session", function)
        return wrap(function, lambda _args, _kwargs, _again: opened())

    return Marker(decorate, opened)


def event(name: str, data: Mapping[str, Any] | Callable[..., Mapping[str, Any]] | None = None) -> Callable[[F], F]:
    """Return a decorator that records an event after each call.

    `data` may be a function of the call's arguments by name, or a function of two parameters: these arguments and the
    result, which for a generator is its return value. If the call or `data` raises, the event is marked as failed and
    has the error. Raises BakeoffError as `phase` does.
    """
    check_name("event", name)
    takes_result = callable(data) and _takes_two(data)

    def decorate(function: F) -> F:
        bind = _binder("event", function)

        def after(call: Call) -> None:
            recording = recording_now()
            if recording is None:
                return
            if call.error is not None:  # which goes on
                recording.log(name, {"error": error_text(call.error)}, failed=True)
                return
            try:
                if callable(data):
                    bound = bind(call.args, call.kwargs)
                    found = data(bound, call.result) if takes_result else data(bound)
                else:
                    found = data or {}
                recording.log(name, dict(found))
            except Exception as error:  # noqa: BLE001  # of `data`, which is the user's: the event tells it
                recording.log(name, {"error": error_text(error)}, failed=True)

        return wrap(function, lambda args, kwargs, _again: Call(after, args, kwargs))

    return decorate


class Call:
    """Context of a call, which passes itself to `after` when the call has ended."""

    __slots__ = ("_after", "args", "error", "kwargs", "result")

    def __init__(self, after: Callable[["Call"], None], args: Args, kwargs: Kwargs) -> None:
        self._after, self.args, self.kwargs = after, args, kwargs
        self.result: Any = None
        self.error: BaseException | None = None

    def __enter__(self) -> "Call":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.error = error
        try:
            self._after(self)
        finally:
            self.error = None  # its traceback holds the frame that holds this call, and all tensors in between


def _as_range(function: F, opened: _Open) -> F:
    """Return the function with a range around each call, or around each resumption of a generator."""

    def open_now(args: Args, kwargs: Kwargs, again: bool) -> AbstractContextManager[object] | None:
        return _opened_now(lambda recording: opened(recording, args, kwargs, again))

    return wrap(function, open_now, each_time=True)


def _opened_now(
    opened: Callable[[_Recording], AbstractContextManager[object]],
) -> AbstractContextManager[object] | None:
    recording = recording_now()
    return opened(recording) if recording is not None else None


def _called(
    recording: _Recording,
    what: str,
    given: Callable[[Bound], Any] | None,
    bind: _Bind,
    args: Args,
    kwargs: Kwargs,
    failed: object = None,
) -> Any:
    """Return a user's function `given` applied to the call's arguments; None if there is no function.

    If it raises, record a failed event and return `failed`.
    """
    if given is None:
        return None
    try:
        return given(bind(args, kwargs))
    except Exception as error:  # noqa: BLE001  # an error of somebody's function must not end their pipeline
        recording.log(f"@{what}", {"error": error_text(error)}, failed=True)
        return failed


def _binder(what: str, function: Callable[..., Any]) -> _Bind:
    check_function(what, function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions of C have none
        return lambda args, kwargs: {"args": args, "kwargs": kwargs}

    def bind(args: Args, kwargs: Kwargs) -> Bound:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.arguments

    return bind


def _takes_two(function: Callable[..., Any]) -> bool:
    """Return whether a function has two positional parameters without defaults."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions of C have none
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is each.empty for each in parameters) == 2


def _argument(what: str, function: Callable[..., Any], given: object) -> Callable[[Bound], Any] | None:
    """Return a function that reads a value from a call's arguments.

    Raises BakeoffError if no parameter has the name.
    """
    if given is None or callable(given):
        return given
    known = list(inspect.signature(function).parameters)
    if given not in known:
        text = f"@{what} was given {given!r:.80}, but the parameters are {', '.join(known)}"
        raise BakeoffError(f"{text}; give one of them, or a function", "bad-option")
    return lambda bound: bound[str(given)]


def check_function(what: str, function: object) -> None:
    if isinstance(function, classmethod | staticmethod | property):
        raise BakeoffError(f"@{what} stands above @{type(function).__name__}; put it below", "bad-option")
    if isinstance(function, type) or not callable(function):
        raise BakeoffError(f"@{what} is applied to {function!r:.80}; apply it to a function or method", "bad-option")


def check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not name:
        raise BakeoffError(f"@{what} has name {name!r:.80}; give text, as in @{what}('name')", "bad-option")
