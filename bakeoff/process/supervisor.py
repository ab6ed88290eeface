"""Runs one job in a fresh worker process under a guard, with deadlines, and reports how it ended."""

import contextlib
import hashlib
import json
import math
import os
import selectors
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec

from bakeoff.models.errors import BakeoffError, ErrorCode
from bakeoff.monitor.client import Monitor
from bakeoff.process import guard
from bakeoff.process.environment import IN_WORKER, lab_code_path, make_work_folder
from bakeoff.process.jobs import Answer, Job
from bakeoff.process.phases import Block, UnitStamp, is_by_step
from bakeoff.process.signals import first_signal_waits
from bakeoff.process.watch import NOT_WATCHED, GpuPeaks, Watched, metering, start_monitor, stop_monitor
from bakeoff.record.codec import read_as

WORKER = (sys.executable, "-P", "-m", "bakeoff.worker")
"""The command of a worker; the descriptors of its events and of its commands follow."""
LOG_LIMIT_BYTES = 4 << 20
RESULT_LIMIT_BYTES = 64 << 20
_GUARD_PATIENCE_S = 15.0
_LONGEST_EVENT = 1 << 14


@dataclass(frozen=True, slots=True)
class Event:
    """A line from the worker: the phase it enters, or how far it is within it.

    `phase` is one of `phases.PHASES` unless a backend writes to the worker's descriptor too.
    """

    phase: str
    detail: str = ""
    call_ns: int | None = None
    """Median time of a call in warm-up, with "ready"."""
    block: Block | None = None
    """The timed calls, with "block"."""
    stamp: UnitStamp | None = None
    """The unit, with "unit" in a sustained run."""
    t_ns: int = 0
    """The worker's clock, the one that times calls, in nanoseconds from any start."""
    seal: str = ""
    """SHA-256 of the result file, the last thing that a worker sends; such an event begins no phase."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of a worker. `value` is the decoded result when `kind` is "result"."""

    kind: Literal["result", "refused", "timeout", "oom", "crashed"]
    reason: str = ""
    value: Any = None
    wall_s: float = 0.0
    phase: str = ""
    """The last phase that the worker announced."""
    leftovers: int = 0
    """Number of descendants that it left running; they have been killed."""
    log_dropped: int = 0
    code: ErrorCode = ""
    """The code of the worker's error, when `kind` is "refused"."""
    phase_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each phase by this process's clock; the times of a phase that is entered again are summed up."""
    worker_phase_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each phase by the worker's clock, except the last phase."""
    gpu_peaks: GpuPeaks | None = None
    """Peak device memory of untimed phases, if a GPU was metered."""
    watched: Watched = NOT_WATCHED
    """Recording of a monitor, if one was requested."""
    timeline: tuple[tuple[str, float], ...] = ()
    """Each phase with its start by time.monotonic(); the last entry is "" with the time of the end."""

    @property
    def built(self) -> tuple[float, float] | None:
        """Start and end of the worker's build, during which others may have been building too; None without times."""
        ends = [at for phase, at in self.timeline if phase in ("turn", "")]
        return (self.timeline[0][1], ends[0]) if ends else None

    @property
    def alone(self) -> tuple[float, float] | None:
        """Start and end of the time in which the worker had the machine to itself; None if it ended before its turn."""
        phases = [phase for phase, _ in self.timeline]
        return (self.timeline[phases.index("turn") + 1][1], self.timeline[-1][1]) if "turn" in phases else None

    def raise_refusal(self) -> None:
        """Raise BakeoffError if the worker refused the request itself."""
        if self.kind == "refused":
            raise BakeoffError(self.reason, self.code)

    def result_of(self, what: str, log: Path) -> Any:
        """Return `value`; `what` names the job in messages.

        Raises BakeoffError with the message and code of the worker's own error, or, if it ended without a result, with
        how it ended and the path of its log.
        """
        self.raise_refusal()
        if self.kind != "result":
            raise BakeoffError(f"{what}: {self.kind}: {self.reason}; see {log}", "worker-failed")
        return self.value


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a phase may take, by its name; `default` for all others."""

    default: float
    phases: Mapping[str, float] = field(default_factory=dict)
    total: float = math.inf
    """Seconds that all phases together may take."""

    def of(self, phase: str) -> float:
        return self.phases.get(phase, self.default)


def _ignore(_event: Event) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Launch:
    """Command, environment and deadlines with which a worker is started and watched."""

    environment: Mapping[str, str]
    deadlines: Deadlines
    log: Path
    """File for the worker's output; its folder is created."""
    on_event: Callable[[Event], None] = _ignore
    gpu: str = ""
    """UUID of the GPU whose memory is polled in untimed phases; empty for none."""
    timed: Collection[str] = ()
    """Phases in which samples are taken, if a monitor is to watch the worker; empty for no monitor."""
    python: str = ""
    """Interpreter of the worker, which then finds this lab's code but its own libraries; "" for this process's."""


