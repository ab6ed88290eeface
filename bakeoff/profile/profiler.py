"""`Profiler`: makes sessions with its settings and device, and records what callers have measured themselves.

Stages, events and models recorded before a session become part of it.
"""

import atexit
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from threading import RLock
from time import monotonic, perf_counter_ns
from typing import Any, Literal, get_args

from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import Scalar
from bakeoff.profile.analyzer import DiffusionAnalyzer
from bakeoff.profile.cost import range_cost
from bakeoff.profile.plain import plain, plain_data, say, whole
from bakeoff.profile.ranges import NOTHING
from bakeoff.profile.recording import Recording
from bakeoff.profile.session import NO_SESSION, NoSession, Session, current, current_session, fallback
from bakeoff.profile.settings import ProfilingConfig, Settings
from bakeoff.profile.torch_state import DeviceClock

Parallelism = Literal["model", "data"]
_RECALIBRATE_S = 60.0


class Profiler:
    """Makes sessions. A profiler that is off, such as one with `Settings()`, returns `NO_SESSION` instead."""

    def __init__(
        self,
        settings: Settings | ProfilingConfig | Mapping[str, Any] | None = None,
        device: str | None = None,
        parallelism: Parallelism = "model",
        frames_per_block: int | None = None,
    ) -> None:
        """`device` is a CUDA device on which ranges are timed too: `cuda`, `cuda:1` or `torch.device("cuda")`.

        torch is imported for it. "" and `cpu` mean no device. None means `cuda` if torch is loaded and has a GPU when a
        session is made. `parallelism` matters with several ranks: in `model` all ranks make one video, in `data` each
        makes its own. `frames_per_block` is the number of frames of a decoded block, whereas `block_size` counts latent
        frames. Raises BakeoffError, code bad-option, for other values.
        """
        self._finds_device = device is None
        device = "" if device is None else str(device)  # that of torch.device is a name
        if device not in ("", "cpu", "cuda") and not (device.startswith("cuda:") and device[5:].isdecimal()):
            raise BakeoffError(f"device is {device!r:.80}; give cpu, cuda or cuda:N", "bad-option")
        if parallelism not in get_args(Parallelism):
            raise BakeoffError(f"parallelism is {parallelism!r:.80}; give model or data", "bad-option")
        if frames_per_block is not None and whole(frames_per_block) is None:
            shown = f"{plain(frames_per_block)[0]!r:.80}"
            raise BakeoffError(f"frames_per_block is {shown}; give a whole number", "bad-option")
        self.config = Settings.from_mapping(settings) if isinstance(settings, Mapping) else settings or Settings()
        """Config from which the settings of the next session are made."""
        self.settings = _settings(self.config)
        self.device = device
        self.parallelism = parallelism
        self.frames_per_block = frames_per_block
        self.clock: Callable[[], int] = perf_counter_ns
        """Clock of monotonic nanoseconds; a session takes it when it is made."""
        self.models: dict[str, tuple[str, int, str]] = {}
        """Models given to `record_model_parameters`; they are part of all later sessions."""
        self.before = self.fresh_recording()
        """Recording outside sessions, kept for the next one: ranges (units are plain ranges), events, models."""
        self.last_session: Session | None = None
        """The session that was opened last; it has its `record` and `files` once it has ended."""
        self._lock = RLock()
        self._open: list[Session] = []
        self._range_ns = 0.0
        self._measured_until_s = 0.0
        if self.settings.enabled and not _told:
            unheard[:] = [True]

    def install(self) -> "Profiler":
        """Make this the profiler that decorators use, in place of any other; return it."""
        installed.clear()
        fallback.clear()
        unheard.clear()
        if self.settings.enabled:
            installed.append(self)
            fallback.append(self.only_session)
        return self

    def uninstall(self) -> None:
        """Undo `install`."""
        if installed == [self]:
            installed.clear()
            fallback.clear()

    def session(self, name: str, tags: Mapping[str, Scalar] | None = None) -> Session | NoSession:
        """Return a session to be entered with `with`; its record is written at its end, even after an error.

        Returns `NO_SESSION` if the profiler is off. Raises BakeoffError, code bad-option, for a name that is no text or
        tags that cannot be kept.
        """
        found = current()
        if found.is_open and isinstance(found, NoSession):
            return found  # its unit is the lab's
        self.settings = _settings(self.config)
        if not self.settings.enabled:
            return NO_SESSION
        if self._finds_device:
            self.device = _device()
        if not isinstance(name, str) or not name:
            raise BakeoffError(f"name of a session is {name!r:.80}; give text", "bad-option")
        given: object = tags  # of a caller whose types nobody checked
        if given is not None and not isinstance(given, Mapping):
            text = f"tags of session {name!r:.80} are of type {type(given).__name__}; give a mapping of names to values"
            raise BakeoffError(text, "bad-option")
        return Session(self, name, self.settings.tagged(tags or {}).session_tags)

    @property
    def enabled(self) -> bool:
        return self.settings.enabled

    @property
    def current_session(self) -> Session | None:
        """This profiler's open session in the current context, else its only open session; None otherwise."""
        return self.session_here() or self.only_session()

    def session_here(self) -> Session | None:
        """Return this profiler's innermost open session in the current context, or None."""
        found = current_session.get()
        while isinstance(found, Session) and not (found.is_open and found.profiler is self):
            found = found.open_outer
        return found if isinstance(found, Session) else None

    @property
    def recording(self) -> Recording | NoSession | None:
        """Recording of the open session, else of the time before the next one; None if nothing is recorded."""
        found = current()
        if found.is_open and isinstance(found, NoSession):
            return found
        session = self.current_session if self.enabled else None
        return session or (self.before if self.enabled else None)

    @property
    def diffusion_analyzer(self) -> DiffusionAnalyzer:
        """Analyzer of the open session, else of the last one, else of the time before the first."""
        return DiffusionAnalyzer(self.current_session or self.last_session or self.before, self.frames_per_block)

    def stage(
        self, stage_name: str, metadata: Mapping[str, Any] | None = None, again: bool = False
    ) -> AbstractContextManager[object]:
        """Return a range for a named part of the open session, or of the time before the next one, such as loading.

        `metadata` is recorded as an event if it differs from the last metadata of that stage. With `again`, the range
        continues a call that was counted already.
        """
        recording = self.recording
        if metadata and not again and isinstance(recording, Recording):
            kept, _ = plain_data(metadata)
            if recording.metadata.get(stage_name) != kept:
                recording.metadata[stage_name] = kept
                recording.log("stage_metadata", {"stage": stage_name, **kept})
        return NOTHING if recording is None else recording.stage(stage_name, again)

    def add_event(self, event_name: str, data: Mapping[str, Any] | None = None, failed: bool = False) -> None:
        """Record an event that happened now."""
        recording = self.recording
        if recording is not None:
            recording.log(event_name, data or {}, failed)

    def record_diffusion_step(
        self,
        step: int,
        timestep: float | None,
        block_size: int,
        computation_time_ms: float,
        guidance_scale: float | None = None,
    ) -> None:
        """Record a denoising step whose time the caller measured."""
        recording = self.recording
        if isinstance(recording, Recording) and recording.has_steps:
            ns = recording.units.nanoseconds(computation_time_ms)
            if ns is not None:
                recording.units.add_step(step, timestep, ns)
                self.sample_step(block_size, guidance_scale)

    def sample_step(self, block_size: object, guidance_scale: object) -> None:
        """Record what is known of a step besides its time; None is unknown."""
        for name, value in (("block_size", block_size), ("guidance_scale", guidance_scale)):
            if value is not None and self.recording is not None:
                self.recording.sample(name, value)

    def record_block_computation(
        self, block_index: int, block_size: int, computation_time_ms: float, memory_usage_mb: float | None = None
    ) -> None:
        """Record a block whose time the caller measured.

        Its memory is recorded as given; callers often give the maximum since the start, not that of the block.
        """
        del block_index  # blocks are counted
        recording = self.recording
        if isinstance(recording, Recording):
            recording.measured_unit(computation_time_ms, self.frames_per_block or 0, block_size)
            if memory_usage_mb is not None:
                recording.sample("block.memory", memory_usage_mb, "MiB")

    def record_model_parameters(self, model_name: str, parameters_count: int, model_type: str) -> None:
        """Record a model's size in this and all later sessions, replacing an earlier one of that name."""
        recording = self.recording
        if isinstance(recording, Recording):
            count = whole(parameters_count)
            recording.parameters(model_name, parameters_count if count is None else count, model_type)
            if count is not None:
                self.models[model_name] = model_name, count, model_type

    def only_session(self) -> Session | None:
        """Return the open session; None if there are none or several."""
        with self._lock:
            return self._open[0] if len(self._open) == 1 else None

    def range_ns(self) -> float:
        """Return the cost of an empty range in nanoseconds, measured now or within the last minute."""
        if monotonic() > self._measured_until_s:
            self._range_ns = range_cost(self._device_clock)
            self._measured_until_s = monotonic() + _RECALIBRATE_S
        return self._range_ns

    def _device_clock(self) -> DeviceClock | None:
        try:
            return DeviceClock(self.device) if self.device.startswith("cuda") else None
        except Exception:  # noqa: BLE001  # the session says so itself when it opens its own
            return None

    def fresh_recording(self) -> Recording:
        return Recording(self.clock, self.settings.max_data_points)

    def take_before(self) -> Recording:
        """Return the recording of the time outside sessions, and begin a new one."""
        with self._lock:
            taken, self.before = self.before, self.fresh_recording()
        return taken

    def opened(self, session: Session) -> None:
        with self._lock:
            self._open.append(session)
            self.last_session = session
        atexit.register(session.close, "interrupted")

    def closed(self, session: Session) -> None:
        with self._lock:
            self._open.remove(session)
        atexit.unregister(session.close)


