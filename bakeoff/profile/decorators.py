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
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

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
_Open = Callable[[_Recording, Sequence[Any], bool], AbstractContextManager[object]]
"""Opens a range with these values; the last argument says whether the call was counted already."""


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

    def __exit__(self, *raised: Any) -> None:
        self._opened.pop().__exit__(*raised)


def phase(name: str) -> Marker:
    """Return a marker that records a `with` block, or each call of a decorated function, as a phase.

    Raises BakeoffError if the name is no text, or if the marker decorates something else than a function.
    """
    check_name("phase", name)
    return _marker("phase", (), lambda recording, _values, again: recording.phase(name, again))


def stage(name: str) -> Marker:
    """Return a marker that records a `with` block, or each call of a decorated function, as a stage.

    Raises BakeoffError as `phase` does.
    """
    check_name("stage", name)
    return _marker("stage", (), lambda recording, _values, again: recording.stage(name, again))


def unit(
    frames: int | Callable[[Bound], int] = 0,
    latents: int | Callable[[Bound], int] = 0,
    kind: AskedKind | Callable[[Bound], AskedKind] = "steady",
) -> Marker:
    """Return a marker that records a `with` block, or each call of a decorated function, as a unit.

    For a decorator, each parameter may be a function of the call's arguments by name. Raises BakeoffError if the marker
    decorates something else than a function.
    """
    return _marker("unit", (frames, latents, kind), lambda recording, values, _again: recording.unit(*values))


def step(
    index: str | int | Callable[[Bound], Any] | None = None,
    timestep: str | float | Callable[[Bound], Any] | None = None,
) -> Marker:
    """Return a marker that records a `with` block, or each call of a decorated function, as a denoising step.

    For a `with` block, `index` and `timestep` are values. For a decorator, they are names of the function's parameters,
    or functions of the arguments by name; a function for `index` may return both, as a tuple. Without an index, calls
    are counted, as by `Session.step`. Raises BakeoffError for a name that no parameter has, and as `phase` does.
    """

    def opened(recording: _Recording, values: Sequence[Any], again: bool) -> AbstractContextManager[object]:
        place, at = values[0] if isinstance(values[0], tuple) and len(values[0]) == 2 else values
        return recording.step(place, at, again)

    return _marker("step", (index, timestep), opened)


def _marker(what: str, given: Sequence[Any], opened: _Open) -> Marker:
    """Return a marker that opens a range with `given` or, for a decorated function, with what these are for a call."""

    def open_now(values: Callable[[_Recording], Sequence[Any]], again: bool) -> AbstractContextManager[object] | None:
        recording = recording_now()
        return None if recording is None else opened(recording, values(recording), again)

    def decorate(function: F) -> F:
        bind = _binder(what, function)
        asked = [_argument(function, each) for each in given] if what == "step" else given

        def of_call(args: Args, kwargs: Kwargs, again: bool) -> AbstractContextManager[object] | None:
            def value(recording: _Recording, each: Any) -> Any:
                return _called(recording, what, each, bind, args, kwargs) if callable(each) else each

            return open_now(lambda recording: [value(recording, each) for each in asked], again)

        return wrap(function, of_call, each_time=True)

    return Marker(decorate, lambda: open_now(lambda _recording: given, again=False))


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

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.error = error
        try:
            self._after(self)
        finally:
            self.error = None  # its traceback holds the frame that holds this call, and all tensors in between


def _called(
    recording: _Recording, what: str, given: Callable[[Bound], Any], bind: _Bind, args: Args, kwargs: Kwargs
) -> Any:
    """Return a user's function `given` applied to the call's arguments.

    If it raises, record a failed event, and return UNKNOWN for a step and None otherwise.
    """
    try:
        return given(bind(args, kwargs))
    except Exception as error:  # noqa: BLE001  # an error of somebody's function must not end their pipeline
        recording.log(f"@{what}", {"error": error_text(error)}, failed=True)
        return UNKNOWN if what == "step" else None


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


def _argument(function: Callable[..., Any], given: object) -> Callable[[Bound], Any] | None:
    """Return a function that reads a value from a call's arguments.

    Raises BakeoffError if no parameter has the name.
    """
    if given is None or callable(given):
        return given
    known = list(inspect.signature(function).parameters)
    if given not in known:
        text = f"@step was given {given!r:.80}, but the parameters are {', '.join(known)}"
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