def run_job(job: Job, result_type: type, launch: Launch) -> Outcome:
    """Run `job` in a worker of its own, wait for it, and return how it ended.

    Meanwhile only the memory of a GPU is polled, while nothing is timed. KeyboardInterrupt passes through after the
    worker and all it started are dead. Raises BakeoffError if no worker can be started at all (no room for its folder,
    no permission).
    """
    with LiveWorker(job, launch) as worker:
        worker.tell("go")  # nothing else runs, so its turn comes as soon as it asks for it
        worker.wait()
        return worker.finish(result_type)


_guards: set[int] = set()
"""Process ids of the guards of workers that have not ended."""


class LiveWorker:
    """One worker under its guard, from start to end; it takes commands while it runs.

    A context manager: leaving it, however that happens, kills the worker and all it started and removes its folder.
    """

    def __init__(self, job: Job, launch: Launch) -> None:
        """Write the job into a new folder. Raises BakeoffError if no worker can be started at all."""
        if sys.platform != "linux":
            text = f"workers need Linux (prctl, pidfd); this is {sys.platform}"
            raise BakeoffError(text, "unsupported")
        self._launch, self._deadlines, self._log = launch, launch.deadlines, launch.log
        work = None
        try:
            launch.log.parent.mkdir(parents=True, exist_ok=True)
            work = make_work_folder()
            (work.path / "job.json").write_bytes(msgspec.json.encode({"kind": type(job).__name__, "job": job}))
            self._work, self._folder = work, work.path
        except OSError as error:
            if work is not None:
                work.remove()
            text = f"no worker can be started: {error.strerror} ({error.filename}); free some space"
            raise BakeoffError(text, "not-writable") from error
        self.phase = "start"
        """The last phase that the worker announced."""
        self.timeline: list[tuple[str, float]] = []
        """Each phase with its start by time.monotonic(); "" marks the end of the worker."""
        self._worker_timeline: list[tuple[str, float]] = [(self.phase, 0.0)]
        """Each phase with its start by the worker's clock in seconds; 0 if the event states no time."""
        self._told = contextlib.ExitStack()
        """Closes the pipes to guard and worker, each once."""
        self._late = False
        self._seals: list[str] = []
        self._report: dict[str, Any] | None = None
        self._wall_s = 0.0
        self._gpu = metering(launch.gpu)
        self._monitor: Monitor | None = None
        self._watched = NOT_WATCHED

    def __enter__(self) -> "LiveWorker":
        """Start the worker. Raises BakeoffError if there is no process or pipe to be had."""
        self._meter = self._gpu.__enter__()
        try:
            with first_signal_waits():  # what was not entered is not left
                self._start()
                self._monitor = start_monitor(self._process.pid, self._launch.gpu) if self._launch.timed else None
        except BaseException as error:
            self.__exit__(None, None, None)
            if isinstance(error, OSError):
                raise BakeoffError(f"no worker can be started: {error.strerror}", "not-writable") from error
            raise
        return self

    def _start(self) -> None:
        """Start the guard and the worker. Raises OSError, with nothing left open, if they cannot be started."""
        guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
        self._ooms_before = _kernel_oom_kills()
        self._started = time.monotonic()
        self._deadline = self._started + self._deadlines.of(self.phase)
        self._pending = b""
        python = self._launch.python
        with contextlib.ExitStack() as opened:
            (control, self._control), (self._status, status), (self._events, events), (commands, self._commands) = (
                _pipe(opened) for _ in range(4)
            )
            ours = (control, status, events, commands)
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", guard.__file__),
                    *(str(control), str(status), str(self._log), str(LOG_LIMIT_BYTES), "--"),
                    *((python, *WORKER[1:]) if python else WORKER),
                    *(str(events), str(commands)),
                ],
                cwd=self._folder,
                env={
                    **self._launch.environment,
                    **(lab_code_path() if python else {}),
                    "TMPDIR": str(self._work.temporary),
                    IN_WORKER: f"{events},{commands}",
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=ours,
                start_new_session=True,
            )
            opened.pop_all()
        self._told.callback(os.close, self._control)  # the guard kills whatever is left and reports
        self._told.callback(os.close, self._commands)
        self.timeline.append((self.phase, self._started))
        _guards.add(self._process.pid)
        for descriptor in ours:
            os.close(descriptor)

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        with first_signal_waits():
            self._end()
            self._gpu.__exit__(None, None, None)
            self._work.remove()

    def tell(self, line: str) -> None:
        """Send one line to the worker and restart its phase's deadline. If the worker has ended, `wait` reports
        that."""
        if self._report is not None:  # ended: the descriptor is somebody else's now
            return
        self.go_on()
        with contextlib.suppress(BrokenPipeError):
            os.write(self._commands, line.encode() + b"\n")

    def go_on(self) -> None:
        """Restart the deadline of the worker's phase."""
        self._deadline = time.monotonic() + self._deadlines.of(self.phase)

    def wait(self, until: str = "") -> Event | None:
        """Read events until the worker announces phase `until`; None if it ended or a deadline passed before."""
        return wait_for({self: until})[self]

    def _descriptors(self) -> tuple[int, int]:
        return self._events, self._status

    def _pause_s(self) -> float:
        """Return how many seconds to wait for the worker's next event at most."""
        remaining = min(self._deadline, self._started + self._deadlines.total) - time.monotonic()
        return min(remaining, self._meter.pause_s(self.phase))

    def _read(self, ready: Collection[int], until: str, selector: selectors.BaseSelector) -> tuple[bool, Event | None]:
        """Read what is ready; return whether the wait is over, and the event that ended it, if any."""
        if self._meter.pause_s(self.phase) <= 0:
            self._meter.poll(self.phase, self._process.pid)
        data = b""
        if self._events in ready:
            data = os.read(self._events, 1 << 16)
            if not data:
                selector.unregister(self._events)
            found = self._take(data, until)
            if found is not None:
                return True, found
        if self._status in ready and not data:
            return True, None
        self._late = min(self._deadline, self._started + self._deadlines.total) <= time.monotonic()
        return self._late, None

    def _take(self, data: bytes, until: str) -> Event | None:
        *lines, pending = (self._pending + data).split(b"\n")
        self._pending = pending[-_LONGEST_EVENT:]
        found = None
        for line in lines:
            event = _read_event(line)
            if event is None:
                continue
            if event.seal:
                self._seals.append(event.seal)
                continue
            if event.phase != self.phase:
                self._worker_timeline.append((event.phase, event.t_ns / 1e9))
                self.timeline.append((event.phase, time.monotonic()))
            if event.phase != self.phase or is_by_step(event.phase):
                self.phase, self._deadline = event.phase, time.monotonic() + self._deadlines.of(event.phase)
            self._launch.on_event(event)
            if event.phase == until:
                found = event
        return found

    def finish(self, result_type: type) -> Outcome:
        """End the worker if it has not ended, and return how it ended, with the decoded result."""
        self._end()
        assert self._report is not None
        return replace(
            self._ending(self._report.get("code"), result_type),
            wall_s=self._wall_s,
            phase=self.phase,
            leftovers=self._report.get("leftovers", 0),
            log_dropped=self._report.get("log_dropped", 0),
            phase_s=spent_s(self.timeline),
            worker_phase_s=spent_s(self._worker_timeline),
            gpu_peaks=self._meter.peaks(),
            watched=self._watched,
            timeline=tuple(self.timeline),
        )

    def _ending(self, code: int | None, result_type: type) -> Outcome:
        """Return the worker's outcome by the exit code that its guard reported; None if the guard was killed."""
        if self._late:
            limit, total = self._deadlines.of(self.phase), self._deadlines.total
            if self._wall_s >= total:
                return Outcome("timeout", f"not done after {total:.0f} s, in phase {self.phase}")
            return Outcome("timeout", f"{self.phase} took longer than {limit:.0f} s")
        if code == 0:
            return _read_result(self._folder / "result.json", self._seals, result_type, self.phase)
        if code == -signal.SIGKILL and _kernel_oom_kills() > self._ooms_before:
            return Outcome("oom", f"killed by the kernel's out-of-memory killer in phase {self.phase}")
        if code is None:
            return Outcome("crashed", f"the guard of the worker was killed in phase {self.phase}")
        if code < 0:
            with contextlib.suppress(ValueError):
                return Outcome("crashed", f"{signal.Signals(-code).name} in phase {self.phase}")
        text = f"exit code {code} without a result in phase {self.phase}: {_last_line(self._log)}"
        return Outcome("crashed", text)

    def _end(self) -> None:
        """End the worker unless it has ended or was never started; if a second signal interrupts this, go on with
        it."""
        with first_signal_waits():
            if self._report is not None or not self.timeline:
                return
            self._told.close()
            _guards.discard(self._process.pid)
            report = _read_report(self._status, self._process)
            self._drain()
            ended = time.monotonic()
            self.timeline.append(("", ended))
            self._wall_s, self._report = ended - self._started, report
            os.close(self._events)
            os.close(self._status)
            if self._monitor is not None:
                self._watched = stop_monitor(self._monitor, self.timeline, self._launch.timed)

    def _drain(self) -> None:
        """Read the events that the worker wrote before it ended and that were not read yet."""
        os.set_blocking(self._events, False)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._events, 1 << 16):
                self._take(data, "")


