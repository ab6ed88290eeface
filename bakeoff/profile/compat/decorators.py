"""Decorators with the names and callbacks of Inferix' `profiling.decorators`.

They find the profiler in `self._profiler` or `self.profiler`, unless `self._profiling_enabled` is false; else it is the
installed one, or that of the open session. Without a profiler, and with one that is off, a decorated function is called
as it is. Callbacks get the arguments without `self`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from bakeoff.profile.compat.calls import (
    Call,
    Told,
    afterwards,
    as_one,
    check_callback,
    finder,
    is_method,
    name_of,
    required,
    tell,
    tell_event,
)
from bakeoff.profile.compat.profiler import InferixProfiler
from bakeoff.profile.compat.recorded import count_block, count_step, record_block
from bakeoff.profile.decorators import check_function, check_name
from bakeoff.profile.plain import error_text
from bakeoff.profile.ranges import Range
from bakeoff.profile.recording import Recording
from bakeoff.profile.wrapping import Args, Kwargs, wrap

F = TypeVar("F", bound=Callable[..., Any])
Callback = Callable[[Args, Kwargs], Mapping[str, Any]]
"""Gets the positional and the keyword arguments of a call."""


def profile_method(stage_name: str | None = None, metadata: Mapping[str, Any] | None = None) -> Callable[[F], F]:
    """Record calls as stages, named as the function unless a name is given.

    Raises BakeoffError where it is applied without parentheses, or to what is no function.
    """
    if stage_name is not None:
        check_name("profile_method", stage_name)

    def decorate(function: F) -> F:
        check_function("profile_method", function)
        find, name = finder(function), stage_name or name_of(function)

        def opened(args: Args, _kwargs: Kwargs, again: bool) -> AbstractContextManager[object] | None:
            profiler = find(args)
            return None if profiler is None else profiler.stage_again(name, metadata, again)

        return wrap(function, opened, each_time=True, always=True)

    return decorate


def profile_session(session_id: str, tags: Mapping[str, Any] | None = None) -> Callable[[F], F]:
    """Record each call as a session; within a session of the same profiler, as a stage of it. Raises as
    `profile_method`."""
    check_name("profile_session", session_id)

    def decorate(function: F) -> F:
        check_function("profile_session", function)
        find = finder(function)

        def opened(args: Args, _kwargs: Kwargs, _again: bool) -> AbstractContextManager[object] | None:
            profiler = find(args)
            return None if profiler is None else profiler.session(session_id, tags)

        return wrap(function, opened, always=True)

    return decorate


def add_profiling_event(event_name: str, data_func: Callable[..., Any] | None = None) -> Callable[[F], F]:
    """Record an event after each call, with the data of `data_func(result, *args, **kwargs)`.

    The event is marked as failed, and has the error, where the call or `data_func` raised. Raises as `profile_method`.
    """
    check_name("add_profiling_event", event_name)
    check_callback("add_profiling_event", data_func)

    def decorate(function: F) -> F:
        own = is_method(function)

        def after(profiler: InferixProfiler, call: Call) -> None:
            told = Told(error=error_text(call.error)) if call.error is not None else None
            if told is None:
                told = tell_event(data_func, function, call.result, call.args[own:], call.kwargs)
            profiler.add_event(event_name, {"error": told.error} if told.error else told.data, bool(told.error))

        return afterwards("add_profiling_event", function, after)

    return decorate


def profile_model_parameters(model_name_func: Callback | None = None) -> Callable[[F], F]:
    """Record the size of a model after each call; the callback gives `model_name`, `parameters_count`, `model_type`.

    Raises as `profile_method`.
    """
    check_callback("profile_model_parameters", model_name_func)

    def decorate(function: F) -> F:
        own = is_method(function)

        def after(profiler: InferixProfiler, call: Call) -> None:
            recording = profiler.recording
            if call.error is not None or recording is None:
                return
            told = tell(model_name_func, call.args[own:], call.kwargs)
            found = required("model_parameters", recording, told, "parameters_count")
            if found is not None:
                name, kind = found.get("model_name", name_of(function)), found.get("model_type", "")
                profiler.record_model_parameters(name, found["parameters_count"], kind)

        return afterwards("profile_model_parameters", function, after)

    return decorate


def profile_diffusion_step(step_func: Callback | None = None) -> Callable[[F], F]:
    """Record calls as denoising steps; the callback gives `step`, and may give `timestep`, `block_size` and
    `guidance_scale`. Without a step the call is a stage, and an event says so. Raises as `profile_method`."""
    check_callback("profile_diffusion_step", step_func)

    def decorate(function: F) -> F:
        own, name = is_method(function), name_of(function)

        def opened(profiler: InferixProfiler, recording: Recording, args: Args, kwargs: Kwargs) -> Any:
            found = required("diffusion_step", recording, tell(step_func, args[own:], kwargs), "step")
            return recording.stage(name) if found is None else _step(profiler, recording, found)

        return as_one("profile_diffusion_step", function, opened)

    return decorate


def profile_block_computation(block_info_func: Callback | None = None) -> Callable[[F], F]:
    """Record calls as blocks; the callback gives `block_index` and `block_size`, and may give `computation_time_ms` and
    `memory_usage_mb`.

    A time that it gives is the block's, and the callback is asked again after the call; else the call is measured as a
    unit. Raises as `profile_method`.
    """
    check_callback("profile_block_computation", block_info_func)

    def decorate(function: F) -> F:
        own, name = is_method(function), name_of(function)

        def opened(profiler: InferixProfiler, recording: Recording, args: Args, kwargs: Kwargs) -> Any:
            def ask() -> Told:
                return tell(block_info_func, args[own:], kwargs)

            told = ask()
            if told.error or "computation_time_ms" in told.data:
                return _block_of_caller(profiler, recording, name, ask)
            return _block(profiler, recording, told.data)

        return as_one("profile_block_computation", function, opened)

    return decorate


def profile_layer(layer_name: str | None = None, parameters_count: int | None = None) -> Callable[[F], F]:
    """Record calls as stages, named as the function unless a name is given, and the size of the layer.

    Raises as `profile_method`.
    """
    if layer_name is not None:
        check_name("profile_layer", layer_name)

    def decorate(function: F) -> F:
        name = layer_name or name_of(function)

        def opened(profiler: InferixProfiler, recording: Recording, _args: Args, _kwargs: Kwargs) -> Any:
            if parameters_count is not None:
                profiler.record_model_parameters(name, parameters_count, "layer")
            return recording.stage(name)

        return as_one("profile_layer", function, opened)

    return decorate


def profile_streaming(batch_size_func: Callable[[Args, Kwargs], int] | None = None) -> Callable[[F], F]:
    """Record calls as stages that deliver a batch of frames; the callback gives the number of frames, else it is 1.

    Raises as `profile_method`.
    """
    check_callback("profile_streaming", batch_size_func)

    def decorate(function: F) -> F:
        own, name = is_method(function), name_of(function)

        def opened(profiler: InferixProfiler, recording: Recording, args: Args, kwargs: Kwargs) -> Any:
            def ask() -> Told:
                if batch_size_func is None:
                    return Told({"batch_size": 1})
                counted = batch_size_func
                return tell(lambda given, named: {"batch_size": counted(given, named)}, args[own:], kwargs)

            return _batch(profiler, recording, name, ask)

        return as_one("profile_streaming", function, opened)

    return decorate


@contextmanager
def _step(profiler: InferixProfiler, recording: Recording, found: Mapping[str, Any]) -> Iterator[object]:
    """A measured step. Where there is a device its time is read later, so that it is not among the analyzer's."""
    step, timestep = found["step"], found.get("timestep")
    with recording.step(step, timestep) as opened:
        yield opened
    if isinstance(opened, Range):
        ms = None if recording.device is not None else opened.ns / 1e6
        count_step(recording, profiler.book(), step, timestep, found.get("block_size", 1), ms)
    if found.get("guidance_scale") is not None:
        recording.sample("guidance_scale", found["guidance_scale"], "")


