"""Decorators with the names and callbacks of Inferix' guides.

They use the profiler in `self._profiler` or `self.profiler`, else the installed one, else that of the open session. If
there is none, if it is off, or if `self._profiling_enabled` is false, a decorated function is called as it is.
Callbacks get the arguments without `self`.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from bakeoff.models.errors import BakeoffError
from bakeoff.profile.decorators import Call, check_function, check_name
from bakeoff.profile.plain import error_text, plain_data
from bakeoff.profile.profiler import Profiler, installed
from bakeoff.profile.session import NO_SESSION, Session, current
from bakeoff.profile.wrapping import Args, Kwargs, wrap

F = TypeVar("F", bound=Callable[..., Any])
Callback = Callable[[Args, Kwargs], Mapping[str, Any]]
"""Takes the positional arguments of a call as a tuple and its keyword arguments as a mapping."""
_Opened = Callable[[Profiler, Args, Kwargs, bool], AbstractContextManager[object] | None]
"""Like `wrapping.Opened`, with the profiler as first argument, and without `self` among the positional arguments."""


def profile_method(stage_name: str | None = None, metadata: Mapping[str, Any] | None = None) -> Callable[[F], F]:
    """Return a decorator that records each call as a stage, named after the function unless a name is given.

    Raises BakeoffError if it is applied without parentheses, or to something else than a function.
    """
    if stage_name is not None:
        check_name("profile_method", stage_name)

    def decorate(function: F) -> F:
        def opened(profiler: Profiler, _args: Args, _kwargs: Kwargs, again: bool) -> AbstractContextManager[object]:
            return profiler.stage(stage_name or _name_of(function), metadata, again)

        return _wrapped("profile_method", function, opened, each_time=True)

    return decorate


def profile_session(session_id: str, tags: Mapping[str, Any] | None = None) -> Callable[[F], F]:
    """Return a decorator that records each call as a session; within a session of the same profiler, as a stage of it.

    Raises BakeoffError as `profile_method` does.
    """
    check_name("profile_session", session_id)

    def decorate(function: F) -> F:
        def opened(profiler: Profiler, _args: Args, _kwargs: Kwargs, _again: bool) -> AbstractContextManager[object]:
            return profiler.session(session_id, plain_data(tags or {})[0])

        return _wrapped("profile_session", function, opened)

    return decorate


def add_profiling_event(event_name: str, data_func: Callable[..., Any] | None = None) -> Callable[[F], F]:
    """Return a decorator that records an event after each call, with the data of `data_func(result, *args, **kwargs)`.

    If the call or `data_func` raises, the event is marked as failed and has the error. Raises BakeoffError as
    `profile_method` does.
    """
    check_name("add_profiling_event", event_name)
    _check_callback("add_profiling_event", data_func)

    def decorate(function: F) -> F:
        def after(profiler: Profiler, call: Call) -> None:
            if call.error is not None:
                profiler.add_event(event_name, {"error": error_text(call.error)}, failed=True)
                return
            args, kwargs = call.args, call.kwargs
            if data_func is not None and not _takes(data_func, (call.result, *args), kwargs):
                named = _by_name(function, args, kwargs)
                if named is not None and _takes(data_func, (call.result,), named):
                    args, kwargs = (), named
            data = _answer(profiler, event_name, data_func, (call.result, *args), kwargs)
            if data is not None:
                profiler.add_event(event_name, data)

        return _afterwards("add_profiling_event", function, after)

    return decorate


def profile_model_parameters(model_name_func: Callback | None = None) -> Callable[[F], F]:
    """Return a decorator that records the size of a model after each call.

    The callback returns `parameters_count`, and may return `model_name` and `model_type`. Raises BakeoffError as
    `profile_method` does.
    """
    _check_callback("profile_model_parameters", model_name_func)

    def decorate(function: F) -> F:
        def after(profiler: Profiler, call: Call) -> None:
            if call.error is None:
                asked = call.args, call.kwargs
                found = _answer(profiler, "model_parameters", model_name_func, asked, need="parameters_count")
                if found is not None:
                    name, kind = found.get("model_name", _name_of(function)), found.get("model_type", "")
                    profiler.record_model_parameters(name, found["parameters_count"], kind)

        return _afterwards("profile_model_parameters", function, after)

    return decorate


def profile_diffusion_step(step_func: Callback | None = None) -> Callable[[F], F]:
    """Return a decorator that records each call as a denoising step.

    The callback returns `step`, and may return `timestep`, `block_size` and `guidance_scale`. Without a `step`, the
    call is recorded as a stage and an event says why. Raises BakeoffError for a generator, and as `profile_method`
    does.
    """
    _check_callback("profile_diffusion_step", step_func)

    def decorate(function: F) -> F:
        def opened(profiler: Profiler, args: Args, kwargs: Kwargs, _again: bool) -> AbstractContextManager[object]:
            found = _answer(profiler, "diffusion_step", step_func, (args, kwargs), need="step")
            if found is None:
                return profiler.stage(_name_of(function))
            profiler.sample_step(found.get("block_size"), found.get("guidance_scale"))
            return (profiler.recording or NO_SESSION).step(found["step"], found.get("timestep"))

        return _as_one("profile_diffusion_step", function, opened)

    return decorate


def profile_block_computation(block_info_func: Callback | None = None) -> Callable[[F], F]:
    """Return a decorator that records each call as a block.

    The callback returns `block_index` and `block_size`, and may return `computation_time_ms` and `memory_usage_mb`. If
    it returns a time, it is called again after the call, and the block has the time that it returns then; otherwise the
    call is measured as a unit. Raises BakeoffError for a generator, and as `profile_method` does.
    """
    _check_callback("profile_block_computation", block_info_func)

    def decorate(function: F) -> F:
        @contextmanager
        def timed_by_caller(profiler: Profiler, args: Args, kwargs: Kwargs) -> Iterator[object]:
            with profiler.stage(_name_of(function)) as opened:
                yield opened
            asked, need = (args, kwargs), "computation_time_ms"
            found = _answer(profiler, "block_computation", block_info_func, asked, need=need)
            if found is not None:
                size, mib = found.get("block_size", 0), found.get("memory_usage_mb")
                profiler.record_block_computation(found.get("block_index", 0), size, found[need], mib)

        def opened(profiler: Profiler, args: Args, kwargs: Kwargs, _again: bool) -> AbstractContextManager[object]:
            found = _answer(None, "", block_info_func, (args, kwargs))
            if found is None or "computation_time_ms" in found:
                return timed_by_caller(profiler, args, kwargs)
            recording = profiler.recording or NO_SESSION
            if found.get("memory_usage_mb") is not None:
                recording.sample("block.memory", found["memory_usage_mb"], "MiB")
            return recording.unit(profiler.frames_per_block or 0, found.get("block_size", 0))

        return _as_one("profile_block_computation", function, opened)

    return decorate


def _answer(
    profiler: Profiler | None,
    event: str,
    callback: Callable[..., Any] | None,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    need: str = "",
) -> Mapping[str, Any] | None:
    """Return the mapping that a callback returns, empty without one.

    If it raises or the result lacks the key `need`, record the failed event in the profiler, and return None.
    """
    try:
        found = dict(callback(*args, **(kwargs or {}))) if callback is not None else {}
        if not need or need in found:
            return found
        error = f"the callback gives no '{need}'"
    except Exception as problem:  # noqa: BLE001  # somebody's callback may raise anything, and must not end the pipeline
        error = error_text(problem)
    if profiler is not None:
        profiler.add_event(event, {"error": error}, failed=True)
    return None


def _takes(callback: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a callback accepts these arguments; True if its signature is unknown."""
    try:
        inspect.signature(callback).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _by_name(function: Callable[..., Any], args: Args, kwargs: Kwargs) -> Kwargs | None:
    """Return the arguments by name, without `self`; None for a function with `*args` or an unknown signature."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[_is_method(function) :]
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_POSITIONAL for each in parameters) or len(args) > len(parameters):
        return None
    return {each.name: value for each, value in zip(parameters, args, strict=False)} | kwargs


def _is_method(function: Callable[..., Any]) -> bool:
    """Return whether a function's first parameter is `self` or `cls`, as in a method seen while its class is made."""
    try:
        return next(iter(inspect.signature(function).parameters), "") in ("self", "cls")
    except (TypeError, ValueError):
        return False


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _check_callback(what: str, given: object) -> None:
    if given is not None and not callable(given):
        text = f"@{what} was given {given!r:.80}; give a function of the positional and keyword arguments"
        raise BakeoffError(text, "bad-option")


