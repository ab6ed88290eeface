"""The selftest: sweeps its backends in lanes, then checks the clocks; the result is stored in later records."""

import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from bakeoff.backends.backend import Backend
from bakeoff.machine import host, locks
from bakeoff.machine.locks import device_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.models.options import options_of
from bakeoff.models.words import counted
from bakeoff.process.environment import worker_environment
from bakeoff.process.jobs import ClockJob, ClockResult
from bakeoff.process.supervisor import LOG_LIMIT_BYTES, Deadlines, Launch, run_job
from bakeoff.record.kept import write_stamp
from bakeoff.record.schema import Record, SelftestStamp
from bakeoff.record.source import code_hash
from bakeoff.record.store import load_all, now
from bakeoff.selftest.expected import Expectation, Lane, lanes
from bakeoff.sweeps.progress import Progress, Running
from bakeoff.variant import parse_use, split_outside_brackets, use_of

MARKER = "BAKEOFF_SELFTEST"
_DTYPE = "fp32"
_CLOCK_DEADLINE_S = 120.0
WAIT_TOLERANCE = 0.02
TIMER_TOLERANCE = 0.03
QUIET_SPREAD = 0.02
LATENCY_LIMIT_NS = 20_000
THROUGHPUT_LIMIT_NS = 5_000
_OF_THE_HOST = ("busy-host", "warm-up", "short-call")
"""Codes of findings that say nothing about a backend."""
_OF_A_CPU = ("left-to-aten",)
"""Codes of findings that rows of other devices never have."""
_LOG_SLACK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tested: what was expected and what was found."""

    name: str
    expected: str
    found: str
    passed: bool
    detail: str = ""
    not_run: str = ""
    """What this machine lacks to run the check, or empty; of a backend, only the row's status was tested then."""


@dataclass(frozen=True, slots=True)
class Selftest:
    stamp: SelftestStamp
    checks: tuple[Check, ...]
    noisy: str
    """Reason why the clocks could not be checked; empty on a quiet host."""
    seconds: float


def run(more: str, device: str, progress: Progress) -> Selftest:
    """Sweep `expected.lanes(more, device)`, check the clocks, and store the result, which later records contain.

    KeyboardInterrupt passes through after all processes that were started have ended; then nothing is stored. Raises
    BakeoffError if `more` names nothing.
    """
    plan = lanes(more, device)
    with device_lock(device, progress.say):
        return _run(more, plan, device, progress)


