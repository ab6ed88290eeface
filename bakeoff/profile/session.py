"""`Session`: everything that one run of a pipeline records. `NO_SESSION` has the same methods and records nothing."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from time import monotonic_ns, time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.machine.terminal import one_line
from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import Scalar
from bakeoff.profile.cost import Budget
from bakeoff.profile.plain import error_text, plain, say, text
from bakeoff.profile.ranges import NOTHING, Nothing, Range, innermost, open_range
from bakeoff.profile.recording import AskedKind, Snapshot, take_snapshot
from bakeoff.profile.stages import clean
from bakeoff.profile.torch_state import DeviceClock
from bakeoff.record.finding import SessionCode
from bakeoff.record.monitor import Monitored
from bakeoff.record.session import RangeTotal, RankFacts, SessionRecord

if TYPE_CHECKING:
    from bakeoff.profile.profiler import Profiler


_NO_MONITOR = "the monitor gave nothing"


class Session:
    """One session of a profiler, from `__enter__` to `__exit__`. Made by `Profiler.session`; used once.

    Its methods may be called from any thread and any coroutine, and never raise. What cannot be recorded becomes a
    finding of the record.
    """

    def __init__(self, profiler: "Profiler", name: str, tags: Mapping[str, Scalar]) -> None:
        """`tags` are the checked tags of the settings and of this session together."""
        self.profiler, self.device = profiler, profiler.device
        self.name = text(name) or "session"
        self.tags = {text(key): text(value) if isinstance(value, str) else value for key, value in tags.items()}
        self.settings = profiler.settings
        self.record: SessionRecord | None = None
        """None until the session has ended."""
        self._files: tuple[Path, ...] = ()
        self._reports: Any = None
        self.recording = profiler.fresh_recording()
        self._outer: Session | None = None
        self._within = ExitStack()
        """Stage that stands for this session in another one of the same profiler, if it was entered within that."""
        self._budget: Budget | None = None
        self.range_ns = 0.0
        """Cost of an empty range in nanoseconds."""
        self.dropped: list[str] = []
        """Kinds of ranges that were left out after recording had cost more than the limit."""
        self._monitor: Any = None
        self._monotonic_ns = 0
        """Start of the session by the monitor's clock."""
        self._raw: Path | None = None
        self._live: Any = None
        self.before: tuple[RangeTotal, ...] = ()
        self.rank: RankFacts | None = None
        self.started_wall_ns = self._pid = 0

    @property
    def is_open(self) -> bool:
        return self.recording.is_open

    @property
    def files(self) -> tuple[Path, ...]:
        """Files written at the session's end, the record first.

        Waits for the process that makes the page and JSON report.
        """
        return self._files if self._reports is None else (*self._files, *self._reports.wait())

    def __enter__(self) -> "Session":
        """Open and return the session; within another one of the same profiler, open a stage of that and return that.

        A run thus has one account. Raises BakeoffError if this session was used already.
        """
        if self._pid:
            raise BakeoffError(
                f"session '{self.name}' was used already; make another with Profiler.session", "bad-option"
            )
        found = current_session.get()
        outer = found if isinstance(found, Session) else None
        if outer is not None and not outer.is_open:  # one that ended in another context
            outer = outer.open_outer
        self._pid = os.getpid()
        inside = outer
        while inside is not None:
            if inside.is_open and inside.profiler is self.profiler:
                inside.recording.event("session_in_session", {"session": self.name, **self.tags})
                self._within.enter_context(inside.stage(self.name))
                return inside
            inside = inside._outer
        self._outer = outer
        self._open()
        return self

    def _open(self) -> None:
        recording, profiler, settings = self.recording, self.profiler, self.settings
        recording.has_units = settings.profile_block_computation
        recording.has_steps = settings.profile_diffusion_steps
        recording.has_models = settings.profile_model_parameters
        self.range_ns = profiler.range_ns()
        recording.device = self._device_clock()
        self._find_rank()
        self._check_folder()
        self._start_monitor()
        before = profiler.take_before()
        self.before = before.totals()
        recording.take(before)
        for name, model in profiler.models.items():
            recording.parameters(name, model["parameters_count"], model["model_type"])
        recording.heir = lambda: profiler.before
        recording.root.outer = open_range()
        started = recording.begin()
        self.started_wall_ns, self._monotonic_ns = time_ns(), monotonic_ns()
        self._budget = Budget(self.range_ns, settings.overhead_limit, started)
        recording.check = self._check_cost
        current_session.set(self)
        innermost.set(recording.root)
        profiler.opened(self)
        self._start_live()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """End the session and write its files. An exception of the pipeline is not suppressed."""
        self._within.__exit__(kind, error, trace)
        if self.is_open and os.getpid() == self._pid:  # a forked child leaves the session to its parent
            self._end(status(error))
        return False

    def close(self, reason: str) -> None:
        """End the session, if it is still open, with the status `reason`."""
        if self.is_open and os.getpid() == self._pid:
            self._end(reason)
            if self._reports is not None:  # the interpreter is about to exit
                with suppress(KeyboardInterrupt):
                    self._reports.wait()

    def _end(self, told: str) -> None:
        recording = self.recording
        recording.counts.tell()
        ended = recording.end()
        current_session.set(self._outer)
        innermost.set(recording.root.outer)
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

        self._files = write_session(record, self.settings)
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

    def stage(self, name: str) -> Range | Nothing:
        """Return a range for any named part, such as loading or the encoding of a prompt."""
        return self.recording.stage(name)

    def unit(self, frames: int = 0, latents: int = 0, kind: AskedKind = "steady") -> Range | Nothing:
        """Return a range for one unit of work, such as a block of frames.

        `kind` marks units that differ from the steady ones, from which rates are computed. A unit in which torch
        compiled is `compiling`, whatever is asked.
        """
        return self.recording.unit(frames, latents, kind)

    def phase(self, name: str) -> Range | Nothing:
        """Return a range for a phase, a part of a unit."""
        return self.recording.phase(name)

    def step(self, index: int | None = None, timestep: float | None = None) -> Range | Nothing:
        """Return a range for one denoising step.

        Without an index, steps are counted from 0 within the range around them. A timestep on a device is not recorded,
        because reading it would wait for the device.
        """
        return self.recording.step(index, timestep)

    def collective(self, name: str) -> Range | Nothing:
        """Return a range for a phase that waits for other ranks."""
        return self.recording.collective(name)

    def event(self, name: str, /, **data: object) -> None:
        """Record an event that happened now. Data that are no plain values are kept as their `repr`."""
        self.recording.event(name, data)

    def parameters(self, name: str, module_or_count: object, kind: str = "") -> None:
        """Record the size of a model, given as a torch module or as the number of its parameters."""
        self.recording.parameters(name, module_or_count, kind)

    def sample(self, name: str, value: float, unit: str = "") -> None:
        """Add a value to a series of the pipeline's own, such as the length of a queue."""
        self.recording.sample(name, value, unit)

    def snapshot(self) -> Snapshot:
        """Return the state of the session now."""
        return take_snapshot(self.name, self.recording, self._latest())

    @property
    def open_outer(self) -> "Session | None":
        """The innermost open session around this one, or None."""
        found = self._outer
        while found is not None and not found.is_open:
            found = found._outer
        return found

    def _check_cost(self) -> None:
        dropped = self._budget.exceeded(self.recording) if self._budget is not None else None
        if dropped is not None:
            self.dropped.append(dropped)

    def _device_clock(self) -> DeviceClock | None:
        found = None
        if self.device.startswith("cuda"):
            with self._survived("no-device-times", f"no times of {self.device}"):  # host times are recorded still
                found = DeviceClock(self.device)
        return found

    def _find_rank(self) -> None:
        with self._survived("rank-unknown", "the rank of this process is unknown"):  # a process group in any state
            from bakeoff.profile.ranks.facts import rank_facts

            uuid = self.recording.device.uuid() if self.recording.device is not None else ""
            notes = self.recording.notes
            self.rank = rank_facts(
                uuid, self.profiler.parallelism, self.name, lambda said: notes.add("rank-unknown", said)
            )

    def _start_monitor(self) -> None:
        """Start a monitor of this process and of all GPUs that CUDA programs see, if the settings ask for any of it."""
        settings = self.settings
        gpu, cpu = settings.quantities()
        if not gpu and not cpu:
            return
        with self._survived("not-monitored", _NO_MONITOR):
            from bakeoff.machine.gpus import read_gpus
            from bakeoff.monitor.client import Monitor
            from bakeoff.monitor.request import MonitorRequest
            from bakeoff.profile.files import raw_file

            self._raw = raw_file(self.name, time_ns(), settings, self.rank)
            devices = tuple(str(facts["uuid"]) for facts in read_gpus()) if gpu else ()
            every, points = (settings.gpu_monitor_interval, settings.cpu_monitor_interval), settings.max_data_points
            request = MonitorRequest(os.getpid(), devices, gpu, cpu, *every, points, str(self._raw or ""))
            self._monitor = Monitor.start(request)

    def _stop_monitor(self) -> Monitored | None:
        found: Monitored | None = None
        with self._survived("not-monitored", _NO_MONITOR):
            if self._monitor is not None:
                from bakeoff.profile.files import raw_file

                found = self._monitor.stop(self._monotonic_ns)
                if self._raw is not None and self._raw.exists():  # it was named before the session had a start
                    target = raw_file(self.name, self.started_wall_ns, self.settings, self.rank)
                    self._raw.replace(target or self._raw)
        return found

    def _latest(self) -> Mapping[str, float]:
        found: dict[str, float] = {}
        with self._survived("not-monitored", _NO_MONITOR):
            if self._monitor is not None:
                found.update(self._monitor.latest())
        return found

    def _start_live(self) -> None:
        with self._survived("live-failed", "no live display"):
            if self.settings.real_time_display:
                from bakeoff.profile.live import Live

                self._live = Live(self)
                self._live.start()

    def _stop_live(self) -> None:
        with self._survived("live-failed", "the live display failed"):
            if self._live is not None:
                self._live.stop()

    @contextmanager
    def _survived(self, code: SessionCode, text: str) -> Iterator[None]:
        """Turn an error in the block into a finding, because it must not end the pipeline."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # as above
            self.recording.notes.add(code, f"{text}: {error_text(error)}")


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

    @property
    def recording(self) -> "NoSession":
        """Recording in which decorators open ranges: this object itself."""
        return self

    def __enter__(self) -> "NoSession":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def phase(self, name: object, repeats: bool = False) -> AbstractContextManager[object]:  # noqa: ARG002  # here and
        # below: the parameters of a session's and a recording's methods
        return NOTHING if self._phase is None else self._phase(clean(name))

    stage = collective = phase

    def unit(self, frames: object = 0, latents: object = 0, kind: object = "steady") -> Nothing:  # noqa: ARG002
        return NOTHING

    def step(
        self,
        index: object = None,
        timestep: object = None,
        repeats: bool = False,  # noqa: ARG002
    ) -> AbstractContextManager[object]:
        return NOTHING if self._step is None else self._step(plain(index)[0], plain(timestep)[0])

    def event(self, name: str, /, *given: object, **data: object) -> None:  # noqa: ARG002
        return None

    def parameters(self, name: str, module_or_count: object, kind: str = "") -> None:  # noqa: ARG002
        return None

    def sample(self, name: str, value: float, unit: str = "") -> None:  # noqa: ARG002
        return None

    def snapshot(self) -> None:
        return None


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