def _wrapped(what: str, function: F, opened: _Opened, each_time: bool = False) -> F:
    """Return the function with the context from `opened` around each call for which there is a profiler."""
    check_function(what, function)
    has_self = _is_method(function)

    def open_now(args: Args, kwargs: Kwargs, again: bool) -> AbstractContextManager[object] | None:
        profiler = _profiler_of(args[0]) if has_self and args else _installed()
        if profiler is None or profiler.recording is None:
            return None
        return opened(profiler, args[has_self:], kwargs, again)

    return wrap(function, open_now, each_time, always=True)


def _afterwards(what: str, function: F, after: Callable[[Profiler, Call], None]) -> F:
    def opened(profiler: Profiler, args: Args, kwargs: Kwargs, _again: bool) -> AbstractContextManager[object]:
        return Call(lambda call: after(profiler, call), args, kwargs)

    return _wrapped(what, function, opened)


def _as_one(what: str, function: F, opened: _Opened) -> F:
    """Return the function with a range around each call.

    Raises BakeoffError for a generator, which is no one step or block.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        text = f"@{what} is applied to the generator {_name_of(function)}; apply it to what makes one step or block"
        raise BakeoffError(text, "bad-option")
    return _wrapped(what, function, opened)


def _profiler_of(owner: object) -> Profiler | None:
    """Return the object's own profiler, else the installed one; None if the object's profiling is switched off."""
    try:
        if not getattr(owner, "_profiling_enabled", True):
            return None
        given = [getattr(owner, name, None) for name in ("_profiler", "profiler")]
    except Exception:  # noqa: BLE001  # a property of somebody's class may raise anything, and has no profiler then
        given = []
    return next((each for each in given if isinstance(each, Profiler)), None) or _installed()


def _installed() -> Profiler | None:
    if installed:
        return installed[0]
    session = current()
    return session.profiler if isinstance(session, Session) else None