@contextmanager
def _block(profiler: InferixProfiler, recording: Recording, found: Mapping[str, Any]) -> Iterator[object]:
    """A measured unit."""
    index, size, mib = found.get("block_index", 0), found.get("block_size", 0), found.get("memory_usage_mb")
    with recording.unit(profiler.frames_per_block or 0, size) as opened:
        yield opened
    if isinstance(opened, Range):
        count_block(recording, profiler.book(), index, size, opened.ns / 1e6, mib)


@contextmanager
def _block_of_caller(
    profiler: InferixProfiler, recording: Recording, name: str, ask: Callable[[], Told]
) -> Iterator[object]:
    """A stage, and a block with the time that the callback gives after it."""
    with recording.stage(name) as opened:
        yield opened
    found = required("block_computation", recording, ask(), "computation_time_ms")
    if found is not None and profiler.profiler.settings.profile_block_computation:
        index, size, mib = found.get("block_index", 0), found.get("block_size", 0), found.get("memory_usage_mb")
        record_block(recording, profiler.book(), index, size, found["computation_time_ms"], mib)


@contextmanager
def _batch(profiler: InferixProfiler, recording: Recording, name: str, ask: Callable[[], Told]) -> Iterator[object]:
    """A stage, and a batch of frames that is delivered after it."""
    with recording.stage(name) as opened:
        yield opened
    found = required("streaming_event", recording, ask(), "batch_size")
    if found is not None and isinstance(opened, Range):
        profiler.record_streaming_event(found["batch_size"], opened.ns / 1e6)