def _run(more: str, plan: Sequence[Lane], device: str, progress: Progress) -> Selftest:
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="bakeoff-selftest-"))
    marker = uuid.uuid4().hex
    try:
        total = sum(len(lane.expectations) for lane in plan) + 1
        counter = _Counter(progress, total)
        for group in ([lane for lane in plan if not lane.alone], *([lane] for lane in plan if lane.alone)):
            _run_together(group, more, folder, device, marker, counter)
        checks = [
            check_row(entry, record, folder / lane.name / "cache", device)
            for lane in plan
            for entry, record in _records(folder / lane.name / "runs", lane)
        ]
        left = _still_running(marker)
        checks.append(Check("no process is left", "0 processes", counted(len(left), "process", "processes"), not left))
        running = counter.start("clock")
        clock = _measure_clock(device, folder, running)
        running.finish("ok", "")
        checks += clock_checks(clock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    noisy = noise_reason(clock)
    stamp = SelftestStamp(all(check.passed for check in checks), not more, now(), code_hash())
    write_stamp(stamp)
    return Selftest(stamp, tuple(checks), noisy, time.monotonic() - started)


class _Counter:
    """Counter of the rows of lanes that run at the same time, for one progress line."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._started = progress, total, 0

    def start(self, what: str) -> Running:
        self._started += 1
        return self._progress.start(min(self._started, self._total), self._total, what)


def _run_together(group: Sequence[Lane], more: str, folder: Path, device: str, marker: str, counter: _Counter) -> None:
    """Sweep the lanes of a group at the same time, each in a process and folders of its own.

    Raises BakeoffError when the process of a lane fails. A faulty backend cannot cause that: it runs in a worker.
    """
    selector = selectors.DefaultSelector()
    running: dict[int, tuple[Lane, subprocess.Popen[str]]] = {}
    try:
        for lane in group:
            own = folder / lane.name
            environment = {
                **os.environ,
                "BAKEOFF_CACHE": str(own / "cache"),
                "BAKEOFF_RUNS": str(own / "runs"),
                locks.VARIABLE: str(own / "locks"),  # or it would wait for this process
                MARKER: marker,
            }
            own.mkdir()
            errors = (own / "errors.log").open("w")
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "bakeoff.selftest", more, lane.name, device],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            errors.close()
            assert process.stdout is not None
            running[process.stdout.fileno()] = (lane, process)
            selector.register(process.stdout, selectors.EVENT_READ)
        while running:
            for key, _ in selector.select():
                lane, process = running[key.fd]
                assert process.stdout is not None
                line = process.stdout.readline()
                if line:
                    _show_progress(line, lane, counter, device)
                    continue
                selector.unregister(key.fileobj)
                del running[key.fd]
                process.stdout.close()
                if process.wait() != 0:
                    tail = (folder / lane.name / "errors.log").read_text(errors="replace").strip().splitlines()[-1:]
                    text = f"The selftest's lane {lane.name} failed: {''.join(tail) or process.returncode}"
                    raise BakeoffError(text, code="worker-failed")
    finally:
        for _, process in running.values():
            process.send_signal(signal.SIGINT)
        for _, process in running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()


def _show_progress(line: str, lane: Lane, counter: _Counter, device: str) -> None:
    workload, backend, status = msgspec.json.decode(line)
    name, verdict, text = progress_line(lane, workload, backend, status, device)
    counter.start(name).finish(verdict, text)


def progress_line(lane: Lane, workload: str, backend: str, status: str, device: str) -> tuple[str, str, str]:
    """Return a row's name, `ok` or `wrong`, and a text about its status, which is compared with the expected one.

    Most rows are expected to fail. Findings are tested at the end.
    """
    entry = next(each for each in lane.expectations if _row_of(each, lane) == (workload, backend))
    lacking, _ = _not_runnable(entry, device)
    expected = lacking or entry.status
    if status == expected:
        return entry.name, "ok", f"{status}, as expected"
    return entry.name, "wrong", f"{status} instead of {expected}"


def _records(runs: Path, lane: Lane) -> Iterator[tuple[Expectation, Record | None]]:
    """Yield each backend of the lane with its row, or None if it has none."""
    stored = [entry.record for entry in load_all(runs).current]
    kept = {(record.variant.workload, record.variant.backend): record for record in stored}
    for entry in lane.expectations:
        yield entry, kept.get(_row_of(entry, lane))


def _row_of(entry: Expectation, lane: Lane) -> tuple[str, str]:
    """Return the workload and the backend of an expectation's row, as a record names them."""
    backend = "+".join(str(use_of(backend, options)) for backend, options in _steps(entry))
    return entry.workload or lane.workload, backend


def _steps(entry: Expectation) -> list[tuple[Backend, Any]]:
    from bakeoff.backends import resolve_backend

    parts = [parse_use(part) for part in split_outside_brackets(entry.backend, "+")]
    backends = [(resolve_backend(reference), pairs or {}) for reference, pairs in parts]
    return [(backend, options_of(backend, pairs)) for backend, pairs in backends]


def _not_runnable(entry: Expectation, device: str) -> tuple[str, str]:
    """Return the status of a row that cannot run on this machine or device, with the reason; ("", "") if it can run."""
    for backend, options in _steps(entry):
        if reason := backend.unavailable(options, device):
            return "unavailable", reason
        if reason := backend.unsupported(options, device, _DTYPE):
            return "unsupported", reason
    return "", ""


def check_row(entry: Expectation, record: Record | None, cache: Path, device: str) -> Check:
    """Check that a row has the expected status and finding; one that is `ok` may have no other finding.

    `cache` is the folder that contains the row's log, which must be bounded.
    """
    expected = entry.status + (f", {entry.finding}" if entry.finding else "")
    name = entry.name
    if record is None:
        return Check(name, expected, "no record", False)
    lacking, reason = _not_runnable(entry, device)
    if lacking:
        return Check(name, lacking, record.status, record.status == lacking, not_run=reason)
    codes = [finding.code for finding in record.measurement.findings if finding.code not in _OF_THE_HOST]
    wanted = [entry.finding] if entry.finding and (device == "cpu" or entry.finding not in _OF_A_CPU) else []
    passed = record.status == entry.status and (codes == wanted if entry.status == "ok" else set(wanted) <= set(codes))
    log = cache / record.log
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES + _LOG_SLACK_BYTES:
        return Check(name, expected, f"a log of {log.stat().st_size} bytes", False)
    found = record.status + "".join(f", {code}" for code in codes)
    return Check(name, expected, found, passed, record.measurement.reason)


def _still_running(marker: str) -> list[int]:
    """Return the ids of processes that have the marker in their environment (proc(5))."""
    text, found = f"{MARKER}={marker}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if text in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def _measure_clock(device: str, folder: Path, running: Running) -> ClockResult:
    environment = worker_environment(host.usable_cores())
    launch = Launch(environment, Deadlines(_CLOCK_DEADLINE_S), folder / "clock.log", running.event)
    outcome = run_job(ClockJob(device), ClockResult, launch)
    if outcome.kind != "result":
        text = f"The worker that checks the clocks ended with {outcome.kind}: {outcome.reason}"
        raise BakeoffError(text, code="worker-failed")
    return outcome.value


def noise_reason(clock: ClockResult) -> str:
    """Return why the host is too noisy to check the clocks; empty on a quiet host."""
    if clock.probe_spread < QUIET_SPREAD:
        return ""
    return (
        f"noisy host: fixed work did not repeat within {QUIET_SPREAD:.0%} ({clock.probe_spread:.1%} after "
        f"{clock.attempts} tries), so the clocks could not be checked"
    )


def clock_checks(clock: ClockResult) -> list[Check]:
    """Return the four checks of the clocks; ratios that are too far from 1 on a noisy host count as not checked."""
    noisy = bool(noise_reason(clock))
    wait, timer = abs(clock.wait_ratio - 1) <= WAIT_TOLERANCE, abs(clock.timer_ratio - 1) <= TIMER_TOLERANCE
    return [
        Check(
            "busy wait of 5 ms",
            f"5 ms, {WAIT_TOLERANCE:.0%}",
            f"{5 * clock.wait_ratio:.4f} ms, {counted(clock.wait_samples, 'sample')}",
            wait or noisy,
            not_run="a quiet host" if noisy and not wait else "",
        ),
        Check(
            "torch's Timer.blocked_autorange",
            f"ratio 1, {TIMER_TOLERANCE:.0%}",
            f"{clock.timer_ratio:.4f}",
            timer or noisy,
            not_run="a quiet host" if noisy and not timer else "",
        ),
        Check(
            "overhead, latency clock",
            f"{LATENCY_LIMIT_NS / 1000:g} us a call",
            f"{clock.latency_overhead_ns / 1000:.2f} us",
            clock.latency_overhead_ns <= LATENCY_LIMIT_NS,
        ),
        Check(
            "overhead, throughput clock",
            f"{THROUGHPUT_LIMIT_NS / 1000:g} us a call",
            f"{clock.throughput_overhead_ns / 1000:.2f} us",
            clock.throughput_overhead_ns <= THROUGHPUT_LIMIT_NS,
        ),
    ]