InferixProfiler = Profiler
"""Name of `Profiler` in Inferix' guides."""


def _settings(config: Settings | ProfilingConfig) -> Settings:
    return config.settings() if isinstance(config, ProfilingConfig) else config


def _device() -> str:
    """Return `cuda` if torch is loaded and has a GPU, else ""; torch is not loaded for it."""
    cuda = sys.modules.get("torch.cuda")
    return "cuda" if cuda is not None and cuda.is_available() else ""


installed: list[Profiler] = []
"""The profiler that decorators use: one that is on, or none."""


unheard: list[bool] = []
"""Holds True if a profiler that is on was made, none was installed since, and nothing was printed yet."""
_told: list[bool] = []


def tell_unheard() -> None:
    """Print, once per process, that decorated functions are called but the profiler that was made is not installed."""
    if unheard:
        unheard.clear()
        _told.append(True)
        say(
            "decorated functions are called outside sessions and no profiler is installed, so nothing of them is "
            "recorded; call Profiler.install() first"
        )


def recording_now() -> Recording | NoSession | None:
    """Return the recording for decorators: the open session's, else the installed profiler's; None without either."""
    found = current()
    if found.is_open:
        return found
    if installed:
        return installed[0].before
    tell_unheard()
    return None


def configure(
    settings: Settings | str | Path, device: str | None = None, parallelism: Parallelism = "model"
) -> Profiler:
    """Make, install and return a profiler with these settings, or with those of a file.

    Raises BakeoffError as `Settings.load` does.
    """
    made = settings if isinstance(settings, Settings) else Settings.load(settings)
    return Profiler(made, device, parallelism).install()
