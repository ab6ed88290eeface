"""Decorators with the names and callbacks of Inferix' guides.

They use the profiler in `self._profiler` or `self.profiler`, else the installed one, else that of the open session. If
there is none, if it is off, or if `self._profiling_enabled` is false, a decorated function is called as it is.
Callbacks get the arguments without `self`.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, TypeVar

from bakeoff.models.errors import BakeoffError
from bakeoff.profile.decorators import Call, check_function, check_name
from bakeoff.profile.plain import error_text, plain_data
from bakeoff.profile.profiler import Profiler, installed
from bakeoff.profile.session import NO_SESSION, NoSession, Session, current
from bakeoff.profile.wrapping import Args, Kwargs, wrap

F = TypeVar("F", bound=Callable[..., Any])
Function = Callable[..., Any]
Context = AbstractContextManager[object]
Callback = Callable[[Args, Kwargs], Mapping[str, Any]]
"""Takes the positional arguments of a call as a tuple and its keyword arguments as a mapping."""
_Opened = Callable[[Function, Profiler, Args, Kwargs, bool], Context]
"""Like `wrapping.Opened`, with the function and the profiler first, and without `self` among the arguments."""


def profile_method(stage_name: str | None = None, metadata: Mapping[str, Any] | None = None) -> Callable[[F], F]:
    """Return a decorator that records each call as a stage, named after the function unless a name is given.

    Raises BakeoffError if it is applied without parentheses, or to something else than a function.
    """
    if stage_name is not None:
        check_name("profile_method", stage_name)

    def opened(function: Function, profiler: Profiler, _args: Args, _kwargs: Kwargs, again: bool) -> Context:
        return profiler.stage(stage_name or _name_of(function), metadata, again)

    return _decorator("profile_method", opened, each_time=True)


def profile_session(session_id: str, tags: Mapping[str, Any] | None = None) -> Callable[[F], F]:
    """Return a decorator that records each call as a session; within a session of the same profiler, as a stage of it.

    Raises BakeoffError as `profile_method` does.
    """
    check_name("profile_session", session_id)

    def opened(_function: Function, profiler: Profiler, *_: object) -> Session | NoSession:
        return profiler.session(session_id, plain_data(tags or {})[0])

    return _decorator("profile_session", opened)


def add_profiling_event(event_name: str, data_func: Callable[..., Any] | None = None) -> Callable[[F], F]:
    """Return a decorator that records an event after each call, with the data of `data_func(result, *args, **kwargs)`.

    If the call or `data_func` raises, the event is marked as failed and has the error. Raises BakeoffError as
    `profile_method` does.
    """
    check_name("add_profiling_event", event_name)

    def opened(function: Function, profiler: Profiler, args: Args, kwargs: Kwargs, _again: bool) -> Context:
        def after(call: Call) -> None:
            if call.error is not None:
                profiler.add_event(event_name, {"error": error_text(call.error)}, failed=True)
                return
            data = _answer(profiler, event_name, data_func, *_fitting(data_func, function, call))
            if data is not None:
                profiler.add_event(event_name, data)

        return Call(after, args, kwargs)

    return _decorator("add_profiling_event", opened, data_func)


def profile_model_parameters(model_name_func: Callback | None = None) -> Callable[[F], F]:
    """Return a decorator that records the size of a model after each call.

    The callback returns `parameters_count`, and may return `model_name` and `model_type`. Raises BakeoffError as
    `profile_method` does.
    """

    def opened(function: Function, profiler: Profiler, args: Args, kwargs: Kwargs, _again: bool) -> Context:
        def after(call: Call) -> None:
            need = "parameters_count"
            if call.error is None and (
                found := _answer(profiler, "model_parameters", model_name_func, (args, kwargs), need=need)
            ):
                name, kind = found.get("model_name", _name_of(function)), found.get("model_type", "")
                profiler.record_model_parameters(name, found[need], kind)

        return Call(after, args, kwargs)

    return _decorator("profile_model_parameters", opened, model_name_func)


def profile_diffusion_step(step_func: Callback | None = None) -> Callable[[F], F]:
    """Return a decorator that records each call as a denoising step.

    The callback returns `step`, and may return `timestep`, `block_size` and `guidance_scale`. Without a `step`, the
    call is recorded as a stage and an event says why. Raises BakeoffError for a generator, and as `profile_method`
    does.
    """

    def opened(function: Function, profiler: Profiler, args: Args, kwargs: Kwargs, _again: bool) -> Context:
        found = _answer(profiler, "diffusion_step", step_func, (args, kwargs), need="step")
        if found is None:
            return profiler.stage(_name_of(function))
        profiler.sample_step(found.get("block_size"), found.get("guidance_scale"))
        return (profiler.recording or NO_SESSION).step(found["step"], found.get("timestep"))

    return _decorator("profile_diffusion_step", opened, step_func, one=True)


def profile_block_computation(block_info_func: Callback | None = None) -> Callable[[F], F]:
    """Return a decorator that records each call as a block.

    The callback returns `block_index` and `block_size`, and may return `computation_time_ms` and `memory_usage_mb`. If
    it returns a time, it is called again after the call, and the block has the time that it returns then; otherwise the
    call is measured as a unit. Raises BakeoffError for a generator, and as `profile_method` does.
    """

    @contextmanager
    def timed_by_caller(function: Function, profiler: Profiler, args: Args, kwargs: Kwargs) -> Iterator[object]:
        with profiler.stage(_name_of(function)) as opened:
            yield opened
        need = "computation_time_ms"
        found = _answer(profiler, "block_computation", block_info_func, (args, kwargs), need=need)
        if found is not None:
            size, mib = found.get("block_size", 0), found.get("memory_usage_mb")
            profiler.record_block_computation(found.get("block_index", 0), size, found[need], mib)

    def opened(function: Function, profiler: Profiler, args: Args, kwargs: Kwargs, _again: bool) -> Context:
        found = _answer(None, "", block_info_func, (args, kwargs))
        if found is None or "computation_time_ms" in found:
            return timed_by_caller(function, profiler, args, kwargs)
        recording = profiler.recording or NO_SESSION
        if found.get("memory_usage_mb") is not None:
            recording.sample("block.memory", found["memory_usage_mb"], "MiB")
        return recording.unit(profiler.frames_per_block or 0, found.get("block_size", 0))

    return _decorator("profile_block_computation", opened, block_info_func, one=True)


def _decorator(
    what: str, opened: _Opened, callback: object = None, each_time: bool = False, one: bool = False
) -> Callable[[F], F]:
    """Return a decorator that puts the context from `opened` around each call for which there is a profiler.

    Raises BakeoffError for a `callback` that is no function; with `one`, the decorator does for a generator, which is
    no one step or block.
    """
    if callback is not None and not callable(callback):
        text = f"@{what} was given {callback!r:.80}; give a function of the positional and keyword arguments"
        raise BakeoffError(text, "bad-option")

    def decorate(function: F) -> F:
        check_function(what, function)
        if one and (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
            text = f"@{what} is applied to the generator {_name_of(function)}; apply it to what makes one step or block"
            raise BakeoffError(text, "bad-option")
        has_self = _is_method(function)

        def open_now(args: Args, kwargs: Kwargs, again: bool) -> Context | None:
            profiler = _profiler_of(args[0]) if has_self and args else _installed()
            if profiler is None or profiler.recording is None:
                return None
            return opened(function, profiler, args[has_self:], kwargs, again)

        return wrap(function, open_now, each_time, always=True)

    return decorate


def _answer(
    profiler: Profiler | None,
    event: str,
    callback: Function | None,
    args: Args,
    kwargs: Kwargs | None = None,
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


def _fitting(callback: Function | None, function: Function, call: Call) -> tuple[Args, Kwargs]:
    """Return the arguments for a callback: the result and the call's own, by name if it does not take their order."""
    args, kwargs = (call.result, *call.args), call.kwargs
    with suppress(ValueError):  # some functions of C have no signature
        try:
            if callback is not None:
                inspect.signature(callback).bind(*args, **kwargs)
        except TypeError:
            parameters = list(inspect.signature(function).parameters.values())[_is_method(function) :]
            if not any(each.kind is each.VAR_POSITIONAL for each in parameters):
                named = {each.name: value for each, value in zip(parameters, call.args, strict=False)}
                return (call.result,), named | kwargs
    return args, kwargs


def _is_method(function: Function) -> bool:
    """Return whether a function's first parameter is `self` or `cls`, as in a method seen while its class is made."""
    try:
        return next(iter(inspect.signature(function).parameters), "") in ("self", "cls")
    except (TypeError, ValueError):
        return False


def _name_of(function: Function) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


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
