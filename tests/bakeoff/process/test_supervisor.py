"""Whatever ends a sweep or a worker, no process is left, no record is torn, and what was done is kept."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from canaries import ASLEEP, AWAKE
from forked_workers import SWITCH
from lab import FAST, MARKER, command_line, marked_folder, processes_with, sweep, wait_until

from bakeoff.models.errors import BakeoffError
from bakeoff.plan.request import Request
from bakeoff.process import guard, supervisor
from bakeoff.process.jobs import CeilingsJob, CeilingsResult
from bakeoff.process.supervisor import Deadlines, Event, Launch, LiveWorker
from bakeoff.record.store import load_all


def test_ctrl_c_keeps_what_is_done_and_names_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal sends it to the whole group."""
    asleep = tmp_path / "asleep"
    monkeypatch.setenv(AWAKE, str(tmp_path / "awake"))
    monkeypatch.setenv(ASLEEP, str(asleep))
    backends = "canaries:BF16_ONLY,canaries:SLEEPER,eager"
    arguments = ["sweep", "toy", "--backends", backends, "--dtype", "fp32", "--device", "cpu"]
    with marked_folder(tmp_path) as marker, command_line(arguments) as process:
        wait_until(lambda: asleep.exists() or process.poll() is not None, "the sleeper to sleep")
        assert len(processes_with(marker)) >= 4, "the sweep, its guard, the worker and what that started"
        assert len(list(tmp_path.glob("cache/work/bakeoff-*"))) == 1
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate()
        wait_until(lambda: not processes_with(marker), "the last process to end", 45)
    assert process.returncode == 128 + signal.SIGINT
    kept = load_all(tmp_path / "runs")
    assert [(entry.record.variant.backend, entry.record.status) for entry in kept.current] == [
        ("bf16-only", "unsupported")
    ]
    assert kept.problems == ()
    assert "1 of 3 rows recorded" in output
    assert "Traceback" not in errors
    assert list(tmp_path.glob("cache/work/*")) == []
    said = errors.splitlines()[-1]
    assert "toy:tiny.world/sleeper/fp32@cpu, toy:tiny.world/eager/fp32@cpu" in said
    assert "bf16-only" not in said
    assert "--resume" in said


@pytest.fixture(scope="module", autouse=True)
def _workers_start_as_a_user_s_do() -> Iterator[None]:
    """Not forked: how a worker starts, and how long it may take to import torch, is what is tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "subprocess", subprocess)
        patch.setenv(SWITCH, "0")  # for labs in processes of their own
        yield


def test_a_deadline_holds_for_the_reference_too(tmp_path: Path) -> None:
    """Of a worker that is too slow to import torch."""
    policy = replace(FAST, startup_deadline_s=0.2)
    late = sweep(Request("toy", backends=("eager",), dtypes=("fp32",), device="cpu", policy=policy), tmp_path)
    (record,) = late.records().values()
    assert record.status == "timeout"
    assert re.search(r"reference.*\b(start|import)\b.*\b0 s", record.measurement.reason)
    assert record.wall_s < 20
    assert late.left_alive == ()


def test_a_new_phase_starts_a_new_deadline_and_a_repeated_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["not json", "[]", '{"phase": "latency"}', *['{"phase": "latency", "detail": "again"}'] * 60]
    script = f"""
for line in {lines!r}:
    os.write(int(sys.argv[1]), line.encode() + b"\\n")
    time.sleep(0.1)
"""
    _fake_worker(monkeypatch, script)
    heard: list[Event] = []
    deadlines = Deadlines(0.6, {"start": 30.0})
    job = CeilingsJob("cpu", 1, ())
    with LiveWorker(job, Launch(os.environ, deadlines, tmp_path / "worker.log", heard.append)) as worker:
        started = time.monotonic()
        assert worker.wait() is None
        assert 0.6 <= time.monotonic() - started < 20
        outcome = worker.finish(CeilingsResult)
    assert (outcome.kind, outcome.phase) == ("timeout", "latency")
    assert heard[0] == Event("latency")
    assert set(heard[1:]) == {Event("latency", "again")}
    assert len(heard) < 50


def test_a_step_of_a_rollout_starts_the_deadline_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
for unit in range(12):
    os.write(int(sys.argv[1]), b'{"phase": "loop check", "detail": "unit %d"}\\n' % unit)
    time.sleep(0.1)
"""
    _fake_worker(monkeypatch, script)
    launch = Launch(os.environ, Deadlines(0.9, {"start": 30.0}), tmp_path / "worker.log", lambda _event: None)
    with LiveWorker(CeilingsJob("cpu", 1, ()), launch) as worker:
        assert worker.wait() is None
        assert worker.finish(CeilingsResult).kind != "timeout"


