"""`InferixProfiler`: the methods of Inferix' profiler, around a `Profiler`.

What callers measured themselves is recorded with their times; a wrong value becomes an event that is marked as failed.
Stages, events and models that come before a session are part of it; of steps and blocks that come before it an event
tells how many there were.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from time import time
from types import TracebackType
from typing import Any, Literal
from weakref import WeakKeyDictionary

from bakeoff.models.errors import BakeoffError
from bakeoff.profile.compat.analyzer import DiffusionAnalyzer
from bakeoff.profile.compat.book import Book
from bakeoff.profile.compat.config import ProfilingConfig
from bakeoff.profile.compat.recorded import (
    record_allocation,
    record_batch,
    record_block,
    record_cache,
    record_dropped,
    record_model,
    record_step,
)
from bakeoff.profile.decorators import check_function
from bakeoff.profile.plain import plain, plain_data, whole
from bakeoff.profile.profiler import Profiler
from bakeoff.profile.ranges import NOTHING, Nothing, Range
from bakeoff.profile.recording import Recording, Snapshot
from bakeoff.profile.session import NO_SESSION, NoSession, Session, current_session
from bakeoff.profile.settings import Settings
from bakeoff.profile.torch_state import compiled
from bakeoff.profile.wrapping import Args, Kwargs, wrap


class InferixProfiler:
    """Methods of Inferix' profiler; `profiler` is the one that does the work."""

    def __init__(
        self,
        config: ProfilingConfig | Settings | Mapping[str, Any] | None = None,
        *,
        profiler: Profiler | None = None,
        device: str | None = None,
        frames_per_block: int | None = None,
    ) -> None:
        """`device` is the one on which stages are timed; unless given, `cuda` where torch is loaded and has one.

        `frames_per_block` says how many frames a block becomes when it is decoded: `block_size` is in latent frames. A
        `profiler` comes instead of `config` and `device`. Raises BakeoffError for wrong values.
        """
        if frames_per_block is not None and whole(frames_per_block) is None:
            shown = f"{plain(frames_per_block)[0]!r:.80}"
            raise BakeoffError(f"frames_per_block is {shown}; give a whole number", "bad-option")
        self.config = config if config is not None else ProfilingConfig()
        if profiler is None:
            profiler = Profiler(_settings(self.config), _device() if device is None else device)
        else:
            self.config = profiler.settings
        self.profiler = profiler
        self.frames_per_block = frames_per_block
        self.last_session: Session | None = None
        """The one that was opened last by this profiler; its `record` and `files` are there once it has ended."""
        self._models: dict[str, dict[str, Any]] = {}
        self._books: WeakKeyDictionary[Session, Book] = WeakKeyDictionary()
        self._outside = self._last = self._fresh()
        self._started: ExitStack | None = None
        self._started_id = ""
        self._error_before: BaseException | None = None
        _around[profiler] = self

    @classmethod
    def around(cls, profiler: Profiler) -> "InferixProfiler":
        """The one of a profiler, made where there is none."""
        return _around.get(profiler) or cls(profiler=profiler)

    def install(self) -> "InferixProfiler":
        """Make it the one that decorators use where `self` has none; returns it."""
        self.profiler.install()
        return self

    @property
    def enabled(self) -> bool:
        return self.profiler.settings.enabled

    @property
    def recording(self) -> Recording | None:
        """Where things are recorded now; None where nowhere."""
        if not self.enabled:
            return None
        session = self.current_session
        return self.profiler.before if session is None else session.recording

    @property
    def current_session(self) -> Session | None:
        """The open session: that of this context, else the only one."""
        return self._inside() or self.profiler.only_session()

    @property
    def diffusion_analyzer(self) -> DiffusionAnalyzer:
        """Of the open session, else of the last one."""
        session = self.current_session
        return (self._last if session is None else self.book()).analyzer

    def start_session(self, session_id: str, tags: Mapping[str, Any] | None = None) -> str:
        """Open a session until `end_session`; one that `start_session` opened before is ended, with a warning.

        Raises BakeoffError for a session without a name.
        """
        if self._started is not None:
            said = f"session '{self._started_id}' had not ended when '{session_id}' started; it is ended now"
            warnings.warn(said, stacklevel=2)
            self.end_session()
        opened = ExitStack()
        opened.enter_context(self.session(session_id, tags))
        self._started, self._started_id = opened, session_id
        self._error_before = sys.exc_info()[1]
        return session_id

    def end_session(self) -> str | None:
        """End what `start_session` opened; returns its id, or None where there is none.

        In a `finally` or `except`, the exception that came since the start is the session's failure.
        """
        if self._started is None:
            return None
        opened, self._started = self._started, None
        kind, error, trace = sys.exc_info()
        if error is None or error is self._error_before:
            opened.close()
        else:
            opened.__exit__(kind, error, trace)
        self._error_before = None
        return self._started_id

    @contextmanager
    def session(self, session_id: str, tags: Mapping[str, Any] | None = None) -> Iterator[Session | NoSession]:
        """A session, or within one of this profiler a stage of it. Raises BakeoffError for a session without a name."""
        kept, _ = plain_data(tags or {})
        inside = self._inside()
        if inside is not None:
            inside.recording.event("session_in_session", {"session": session_id, **kept})
            with inside.stage(session_id):
                yield inside
            return
        if not isinstance(self.config, Settings):
            self.profiler.settings = _settings(self.config)
        if not self.enabled:
            yield NO_SESSION
            return
        with self.profiler.session(session_id, kept) as session:
            if not isinstance(session, Session):
                yield session
                return
            self.last_session, book = session, self.book()
            try:
                yield session
            finally:
                book.tell(session.recording)

    def stage(self, stage_name: str, metadata: Mapping[str, Any] | None = None) -> Range | Nothing:
        """A named part of the session, or of what comes before the next one."""
        return self.stage_again(stage_name, metadata, again=False)

    def stage_again(self, stage_name: str, metadata: Mapping[str, Any] | None, again: bool) -> Range | Nothing:
        """The same; `again` goes on with one that was counted already."""
        recording = self.recording
        if recording is None:
            return NOTHING
        if metadata and not again:
            self._tell_metadata(recording, stage_name, metadata)
        return recording.stage(stage_name, again)

    def profile_function(
        self, func: Callable[..., Any] | str, stage_name: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Callable[..., Any]:
        """A function whose calls are stages; with a name instead of a function, a decorator.

        Raises BakeoffError for what cannot be called.
        """
        if isinstance(func, str):
            given = func
            return lambda function: self.profile_function(function, given, metadata)
        name: str = stage_name or str(getattr(func, "__name__", "function"))

        def opened(_args: Args, _kwargs: Kwargs, again: bool) -> AbstractContextManager[object]:
            return self.stage_again(name, metadata, again)

        check_function("profile_function", func)
        return wrap(func, opened, each_time=True, always=True)

    def add_event(self, event_name: str, data: Mapping[str, Any] | None = None, failed: bool = False) -> None:
        """Something that happened now."""
        recording = self.recording
        if recording is not None:
            recording.event(event_name, data or {}, failed)

    def record_diffusion_step(
        self,
        step: int,
        timestep: float | None,
        block_size: int,
        computation_time_ms: float,
        guidance_scale: float | None = None,
    ) -> None:
        """A step whose time the caller measured."""
        recording = self.recording
        if recording is None or not self.profiler.settings.profile_diffusion_steps:
            return
        record_step(recording, self.book(), step, timestep, block_size, computation_time_ms)
        if guidance_scale is not None:
            recording.sample("guidance_scale", guidance_scale, "")

    def record_block_computation(
        self, block_index: int, block_size: int, computation_time_ms: float, memory_usage_mb: float | None = None
    ) -> None:
        """A block whose time the caller measured.

        Its memory is what the caller says: often the greatest since the start, not that of the block.
        """
        recording = self.recording
        if recording is not None and self.profiler.settings.profile_block_computation:
            record_block(recording, self.book(), block_index, block_size, computation_time_ms, memory_usage_mb)

    def record_model_parameters(self, model_name: str, parameters_count: int, model_type: str) -> None:
        """Size of a model; recorded again it replaces the earlier one. It is part of this and all later sessions."""
        recording = self.recording
        if recording is not None and self.profiler.settings.profile_model_parameters:
            record_model(recording, self.book(), model_name, parameters_count, model_type)

    def record_streaming_event(
        self,
        batch_size: int,
        encoding_time_ms: float,
        network_latency_ms: float | None = None,
        buffer_occupancy: float | None = None,
    ) -> None:
        """A batch of frames that was delivered now; `buffer_occupancy` is in percent."""
        recording = self.recording
        if recording is not None:
            record_batch(recording, self.book(), batch_size, encoding_time_ms, network_latency_ms, buffer_occupancy)

    def record_dropped_frames(self, count: int = 1) -> None:
        """Frames that were not delivered."""
        recording = self.recording
        if recording is not None:
            record_dropped(recording, self.book(), count)

    def record_cache_event(
        self, event_type: str, cache_size: float, requested_size: float = 0, evicted_size: float = 0
    ) -> None:
        """A use of a cache: `hits`, `misses` or `evictions`."""
        recording = self.recording
        if recording is not None:
            record_cache(recording, self.book(), event_type, cache_size, requested_size, evicted_size)

    def record_memory_event(
        self, event_type: str, size_bytes: int, allocator: str = "unknown", context: str = ""
    ) -> None:
        """Bytes that were allocated (`alloc`) or freed (`dealloc`, `free`). Counts are kept by allocator."""
        recording = self.recording
        if recording is not None:
            record_allocation(recording, self.book(), event_type, size_bytes, allocator, context)

    def get_current_metrics(self) -> dict[str, Any]:
        """Newest values of the monitor in groups `gpu` and `cpu`, of further GPUs by UUID in `gpus`, and rates of the
        last units in `rates`; what is unknown is absent. Empty outside sessions."""
        session = self.current_session
        if session is None:
            return {}
        return metrics(session.snapshot())

    def cleanup(self) -> None:
        """End the session that `start_session` opened, if there is one."""
        self.end_session()

    def __enter__(self) -> "InferixProfiler":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """End the session that `start_session` opened; an exception is its failure."""
        opened, self._started = self._started, None
        if opened is not None:
            opened.__exit__(kind, error, trace)
        return False

    def _inside(self) -> Session | None:
        """The open session of this profiler that this context is in."""
        found = current_session.get()
        while isinstance(found, Session) and not (found.is_open and found.profiler is self.profiler):
            found = found.open_outer
        return found if isinstance(found, Session) else None

    def book(self) -> Book:
        """Counts of the open session; at its first use it takes over the models, and what was counted before it."""
        session = self.current_session
        if session is None:
            return self._outside
        book = self._books.get(session)
        if book is not None:
            return book
        book = self._books[session] = self._last = self._fresh()
        for name, model in self._models.items():
            session.recording.parameters(name, model["parameters_count"], model["model_type"])
        stray, self._outside = self._outside, self._fresh()
        stray.tell_stray(session.recording)
        return book

    def _fresh(self) -> Book:
        return Book(DiffusionAnalyzer(self.frames_per_block, self._models), compiled=compiled())

    def _tell_metadata(self, recording: Recording, stage_name: str, metadata: Mapping[str, Any]) -> None:
        """An event with what is known of a stage, where it is not what was told of it last."""
        told = self.book().metadata
        kept, _ = plain_data(metadata)
        if told.get(stage_name) != kept:
            told[stage_name] = kept
            recording.event("stage_metadata", {"stage": stage_name, **kept})


_around: dict[Profiler, InferixProfiler] = {}
"""For the life of the process, which has few profilers."""


def _settings(config: ProfilingConfig | Settings | Mapping[str, Any]) -> Settings:
    if isinstance(config, Settings):
        return config
    return config.settings() if isinstance(config, ProfilingConfig) else Settings.from_mapping(config)


def _device() -> str:
    """`cuda` where torch is loaded and has a GPU; torch is not loaded for it."""
    cuda = sys.modules.get("torch.cuda")
    return "cuda" if cuda is not None and cuda.is_available() else ""


_METRICS = {
    "gpu.memory": ("gpu", "memory_used_mb"),
    "gpu.busy": ("gpu", "utilization_percent"),
    "gpu.sm_active": ("gpu", "sm_active_percent"),
    "gpu.temperature": ("gpu", "temperature_celsius"),
    "gpu.power": ("gpu", "power_watts"),
    "gpu.clock": ("gpu", "graphics_clock_mhz"),
    "cpu.process": ("cpu", "process_percent_of_one_core"),
    "cpu.process_memory": ("cpu", "process_memory_mb"),
    "cpu.memory": ("cpu", "memory_used_mb"),
    "cpu.load": ("cpu", "load_average_1min"),
}
"""Group and name of `get_current_metrics` by series of the monitor; MB are MiB, as in Inferix."""


def metrics(snapshot: Snapshot) -> dict[str, Any]:
    """Values of the monitor in groups `gpu` and `cpu`, of further GPUs by UUID in `gpus`; rates of the last units.

    What is unknown is absent.
    """
    found: dict[str, Any] = {"timestamp": time()}
    for series, value in snapshot.latest.items():
        name, _, device = series.partition("@")
        group, key = _METRICS.get(name, ("other", name))
        place = found.setdefault("gpus", {}).setdefault(device, {}) if device else found.setdefault(group, {})
        place[key] = value
    rates = {"fps": snapshot.frames_per_s, "bps": snapshot.units_per_s}
    known = {name: value for name, value in rates.items() if value is not None}
    return found | ({"rates": known} if known else {})
