"""Runs one job in a fresh worker process under a guard, with deadlines, and says how it ended."""

import contextlib
import json
import os
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from bakeoff import guard
from bakeoff.job import Answer, Job
from bakeoff.models.errors import BakeoffError
from bakeoff.record import read_as

LOG_LIMIT_BYTES = 4 << 20
RESULT_LIMIT_BYTES = 64 << 20
_GUARD_PATIENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class Event:
    """A line from the worker: the phase it enters, or a count within it."""

    phase: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a worker ended. `value` is the decoded result when `kind` is "result"."""

    kind: Literal["result", "refused", "timeout", "oom", "crashed"]
    reason: str = ""
    value: Any = None
    wall_s: float = 0.0
    phase: str = ""
    """The last phase it announced."""
    leftovers: int = 0
    """Descendants it left running; they are dead now."""
    log_dropped: int = 0


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds a phase may take, by its name; `default` for the others."""

    default: float
    phases: Mapping[str, float] = field(default_factory=dict)

    def of(self, phase: str) -> float:
        return self.phases.get(phase, self.default)


def run_job(
    job: Job,
    result_type: type,
    environment: Mapping[str, str],
    deadlines: Deadlines,
    log: Path,
    on_event: Callable[[Event], None],
) -> Outcome:
    """Run `job` in a worker of its own and wait for it without polling.

    KeyboardInterrupt passes through after the worker and all it started are dead. Raises BakeoffError when no worker
    can be started at all (no room for its folder, no permission).
    """
    if sys.platform != "linux":
        raise BakeoffError(f"bakeoff isolates workers with Linux's prctl and pidfd; this is {sys.platform}")
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="bakeoff-"))
        (folder / "job.json").write_bytes(msgspec.json.encode({"kind": type(job).__name__, "job": job}))
    except OSError as error:
        raise BakeoffError(f"no worker can be started: {error.strerror} ({error.filename}); free some space") from error
    guard.prctl(guard.PR_SET_CHILD_SUBREAPER, 1)
    try:
        return _supervise(folder, result_type, environment, deadlines, log, on_event)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _supervise(
    folder: Path,
    result_type: type,
    environment: Mapping[str, str],
    deadlines: Deadlines,
    log: Path,
    on_event: Callable[[Event], None],
) -> Outcome:
    control_read, control_write = os.pipe()
    status_read, status_write = os.pipe()
    events_read, events_write = os.pipe()
    ooms_before = _kernel_oom_kills()
    started = time.monotonic()
    process = subprocess.Popen(
        [
            *(sys.executable, "-I", "-S", guard.__file__),
            *(str(control_read), str(status_write), str(log), str(LOG_LIMIT_BYTES), "--"),
            *(sys.executable, "-P", "-m", "bakeoff.worker", str(events_write)),
        ],
        cwd=folder,
        env={**environment, "BAKEOFF_WORKER_FDS": str(events_write)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(control_read, status_write, events_write),
        start_new_session=True,
    )
    for descriptor in (control_read, status_write, events_write):
        os.close(descriptor)
    phase, late = "start", False
    try:
        phase, late = _follow(events_read, status_read, started, deadlines, on_event)
    finally:
        os.close(control_write)  # the guard kills whatever is left and reports
        report = _read_report(status_read, process)
        os.close(events_read)
        os.close(status_read)
    wall_s = time.monotonic() - started

    def outcome(kind: Any, reason: str = "", value: Any = None) -> Outcome:
        return Outcome(kind, reason, value, wall_s, phase, report.get("leftovers", 0), report.get("log_dropped", 0))

    if late:
        return outcome("timeout", f"{phase} took longer than {deadlines.of(phase):.0f} s")
    code = report.get("code")
    if code == 0:
        return _read_result(folder / "result.json", result_type, phase, outcome)
    if code == -signal.SIGKILL and _kernel_oom_kills() > ooms_before:
        return outcome("oom", f"killed by the kernel's out-of-memory killer in phase {phase}")
    if code is None:
        return outcome("crashed", f"the guard of the worker was killed in phase {phase}")
    if code < 0:
        with contextlib.suppress(ValueError):
            return outcome("crashed", f"{signal.Signals(-code).name} in phase {phase}")
    return outcome("crashed", f"exit code {code} without a result in phase {phase}: {_last_line(log)}")


def _follow(
    events: int, status: int, started: float, deadlines: Deadlines, on_event: Callable[[Event], None]
) -> tuple[str, bool]:
    """Read events until the guard reports or a deadline passes; returns the last phase and whether it was late."""
    selector = selectors.DefaultSelector()
    selector.register(events, selectors.EVENT_READ)
    selector.register(status, selectors.EVENT_READ)
    phase, pending = "start", b""
    deadline = started + deadlines.of(phase)
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return phase, True
        ready = {key.fd for key, _ in selector.select(remaining)}
        if events in ready:
            data = os.read(events, 1 << 16)
            if not data:
                selector.unregister(events)
            *lines, pending = (pending + data).split(b"\n")
            pending = pending[-4096:]
            for line in lines:
                event = _read_event(line)
                if event is None:
                    continue
                if event.phase != phase:
                    phase, deadline = event.phase, time.monotonic() + deadlines.of(event.phase)
                on_event(event)
        if status in ready and not (events in ready and data):
            return phase, False


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
        guard.kill_descendants()  # the guard itself was killed: what it guarded has come to this process
        return {}
    return report


def _read_result(path: Path, result_type: type, phase: str, outcome: Callable[..., Outcome]) -> Outcome:
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return outcome("crashed", "the result file cannot be read: it is not a plain file")
        if path.stat().st_size > RESULT_LIMIT_BYTES:
            return outcome("crashed", f"the result file is larger than {RESULT_LIMIT_BYTES} bytes")
        answer = msgspec.json.decode(path.read_bytes(), type=Answer)
        if answer.refused:
            return outcome("refused", answer.refused)
        if answer.out_of_memory:
            return outcome("oom", f"{answer.out_of_memory} in phase {phase}")
        return outcome("result", value=read_as(answer.value, result_type))
    except FileNotFoundError:
        return outcome("crashed", "exit code 0 without a result")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OSError) as error:
        return outcome("crashed", f"the result file cannot be read: {error}")


def _last_line(log: Path) -> str:
    """The newest line of a log that says something, for a one-line reason."""
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