def _fake_worker(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(supervisor, "WORKER", (sys.executable, "-c", f"import hashlib, os, sys, time\n{script}"))


def test_phases_that_are_short_each_end_at_the_total_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
for number in range(150):
    os.write(int(sys.argv[1]), b'{"phase": "%d"}\\n' % number)
    time.sleep(0.1)
"""
    _fake_worker(monkeypatch, script)
    deadlines = Deadlines(30.0, total=2.0)
    with LiveWorker(CeilingsJob("cpu", 1, ()), Launch(os.environ, deadlines, tmp_path / "worker.log")) as worker:
        assert worker.wait() is None
        outcome = worker.finish(CeilingsResult)
    assert (outcome.kind, outcome.code) == ("timeout", "")
    assert 2.0 <= outcome.wall_s < 20
    assert int(outcome.phase) > 0


_RESULT = b'{"value":{"ceilings":[],"others":0.0}}'
_SEAL = f"""
seal = hashlib.sha256({_RESULT!r}).hexdigest().encode()
os.write(int(sys.argv[1]), b'{{"phase": "", "seal": "%s"}}\\n' % seal)
"""
_WRITE = f"open('result.json', 'wb').write({_RESULT!r})\n"


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (_WRITE + _SEAL, "result"),
        (_WRITE, "crashed"),
        (_WRITE + _SEAL + "open('result.json', 'ab').write(b' ')", "crashed"),
        (_SEAL + _WRITE + _SEAL, "crashed"),
    ],
    ids=["sealed", "not sealed", "changed after it", "sealed twice"],
)
def test_only_a_result_that_was_sealed_once_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, kind: str
) -> None:
    _fake_worker(monkeypatch, script)
    outcome = supervisor.run_job(
        CeilingsJob("cpu", 1, ()), CeilingsResult, Launch(os.environ, Deadlines(30.0), tmp_path / "worker.log")
    )
    assert outcome.kind == kind, outcome.reason


@pytest.mark.parametrize(("kernel_kills", "kind"), [((5, 5), "crashed"), ((5, 6), "oom")])
def test_a_killed_worker_ran_out_of_memory_where_the_kernel_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel_kills: tuple[int, int], kind: str
) -> None:
    told = iter(kernel_kills)
    monkeypatch.setattr(supervisor, "_kernel_oom_kills", lambda: next(told))
    _fake_worker(monkeypatch, "os.kill(os.getpid(), 9)")
    outcome = supervisor.run_job(
        CeilingsJob("cpu", 1, ()), CeilingsResult, Launch(os.environ, Deadlines(30.0), tmp_path / "worker.log")
    )
    assert outcome.kind == kind, outcome.reason


def test_a_worker_that_lives_hears_what_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
import os, sys
for line in os.fdopen(int(sys.argv[2])):
    os.write(int(sys.argv[1]), b'{"phase": "echo", "detail": "%s"}\\n' % line.strip().encode())
"""
    monkeypatch.setattr(supervisor, "WORKER", (sys.executable, "-c", script))
    log = tmp_path / "worker.log"
    with LiveWorker(CeilingsJob("cpu", 1, ()), Launch(os.environ, Deadlines(30.0), log)) as worker:
        for word in ("one", "two"):
            worker.tell(word)
            assert worker.wait("echo") == Event("echo", word)
        outcome = worker.finish(CeilingsResult)
    assert outcome.kind == "crashed", "it was ended before it left a result"
    worker.tell("too late")


class Alarm(KeyboardInterrupt):
    """The time of a sweep is up, as TimeIsUpError says it."""


def ring(_number: int, _frame: object) -> None:
    raise Alarm


class RungPopen(subprocess.Popen[bytes]):
    """Starts a process, and the alarm rings before its caller has it."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        signal.raise_signal(signal.SIGALRM)


def refused_popen(*_arguments: object, **_settings: object) -> None:
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launch]:
    """How a worker is started that only waits; an alarm raises Alarm meanwhile."""
    monkeypatch.setattr(supervisor, "WORKER", (sys.executable, "-c", "import time; time.sleep(60)"))
    monkeypatch.setenv("BAKEOFF_CACHE", str(tmp_path / "cache"))
    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield Launch({**os.environ, MARKER: str(tmp_path)}, Deadlines(30.0), tmp_path / "worker.log")
    finally:
        signal.signal(signal.SIGALRM, before)


def left(tmp_path: Path) -> list[object]:
    """Processes and folders that a worker left."""
    return [*processes_with(str(tmp_path)), *tmp_path.glob("cache/work/*")]


def test_an_alarm_while_a_worker_starts_leaves_nobody(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(supervisor, "subprocess", SimpleNamespace(Popen=RungPopen, DEVNULL=subprocess.DEVNULL))
    with pytest.raises(Alarm), LiveWorker(CeilingsJob("cpu", 1, ()), launch):
        pytest.fail("the alarm was lost")
    assert left(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_worker_that_cannot_be_started_is_one_clear_error(
    launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(supervisor, "subprocess", SimpleNamespace(Popen=refused_popen, DEVNULL=subprocess.DEVNULL))
    with pytest.raises(BakeoffError, match="no worker can be started: Resource temporarily unavailable"):
        LiveWorker(CeilingsJob("cpu", 1, ()), launch).__enter__()
    assert left(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_a_worker_ends_ends_it_all_the_same(
    times: int, launch: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one, too, which is not deferred."""
    read, rung = supervisor._read_report, []

    def interrupted(*given: Any) -> dict[str, Any]:
        if not rung:
            rung.append(True)
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        return read(*given)

    monkeypatch.setattr(supervisor, "_read_report", interrupted)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BaseException) as raised, LiveWorker(CeilingsJob("cpu", 1, ()), launch) as worker:  # noqa: PT011
        worker.finish(CeilingsResult)
    assert raised.type is KeyboardInterrupt
    assert left(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == before


@dataclass
class Guarded:
    """A guard around one shell command, without a sweep and without torch."""

    process: "subprocess.Popen[bytes]"
    control: int
    status: int
    log: Path

    def report(self) -> dict[str, object]:
        wait_until(lambda: self.process.poll() is not None, "the guard to end", 20)
        assert self.process.returncode == 0
        found: dict[str, object] = json.loads(os.read(self.status, 4096))
        return found


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["GuardStarter"]:
    starter = GuardStarter(tmp_path, [])
    monkeypatch.setenv(MARKER, starter.marker)
    yield starter
    for started in starter.started:
        started.process.kill()
        started.process.wait()
        for descriptor in (started.control, started.status):
            if descriptor >= 0:
                os.close(descriptor)
    left = processes_with(starter.marker)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


@dataclass
class GuardStarter:
    folder: Path
    started: list[Guarded]

    @property
    def marker(self) -> str:
        return f"guard-{self.folder}"

    def __call__(self, script: str, limit: int = 1 << 20) -> Guarded:
        control_read, control = os.pipe()
        status, status_write = os.pipe()
        log = self.folder / "log"
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", guard.__file__),
                *(str(control_read), str(status_write), str(log), str(limit), "--", "sh", "-c", script),
            ],
            pass_fds=(control_read, status_write),
            start_new_session=True,
        )
        os.close(control_read)
        os.close(status_write)
        self.started.append(Guarded(process, control, status, log))
        return self.started[-1]


