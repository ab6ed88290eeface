"""`Session`: the recording of one run of a pipeline. `NO_SESSION` has the same methods and records nothing."""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import TYPE_CHECKING, Any, TypeVar

from bakeoff.machine.terminal import one_line
from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import Scalar
from bakeoff.profile.plain import error_text, plain, say, text
from bakeoff.profile.ranges import NOTHING, Nothing, innermost, open_range
from bakeoff.profile.recording import Recording
from bakeoff.profile.stages import clean
from bakeoff.profile.torch_state import DeviceClock
from bakeoff.record.finding import SessionCode
from bakeoff.record.monitor import Monitored
from bakeoff.record.session import RangeTotal, RankFacts, SessionRecord

if TYPE_CHECKING:
    from bakeoff.monitor.client import Monitor
    from bakeoff.profile.live import Live
    from bakeoff.profile.profiler import Profiler

T = TypeVar("T")

_NO_MONITOR = "the monitor gave nothing"


class Session(Recording):
    """One session of a profiler, from `__enter__` to `__exit__`. Made by `Profiler.session`; used once."""

    def __init__(self, profiler: "Profiler", name: str, tags: Mapping[str, Scalar]) -> None:
        """`tags` are the checked tags of the settings and of this session together."""
        super().__init__(profiler.clock, profiler.settings.max_data_points)
        self.profiler, self.device, self.settings = profiler, profiler.device, profiler.settings
        self.name = text(name) or "session"
        self.tags = {text(key): text(value) if isinstance(value, str) else value for key, value in tags.items()}
        self.record: SessionRecord | None = None
        """None until the session has ended."""
        self._files: tuple[Path, ...] = ()
        self._reports: Any = None
        self._outer: Session | None = None
        self._within = ExitStack()
        """Stage that stands for this session in another one of the same profiler, if it was entered within that."""
        self._monitor: Monitor | None = None
        self._monotonic_ns = 0
        """Start of the session by the monitor's clock."""
        self._raw: Path | None = None
        self._live: Live | None = None
        self.before: tuple[RangeTotal, ...] = ()
        self.rank: RankFacts | None = None
        self.started_wall_ns = self._pid = 0

    @property
    def files(self) -> tuple[Path, ...]:
        """Files written at the session's end, the record first.

        Waits for the process that makes the page and JSON report.
        """
        if self._reports is None or os.getpid() != self._pid:  # a forked child leaves the process to its parent
            return self._files
        return (*self._files, *self._reports.result())

    def __enter__(self) -> "Session":
        """Open and return the session; within another one of the same profiler, open a stage of that and return that.

        A run thus has one account. Raises BakeoffError if this session was used already.
        """
        if self._pid:
            raise BakeoffError(
                f"session '{self.name}' was used already; make another with Profiler.session", "bad-option"
            )
        self._pid = os.getpid()
        inside = self.profiler.session_here()
        if inside is not None:
            inside.log("session_in_session", {"session": self.name, **self.tags})
            self._within.enter_context(inside.stage(self.name))
            return inside
        outer = current_session.get()
        if isinstance(outer, Session):
            self._outer = outer if outer.is_open else outer.open_outer  # one may have ended in another context
        self._open()
        return self

    def _open(self) -> None:
        profiler, settings = self.profiler, self.settings
        self.has_units = settings.profile_block_computation
        self.has_steps = settings.profile_diffusion_steps
        self.has_models = settings.profile_model_parameters
        self.range_ns, self.overhead_limit = profiler.range_ns(), settings.overhead_limit
        self.device_clock = self._device_clock()
        self.rank = self._attempt("rank-unknown", "the rank of this process is unknown", self._rank_facts)
        self._check_folder()
        self._monitor = self._attempt("not-monitored", _NO_MONITOR, self._start_monitor)
        before = profiler.take_before()
        self.before = before.totals()
        self.take(before)
        for model in profiler.models.values():
            self.parameters(*model)
        self.root.outer = open_range()
        self.begin()
        self.started_wall_ns, self._monotonic_ns = time_ns(), monotonic_ns()
        current_session.set(self)
        innermost.set(self.root)
        profiler.opened(self)
        self._live = self._attempt("live-failed", "no live display", self._start_live)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """End the session and write its files. An exception of the pipeline is not suppressed."""
        self._within.close()
        if self.is_open and os.getpid() == self._pid:  # a forked child leaves the session to its parent
            self._end(status(error))

    def close(self, reason: str) -> None:
        """End the session, if it is still open, with the status `reason`."""
        if self.is_open and os.getpid() == self._pid:
            self._end(reason)

    def _end(self, told: str) -> None:
        ended = self.end()
        current_session.set(self._outer)
        innermost.set(self.root.outer)
        self.profiler.closed(self)
        monitored: Monitored | None = None
        try:
            self._stop_live()
            monitored = self._stop_monitor()
            self._keep(told, ended, monitored)
        except KeyboardInterrupt:  # Ctrl-C, perhaps a second one: the record is written before it goes on
            self._keep(told, ended, monitored)
            raise

    def _keep(self, told: str, ended_ns: int, monitored: Monitored | None) -> None:
        """Make the record, unless it exists, and write its files."""
        try:
            from bakeoff.profile.finish import make_record

            if self.record is None:
                self.record = make_record(self, told, ended_ns, monitored)
            self._write(self.record)
        except Exception as problem:  # noqa: BLE001  # the pipeline goes on whatever happens to its record
            said = str(problem) if isinstance(problem, BakeoffError) else error_text(problem)
            say(f"session '{one_line(self.name)}' could not be written: {said}")

    def _write(self, record: SessionRecord) -> None:
        from bakeoff.profile.files import reports_of, write_session

        self._files = write_session(record, self.settings, self._raw)
        asked = reports_of(self._files[0], record, self.settings)
        if asked:
            from bakeoff.profile.reporting import start_reports

            self._reports = start_reports(self._files[0], asked)

    def _check_folder(self) -> None:
        """Print now if the session's files could not be written at its end."""
        try:
            from bakeoff.profile.files import check_writable

            check_writable(self.name, self.settings, self.rank)
        except Exception as error:  # noqa: BLE001  # a session in memory is better than none
            said = str(error) if isinstance(error, BakeoffError) else error_text(error)
            say(f"session '{one_line(self.name)}' will have no files: {said}; give another output_dir")

    @property
    def open_outer(self) -> "Session | None":
        """The innermost open session around this one, or None."""
        found = self._outer
        while found is not None and not found.is_open:
            found = found._outer
        return found

    def _device_clock(self) -> DeviceClock | None:
        if not self.device.startswith("cuda"):
            return None
        return self._attempt("no-device-times", f"no times of {self.device}", lambda: DeviceClock(self.device))

    def _rank_facts(self) -> RankFacts | None:
        from bakeoff.profile.ranks.facts import rank_facts

        uuid = self.device_clock.uuid() if self.device_clock is not None else ""
        return rank_facts(uuid, self.profiler.parallelism, self.name, partial(self.notes.add, "rank-unknown"))

    def _start_monitor(self) -> "Monitor | None":
        """Start a monitor of this process and of all GPUs that CUDA programs see, if the settings ask for any of it."""
        settings = self.settings
        gpu, cpu = settings.quantities()
        if not gpu and not cpu:
            return None
        from bakeoff.machine.gpus import read_gpus
        from bakeoff.monitor.client import Monitor
        from bakeoff.monitor.request import MonitorRequest
        from bakeoff.profile.files import raw_file

        self._raw = raw_file(self.name, time_ns(), settings, self.rank)
        devices = tuple(str(facts["uuid"]) for facts in read_gpus()) if gpu else ()
        every, points = (settings.gpu_monitor_interval, settings.cpu_monitor_interval), settings.max_data_points
        return Monitor.start(MonitorRequest(os.getpid(), devices, gpu, cpu, *every, points, str(self._raw or "")))

    def _stop_monitor(self) -> Monitored | None:
        monitor = self._monitor
        if monitor is None:
            return None
        return self._attempt("not-monitored", _NO_MONITOR, lambda: monitor.stop(self._monotonic_ns))

    def latest(self) -> Mapping[str, float]:
        """Return the last value of each series of the monitor; empty without one."""
        monitor = self._monitor
        return (monitor and self._attempt("not-monitored", _NO_MONITOR, monitor.latest)) or {}

    def _start_live(self) -> "Live | None":
        if not self.settings.real_time_display or (self.rank is not None and self.rank.rank != 0):
            return None
        from bakeoff.profile.live import Live

        return Live(self)

    def _stop_live(self) -> None:
        if self._live is not None:
            self._attempt("live-failed", "the live display failed", self._live.stop)

    def _attempt(self, code: SessionCode, text: str, call: Callable[[], T]) -> T | None:
        """Return what a function returns; turn its error into a finding, because it must not end the pipeline."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001  # as above
            self.notes.add(code, f"{text}: {error_text(error)}")
            return None


class NoSession:
    """Stand-in whose methods do nothing, for `current()` outside sessions and for sessions of a profiler that is off.

    In a unit of a pipeline's loop (bakeoff.Pipeline) it is open, and passes phases and steps on to the loop.
    """

    __slots__ = ("_phase", "_step", "is_open")
    name = ""
    record: SessionRecord | None = None
    files: tuple[Path, ...] = ()

    def __init__(
        self,
        phase: Callable[[str], AbstractContextManager[object]] | None = None,
        step: Callable[[Scalar, Scalar], AbstractContextManager[object]] | None = None,
    ) -> None:
        """`phase` takes a name, `step` an index or None and a timestep. With `phase`, `is_open` is true."""
        self.is_open = phase is not None
        self._phase, self._step = phase, step

    def __enter__(self) -> "NoSession":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def phase(self, name: object, _repeats: bool = False) -> AbstractContextManager[object]:
        return NOTHING if self._phase is None else self._phase(clean(name))

    stage = collective = phase

    def step(
        self, index: object = None, timestep: object = None, _repeats: bool = False
    ) -> AbstractContextManager[object]:
        return NOTHING if self._step is None else self._step(plain(index)[0], plain(timestep)[0])

    def unit(self, *_given: object, **_named: object) -> Nothing:
        return NOTHING

    def event(self, *_given: object, **_named: object) -> None:
        return None

    log = parameters = sample = event


NO_SESSION = NoSession()
current_session: ContextVar[Session | NoSession | None] = ContextVar("bakeoff_session", default=None)
fallback: list[Callable[[], Session | None]] = []
"""Functions that return the installed profiler's open session, for threads that have no context of their own."""


def current() -> Session | NoSession:
    """Return the innermost open session of this context, or `NO_SESSION`.

    A thread starts without a session: there it is the only open session of the installed profiler, if there is exactly
    one.
    """
    found = current_session.get()
    if isinstance(found, Session) and not found.is_open:
        found = found.open_outer
    if found is None and fallback:
        found = fallback[0]()
    return NO_SESSION if found is None else found


def status(error: BaseException | None) -> str:
    """Return how a session ended: `ok`, `interrupted` or `failed: ValueError: ...`."""
    if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
        return "ok"
    if isinstance(error, KeyboardInterrupt | GeneratorExit) or type(error).__name__ == "CancelledError":
        return "interrupted"
    return f"failed: {error_text(error)}"
