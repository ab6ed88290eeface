"""A profiler: settings and a device, and the sessions that are made with them."""

import atexit
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from time import monotonic, perf_counter_ns
from typing import Literal, get_args

from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import Scalar
from bakeoff.profile.cost import range_cost
from bakeoff.profile.plain import say
from bakeoff.profile.ranges import NOTHING
from bakeoff.profile.recording import Recording
from bakeoff.profile.session import NO_SESSION, NoSession, Session, current, fallback
from bakeoff.profile.settings import Settings
from bakeoff.profile.torch_state import DeviceClock

Parallelism = Literal["model", "data"]
_RECALIBRATE_S = 60.0


class Profiler:
    """Makes sessions. One that is off (`Settings()`) makes `NO_SESSION`."""

    def __init__(self, settings: Settings | None = None, device: str = "", parallelism: Parallelism = "model") -> None:
        """`device` as in `cuda`, `cuda:1` or `torch.device("cuda")`: ranges are timed on it too, and torch is imported;
        "" and `cpu`: neither.

        `parallelism` matters where there are several ranks: `model` is one video by all of them, `data` one by each.
        Raises BakeoffError, code bad-option, for other values.
        """
        device = device if isinstance(device, str) else str(device)  # that of torch.device is a name
        if device not in ("", "cpu", "cuda") and not (device.startswith("cuda:") and device[5:].isdecimal()):
            raise BakeoffError(f"device is {device!r:.80}; give cpu, cuda or cuda:N", "bad-option")
        if parallelism not in get_args(Parallelism):
            raise BakeoffError(f"parallelism is {parallelism!r:.80}; give model or data", "bad-option")
        self.settings = settings if settings is not None else Settings()
        self.device = device
        self.parallelism = parallelism
        self.clock: Callable[[], int] = perf_counter_ns
        """Monotonic nanoseconds; sessions read it when they are made."""
        self.before = Recording(self.clock, self.settings.max_data_points)
        """What is recorded outside sessions, for the next one: ranges (units are no more than that), events, models."""
        self._lock = RLock()
        self._open: list[Session] = []
        self._range_ns = 0.0
        self._calibrated_s: float | None = None
        if self.settings.enabled and not unheard.was_told:
            unheard.is_possible = True

    def install(self) -> "Profiler":
        """Make it the one that decorators use, in place of another; returns it."""
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
        """A session, to be entered with `with`; it is recorded and written at its end, whether it fails or not.

        Raises BakeoffError, code bad-option, for tags that cannot be kept, and when it is entered within another
        session of this profiler.
        """
        found = current()
        if found.is_open and isinstance(found, NoSession):
            return found  # its unit is the lab's
        if not self.settings.enabled:
            return NO_SESSION
        if not isinstance(name, str) or not name:
            raise BakeoffError(f"name of a session is {name!r:.80}; give text", "bad-option")
        given: object = tags  # of a caller whose types nobody checked
        if given is not None and not isinstance(given, Mapping):
            text = f"tags of session {name!r:.80} are of type {type(given).__name__}; give a mapping of names to values"
            raise BakeoffError(text, "bad-option")
        return Session(self, name, self.settings.tagged(tags or {}).session_tags)

    def stage(self, name: str) -> AbstractContextManager[object]:
        """A range outside sessions, as in loading a checkpoint: the next session records it as `before`.

        Within a session of this profiler it is a stage of that.
        """
        found = current()
        if found in self._open or (found.is_open and isinstance(found, NoSession)):
            return found.stage(name)
        return self.before.stage(name) if self.settings.enabled else NOTHING

    def only_session(self) -> Session | None:
        """The open session; None if there are none or several."""
        with self._lock:
            return self._open[0] if len(self._open) == 1 else None

    def range_ns(self) -> float:
        """Cost of an empty range, measured now or within the last minute."""
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

    def take_before(self) -> Recording:
        """What was recorded outside sessions; from now on there is nothing."""
        with self._lock:
            taken, self.before = self.before, Recording(self.clock, self.settings.max_data_points)
        return taken

    def opened(self, session: Session) -> None:
        with self._lock:
            self._open.append(session)
        atexit.register(session.close, "interrupted")

    def closed(self, session: Session) -> None:
        with self._lock:
            self._open.remove(session)
        atexit.unregister(session.close)


installed: list[Profiler] = []
"""The one that decorators use, if there is one that is on."""


@dataclass(slots=True)
class Unheard:
    """What is known of calls of decorated functions that no profiler hears of."""

    is_possible: bool = False
    """A profiler that is on was made, none was installed since, and nobody was told."""
    was_told: bool = False


unheard = Unheard()


def tell_unheard() -> None:
    """Say, once in a process, that decorated functions are called, but the profiler that was made is not installed."""
    if unheard.is_possible:
        unheard.is_possible, unheard.was_told = False, True
        say(
            "decorated functions are called outside sessions and no profiler is installed, so nothing of them is "
            "recorded; call Profiler.install() first"
        )


def recording_now() -> Recording | NoSession | None:
    """Where ranges of decorators go: to the session of this context, else to what the installed profiler keeps for the
    next one; None where nothing is recorded."""
    found = current()
    if found.is_open:
        return found.recording
    if installed:
        return installed[0].before
    tell_unheard()
    return None


def configure(settings: Settings | str | Path, device: str = "", parallelism: Parallelism = "model") -> Profiler:
    """A profiler with these settings, or those of a file, installed. Raises BakeoffError as `Settings.load`."""
    made = settings if isinstance(settings, Settings) else Settings.load(settings)
    return Profiler(made, device, parallelism).install()