def wait_for(
    awaited: Mapping[LiveWorker, str], patience_s: Callable[[int], float] = lambda _: inf
) -> dict[LiveWorker, Event | None]:
    """Read the events of several workers until each has announced the phase that is named for it, or has ended.

    Returns the event that announced the phase; None for a worker that ended, or that was ended because a deadline
    passed. A worker that has reached its phase is not read any further, nor held to a deadline, while others are waited
    for; `patience_s` returns for how long still, given how many have reached it. Workers that are not waited for any
    longer are ended, and are not in the result.
    """
    found: dict[LiveWorker, Event | None] = {}
    with selectors.DefaultSelector() as selector:
        for worker in awaited:
            for descriptor in worker._descriptors():
                selector.register(descriptor, selectors.EVENT_READ, worker)
        while len(found) < len(awaited):
            left = [worker for worker in awaited if worker not in found]
            ready: dict[LiveWorker, set[int]] = {worker: set() for worker in left}
            patience = patience_s(sum(event is not None for event in found.values()))
            if patience <= 0:
                for worker in left:
                    worker._end()
                break
            for key, _ in selector.select(max(0.0, min(patience, *(worker._pause_s() for worker in left)))):
                ready[key.data].add(key.fd)
            failed = []
            for worker in left:
                done, event = worker._read(ready[worker], awaited[worker], selector)
                if done:
                    found[worker] = event
                    for descriptor in worker._descriptors():
                        with contextlib.suppress(KeyError):
                            selector.unregister(descriptor)
                    failed += [worker] if event is None else []
            for worker in failed:
                worker._end()  # a late one would go on beside whatever comes next
    return found


