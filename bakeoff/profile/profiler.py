"""`Profiler`: makes sessions with its settings and device, and records what callers have measured themselves.

A wrong value becomes an event that is marked as failed. Stages, events and models recorded before a session become part
of it; of steps and blocks before a session, an event gives the numbers.
"""

import atexit
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from time import monotonic, perf_counter_ns, time
from types import TracebackType
from typing import Any, Literal, get_args

from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import Scalar
from bakeoff.profile.analyzer import DiffusionAnalyzer
from bakeoff.profile.cost import range_cost
from bakeoff.profile.counts import Counts
from bakeoff.profile.plain import plain, plain_data, say, whole
from bakeoff.profile.ranges import NOTHING
from bakeoff.profile.recording import Recording, Snapshot
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
        self.models: dict[str, dict[str, Any]] = {}
        """Models given to `record_model_parameters`; they are part of all later sessions."""
        self.before = self.fresh_recording()
        """Recording outside sessions, kept for the next one: ranges (units are plain ranges), events, models."""
        self.last_session: Session | None = None
        """The session that was opened last; it has its `record` and `files` once it has ended."""
        self._started: Session | NoSession | None = None
        self._started_id = ""
        self._error_before: BaseException | None = None
        self._lock = RLock()
        self._open: list[Session] = []
        self._range_ns = 0.0
        self._calibrated_s: float | None = None
        if self.settings.enabled and not unheard.was_told:
            unheard.is_possible = True

    def install(self) -> "Profiler":
        """Make this the profiler that decorators use, in place of any other; return it."""
        installed.clear()
        fallback.clear()
        unheard.is_possible = False
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

    def start_session(self, session_id: str, tags: Mapping[str, Any] | None = None) -> str:
        """Open a session until `end_session` and return its id.

        A session that `start_session` opened before is ended with a warning. Tags that are no plain values are kept as
        their `repr`. Raises BakeoffError for a session without a name.
        """
        if self._started is not None:
            said = f"session '{self._started_id}' had not ended when '{session_id}' started; it is ended now"
            warnings.warn(said, stacklevel=2)
            self.end_session()
        opened = self.session(session_id, plain_data(tags or {})[0])
        opened.__enter__()
        self._started, self._started_id = opened, session_id
        self._error_before = sys.exc_info()[1]
        return session_id

    def end_session(self) -> str | None:
        """End the session that `start_session` opened; return its id, or None if there is none.

        In a `finally` or `except` block, an exception raised since the start becomes the session's failure.
        """
        if self._started is None:
            return None
        kind, error, trace = sys.exc_info()
        self.__exit__(*((None, None, None) if error is self._error_before else (kind, error, trace)))
        return self._started_id

    cleanup = end_session

    def __enter__(self) -> "Profiler":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """End the session that `start_session` opened; an exception becomes its failure."""
        opened, self._started, self._error_before = self._started, None, None
        if opened is not None:
            opened.__exit__(kind, error, trace)
        return False

    @property
    def enabled(self) -> bool:
        return self.settings.enabled

    @property
    def current_session(self) -> Session | None:
        """This profiler's open session in the current context, else its only open session; None otherwise."""
        found = current_session.get()
        while isinstance(found, Session) and not (found.is_open and found.profiler is self):
            found = found.open_outer
        return found if isinstance(found, Session) else self.only_session()

    @property
    def recording(self) -> Recording | NoSession | None:
        """Recording of the open session, else of the time before the next one; None if nothing is recorded."""
        found = current()
        if found.is_open and isinstance(found, NoSession):
            return found
        session = self.current_session if self.enabled else None
        return session.recording if session is not None else self.before if self.enabled else None

    @property
    def counts(self) -> Counts | None:
        """Counts of the open session, else of the time before the next one; None if nothing is recorded."""
        found = self.recording
        return found.counts if isinstance(found, Recording) else None

    @property
    def diffusion_analyzer(self) -> DiffusionAnalyzer:
        """Analyzer of the open session, else of the last one, else of the time before the first."""
        session = self.current_session or self.last_session
        return (self.before if session is None else session.recording).counts.analyzer

    def stage(
        self, stage_name: str, metadata: Mapping[str, Any] | None = None, again: bool = False
    ) -> AbstractContextManager[object]:
        """Return a range for a named part of the open session, or of the time before the next one, such as loading.

        `metadata` is recorded as an event if it differs from the last metadata of that stage. With `again`, the range
        continues a call that was counted already.
        """
        recording, counts = self.recording, self.counts
        if metadata and not again and counts is not None:
            kept, _ = plain_data(metadata)
            if counts.metadata.get(stage_name) != kept:
                counts.metadata[stage_name] = kept
                self.add_event("stage_metadata", {"stage": stage_name, **kept})
        return NOTHING if recording is None else recording.stage(stage_name, again)

    def add_event(self, event_name: str, data: Mapping[str, Any] | None = None, failed: bool = False) -> None:
        """Record an event that happened now."""
        recording = self.recording
        if recording is not None:
            recording.event(event_name, data or {}, failed=failed)

    def record_diffusion_step(
        self,
        step: int,
        timestep: float | None,
        block_size: int,
        computation_time_ms: float,
        guidance_scale: float | None = None,
    ) -> None:
        """Record a denoising step whose time the caller measured."""
        counts = self.counts
        if counts is not None and self.settings.profile_diffusion_steps:
            counts.step(step, timestep, block_size, computation_time_ms)
            if guidance_scale is not None:
                counts.recording.sample("guidance_scale", guidance_scale, "")

    def record_block_computation(
        self, block_index: int, block_size: int, computation_time_ms: float, memory_usage_mb: float | None = None
    ) -> None:
        """Record a block whose time the caller measured.

        Its memory is recorded as given; callers often give the maximum since the start, not that of the block.
        """
        counts = self.counts
        if counts is not None and self.settings.profile_block_computation:
            counts.block(block_index, block_size, computation_time_ms, memory_usage_mb)

    def record_model_parameters(self, model_name: str, parameters_count: int, model_type: str) -> None:
        """Record a model's size in this and all later sessions, replacing an earlier one of that name."""
        counts = self.counts
        if counts is not None and self.settings.profile_model_parameters:
            counts.model(model_name, parameters_count, model_type)

    def record_streaming_event(
        self,
        batch_size: int,
        encoding_time_ms: float,
        network_latency_ms: float | None = None,
        buffer_occupancy: float | None = None,
    ) -> None:
        """Record a batch of `batch_size` frames that was delivered now; `buffer_occupancy` is in percent."""
        counts = self.counts
        if counts is not None:
            counts.batch(batch_size, encoding_time_ms, network_latency_ms, buffer_occupancy)

    def record_dropped_frames(self, count: int = 1) -> None:
        """Record frames that were not delivered."""
        counts = self.counts
        if counts is not None:
            counts.dropped(count)

    def get_current_metrics(self) -> dict[str, Any]:
        """Return a `timestamp`, the monitor's last values in `gpu` and `cpu`, and rates of the last units in `rates`.

        Values of further GPUs are in `gpus` by UUID. Unknown values are absent. The result is empty outside sessions.
        """
        session = self.current_session
        return {} if session is None else _metrics(session.snapshot())

    def only_session(self) -> Session | None:
        """Return the open session; None if there are none or several."""
        with self._lock:
            return self._open[0] if len(self._open) == 1 else None

    def range_ns(self) -> float:
        """Return the cost of an empty range in nanoseconds, measured now or within the last minute."""
        now = monotonic()
        if self._calibrated_s is None or now - self._calibrated_s > _RECALIBRATE_S:
            self._range_ns = range_cost(self._device_clock)
            self._calibrated_s = now
        return self._range_ns

    def _device_clock(self) -> DeviceClock | None:
        try:
            return DeviceClock(self.device) if self.device.startswith("cuda") else None
        except Exception:  # noqa: BLE001  # the session says so itself when it opens its own
            return None

    def fresh_recording(self) -> Recording:
        analyzer = DiffusionAnalyzer(self.frames_per_block, self.models)
        return Recording(self.clock, self.settings.max_data_points, analyzer)

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
"""Group and name in `get_current_metrics` of each series of the monitor; MB are MiB, as in Inferix."""