def test_the_guard_reports_how_a_command_ended(guarded: GuardStarter) -> None:
    assert guarded("echo hello; exit 7").report() == {"code": 7, "leftovers": 0, "log_dropped": 0}
    assert guarded.started[0].log.read_bytes() == b"hello\n"
    assert guarded("kill -SEGV $$").report() == {"code": -signal.SIGSEGV, "leftovers": 0, "log_dropped": 0}


def test_the_guard_kills_whoever_is_left(guarded: GuardStarter) -> None:
    report = guarded("setsid sh -c 'trap \"\" TERM; (setsid sleep 600 &) ; sleep 600' & sleep 0.5; exit 0").report()
    assert report["code"] == 0
    assert report["leftovers"] == 3
    assert processes_with(guarded.marker) == []


@pytest.mark.parametrize("how", ["the sweep is gone", "SIGTERM"])
def test_the_guard_ends_when_told(guarded: GuardStarter, how: str) -> None:
    started = guarded("setsid sleep 600 & echo ready; sleep 600")
    wait_until(lambda: started.log.exists() and started.log.read_bytes() == b"ready\n", "the command to start")
    if how == "SIGTERM":
        started.process.terminate()
    else:
        os.close(started.control)
        started.control = -1
    assert started.report() == {"code": None, "leftovers": 0, "log_dropped": 0}
    assert processes_with(guarded.marker) == []


def test_a_killed_guard_takes_its_command_along(guarded: GuardStarter) -> None:
    started = guarded("echo ready; exec sleep 600")
    wait_until(lambda: started.log.exists() and started.log.read_bytes() == b"ready\n", "the command to start")
    started.process.kill()
    wait_until(lambda: not processes_with(guarded.marker), "the command to end", 10)


def test_a_log_keeps_its_head_and_its_newest_end(guarded: GuardStarter) -> None:
    report = guarded("i=10000; while [ $i -lt 40000 ]; do echo $i; i=$((i+1)); done", limit=6000).report()
    log = guarded.started[0].log.read_bytes()
    head, _, rest = log.partition(b"\n... ")
    said, _, tail = rest.partition(b" bytes left out ...\n")
    written = b"".join(b"%d\n" % number for number in range(10000, 40000))
    assert report["code"] == 0
    assert report["log_dropped"] == int(said) > 0
    assert written.startswith(head)
    assert written.endswith(tail)
    assert len(head) == 3000
    assert len(tail) >= 3000
    assert len(head) + int(said) + len(tail) == len(written)