def _pipe(opened: contextlib.ExitStack) -> tuple[int, int]:
    """Return a pipe, whose ends are closed as `opened` is."""
    ends = os.pipe()
    for descriptor in ends:
        opened.callback(os.close, descriptor)
    return ends


def spent_s(entered: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return the seconds from the start of each phase to that of the next, summed by phase; a time of 0 is unknown."""
    found: dict[str, float] = {}
    for (phase, began), (_, ended) in pairwise(entered):
        if began and ended:
            found[phase] = found.get(phase, 0.0) + ended - began
    return found


def _read_event(line: bytes) -> Event | None:
    try:
        return msgspec.json.decode(line, type=Event)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _read_report(status: int, process: "subprocess.Popen[bytes]") -> dict[str, Any]:
    try:
        process.wait(_GUARD_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    os.set_blocking(status, False)
    try:
        report: dict[str, Any] = json.loads(os.read(status, 4096))
    except (BlockingIOError, ValueError):
        guard.kill_descendants(spared=_guards)  # it was killed itself: what it guarded has come to this process
        return {}
    return report


def _read_result(path: Path, seals: Sequence[str], result_type: type, phase: str) -> Outcome:
    """Return the outcome by the result file, which must be the one that the worker sealed at the end of its own
    code."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return Outcome("crashed", "the result file cannot be read: it is not a plain file")
        if path.stat().st_size > RESULT_LIMIT_BYTES:
            return Outcome("crashed", f"the result file is larger than {RESULT_LIMIT_BYTES} bytes")
        data = path.read_bytes()
        if [hashlib.sha256(data).hexdigest()] != list(seals):
            state = "changed after it was sealed" if seals else "not written by the lab"
            return Outcome("crashed", f"the result file was {state}")
        answer = msgspec.json.decode(data, type=Answer)
        if answer.refused:
            return Outcome("refused", answer.refused, code=answer.refused_code)
        if answer.out_of_memory:
            return Outcome("oom", f"{answer.out_of_memory} in phase {phase}")
        return Outcome("result", value=read_as(answer.value, result_type))
    except FileNotFoundError:
        return Outcome("crashed", "exit code 0 without a result")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OSError) as error:
        return Outcome("crashed", f"the result file cannot be read: {error}")


def _last_line(log: Path) -> str:
    """Return the newest line of a log that is not empty, for a one-line reason."""
    with contextlib.suppress(OSError):
        lines = log.read_bytes()[-4096:].decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "no output")[:300]
    return "no log"


def _kernel_oom_kills() -> int:
    with contextlib.suppress(OSError), open("/proc/vmstat", encoding="ascii") as vmstat:
        for line in vmstat:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