def _metrics(snapshot: Snapshot) -> dict[str, Any]:
    found: dict[str, Any] = {"timestamp": time()}
    for series, value in snapshot.latest.items():
        name, _, device = series.partition("@")
        group, key = _METRICS.get(name, ("other", name))
        place = found.setdefault("gpus", {}).setdefault(device, {}) if device else found.setdefault(group, {})
        place[key] = value
    rates = {"fps": snapshot.frames_per_s, "bps": snapshot.units_per_s}
    known = {name: value for name, value in rates.items() if value is not None}
    return found | ({"rates": known} if known else {})


installed: list[Profiler] = []
"""The profiler that decorators use: one that is on, or none."""


@dataclass(slots=True)
class Unheard:
    """Whether to say that decorated functions are called while no profiler is installed."""

    is_possible: bool = False
    """Whether a profiler that is on was made, none was installed since, and nothing was printed yet."""
    was_told: bool = False


unheard = Unheard()


def tell_unheard() -> None:
    """Print, once per process, that decorated functions are called but the profiler that was made is not installed."""
    if unheard.is_possible:
        unheard.is_possible, unheard.was_told = False, True
        say(
            "decorated functions are called outside sessions and no profiler is installed, so nothing of them is "
            "recorded; call Profiler.install() first"
        )


def recording_now() -> Recording | NoSession | None:
    """Return the recording for decorators: the open session's, else the installed profiler's; None without either."""
    found = current()
    if found.is_open:
        return found.recording
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
