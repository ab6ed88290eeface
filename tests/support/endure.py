"""Sweeps as processes for endurance tests: killed, run twice at once, without disk space, or with failing writes.

Functions raise AssertionError if bakeoff does not behave as it must, and return the measured figures if it does.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import MARKER, processes_with, wait_until

from bakeoff.machine.locks import device_lock
from bakeoff.record.codec import decode
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, load_all
from bakeoff.report.pages import files

SIX = ("--dtype", "fp32,bf16", "--backends", "eager,inductor[mode=default],inductor[freezing]")
"""Most of them built twice."""
THREE = ("--dtype", "fp32", "--backends", "eager,inductor[mode=default],inductor[freezing]")
TWO = ("--dtype", "fp32", "--backends", "eager,inductor[mode=default]")
GONE_WITHIN_S = 30.0
"""Seconds after which no process of a killed sweep may be running."""
FAILED = 2
"""The exit code of a run that ends with an error message."""

_SUPPORT = Path(__file__).parent
_BAKEOFF = _SUPPORT / "enduring_bakeoff.py"
_FINISHED_ROW = re.compile(r"^\[\d+/\d+\] (\S+)  \w+", re.MULTILINE)
_WAITS = "waiting for pid "


@dataclass(frozen=True)
class Ended:
    """A command that ended without being killed."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> list[str]:
        """The messages on stderr that ask the user to do something."""
        return [line for line in self.err.splitlines() if line.startswith("bakeoff: ")]


@dataclass(frozen=True)
class Place:
    """A folder with its own records, caches and temporary files, and a marker of the processes started for it."""

    folder: Path
    arguments: tuple[str, ...] = SIX
    torchless: bool = True

    @property
    def asked(self) -> int:
        """Number of variants of a sweep."""
        return {SIX: 6, THREE: 3, TWO: 2}[self.arguments]

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def start(self, *command: str, marker: str, errors: Path, **environment: str) -> "subprocess.Popen[bytes]":
        for folder in (self.runs, self.cache, self.temporary):
            folder.mkdir(parents=True, exist_ok=True)
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_SUPPORT), os.environ.get("PYTHONPATH", "")])),
            "BAKEOFF_RUNS": str(self.runs),
            "BAKEOFF_CACHE": str(self.cache),
            "TMPDIR": str(self.temporary),
            MARKER: marker,
            **({"BAKEOFF_TEST_TORCHLESS": "1"} if self.torchless else {}),
            **environment,
        }
        with open(errors, "wb") as err, open(errors.with_suffix(".out"), "wb") as out:
            return subprocess.Popen(
                [sys.executable, str(_BAKEOFF), *command],
                cwd=self.folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def start_sweep(self, *more: str, marker: str, errors: Path, **environment: str) -> "subprocess.Popen[bytes]":
        command = ("sweep", "toy", "--device", "cpu", *self.arguments, *more)
        return self.start(*command, marker=marker, errors=errors, **environment)

    def run(self, *command: str, **environment: str) -> Ended:
        """Run a command to its end; no process of it may be running afterwards."""
        marker, errors = uuid.uuid4().hex, self.folder / f"{uuid.uuid4().hex[:8]}.err"
        process = self.start(*command, marker=marker, errors=errors, **environment)
        return end_of(process, errors, marker)

    def sweep(self, *more: str, **environment: str) -> Ended:
        return self.run("sweep", "toy", "--device", "cpu", *self.arguments, *more, **environment)

    def resume(self, **environment: str) -> Ended:
        """Continue a sweep that ended early: by `--resume`, or by the same command if no row had begun."""
        return self.sweep(*(["--resume"] if self.states() else []), **environment)

    def records(self) -> Records:
        """All records; checks that every file is readable and no variant occurs twice."""
        found = load_all(self.runs)
        assert found.problems == (), found.problems
        variants = [str(entry.record.variant) for entry in found.current]
        assert len(set(variants)) == len(variants), variants
        return found

    def files(self) -> dict[str, bytes]:
        """The files of rows and comparisons; a set of ceilings, which a sweep measures first, does not count."""
        found = self.runs.glob("*/records/*.json")
        return {path.name: path.read_bytes() for path in found if "_ceilings_" not in path.name}

    def states(self) -> list[bool]:
        """For each sweep that has begun, whether it is finished."""
        return [json.loads(path.read_bytes())["finished"] for path in sorted((self.cache / "sweeps").glob("*.json"))]

    def kept(self) -> set[str]:
        """Variants whose record could not be stored, so that the cache keeps it."""
        found = [decode(path.read_bytes(), path.name) for path in (self.cache / "sweeps").glob("*/*.json")]
        return {str(record.variant) for record in found if isinstance(record, Record)}

    def litter(self) -> list[str]:
        """Temporary files that a killed sweep could not remove."""
        hidden = [path for folder in (self.runs, self.cache) for path in folder.rglob(".*") if path.is_file()]
        return [str(path.relative_to(self.folder)) for path in (*hidden, *self.temporary.glob("bakeoff-*"))]


def end_of(process: "subprocess.Popen[bytes]", errors: Path, marker: str) -> Ended:
    code = process.wait()
    assert processes_with(marker) == []
    out = errors.with_suffix(".out").read_text(encoding="utf-8", errors="replace")
    ended = Ended(code, out, errors.read_text(encoding="utf-8", errors="replace"))
    assert "Traceback" not in ended.err + ended.out, ended.err
    return ended


def check_complete(place: Place, before: Mapping[str, bytes]) -> None:
    """Check for one record of each variant, all of one sweep, unchanged earlier records, and an up-to-date page."""
    found = place.records()
    assert len(found.current) == place.asked, [entry.id for entry in found.current]
    assert len({entry.record.sweep for entry in found.current}) == 1
    after = place.files()
    assert {name: after.get(name) for name in before} == dict(before)
    assert files.check(place.runs) == []


@dataclass(frozen=True)
class Kill:
    """The result of one `kill -9` of a sweep."""

    moment_s: float
    gone_s: float
    """Seconds until the last process of the sweep had ended."""
    recorded: int
    """Number of records when it was killed."""
    litter: int


def kill(place: Place, moment_s: float) -> Kill | None:
    """Start or resume a sweep and kill it after `moment_s` seconds; None if it ended before.

    Without torch it never ends before: its last row waits to be killed, however fast this machine has become.
    """
    marker, errors = uuid.uuid4().hex, place.folder / "killed.err"
    earlier = place.files()
    resumed = ["--resume"] if place.states() else []
    holds = str(place.asked - 1)
    process = place.start_sweep(*resumed, marker=marker, errors=errors, BAKEOFF_TEST_HOLDS=holds)
    try:
        try:
            process.wait(moment_s)
            return None
        except subprocess.TimeoutExpired:
            seen = place.files()
            process.kill()
            process.wait()
        killed = time.monotonic()
        wait_until(lambda: not processes_with(marker), "a killed sweep's last process to end", GONE_WITHIN_S)
        gone_s = time.monotonic() - killed
    finally:
        for pid in processes_with(marker):
            os.kill(pid, 9)
    announced = _FINISHED_ROW.findall(errors.read_text(encoding="utf-8"))
    after = place.files()
    assert {name: after.get(name) for name in {**earlier, **seen}} == {**earlier, **seen}
    recorded = {str(entry.record.variant) for entry in place.records().current} | place.kept()
    assert set(announced) <= recorded, (announced, recorded)
    return Kill(moment_s, gone_s, len(recorded), len(place.litter()))


def kill_until_done(place: Place, moments_s: Sequence[float]) -> list[Kill]:
    """Kill a sweep and its resumptions at each of the times, then let it finish; ends early if a sweep was faster."""
    kills = []
    for moment_s in moments_s:
        one = kill(place, moment_s)
        if one is None:
            break
        kills.append(one)
    before = place.files()
    if place.states() != [True]:
        ended = place.resume()
        assert ended.code == 0, ended.err
    else:  # killed while it printed, or not at all
        ended = place.sweep("--resume")
        assert (ended.code, len(ended.said)) == (FAILED, 1), ended.err
        assert place.run("history").code == 0
    check_complete(place, before)
    assert place.states() == [True]
    return kills


def kill_at_step(place: Place, step: int) -> bool:
    """Let a sweep kill itself at one of its steps, then resume it; False if it has fewer of them.

    What was announced as finished, and each file that was there, is there afterwards, and no row is measured twice.
    """
    marker, errors = uuid.uuid4().hex, place.folder / "killed.err"
    process = place.start_sweep(marker=marker, errors=errors, BAKEOFF_TEST_KILLED_AT=str(step))
    code = process.wait()
    wait_until(lambda: not processes_with(marker), "a killed sweep's last process to end", GONE_WITHIN_S)
    if code == 0:
        return False
    assert code == -signal.SIGKILL, errors.read_text(encoding="utf-8")
    announced = set(_FINISHED_ROW.findall(errors.read_text(encoding="utf-8")))
    before = place.files()
    assert announced <= {str(entry.record.variant) for entry in place.records().current} | place.kept()
    ended = place.resume() if place.states() != [True] else place.run("history")
    assert ended.code == 0, ended.err
    check_complete(place, before)
    return True


def kill_a_worker(place: Place, phase: str) -> list[str]:
    """Kill the first worker that announces a phase; return the statuses of the rows. Every row has a record."""
    ended = place.sweep(BAKEOFF_TEST_WORKER_KILLED=phase)
    assert "worker killed" in ended.err, f"no worker announced {phase}"
    check_complete(place, {})
    return sorted(entry.record.status for entry in place.records().current)


def two_at_once(place: Place) -> float:
    """Run two sweeps on one folder; return the seconds between the last job of one and the first of the other."""
    windows = place.folder / "windows"
    marker, processes = uuid.uuid4().hex, []
    for who in ("first", "second"):
        errors = place.folder / f"{who}.err"
        environment = {"BAKEOFF_TEST_WINDOWS": str(windows), "BAKEOFF_TEST_WHO": who}
        processes.append(place.start_sweep(marker=marker, errors=errors, **environment))
        if who == "first":
            wait_until(lambda: (place.folder / "first.err").read_bytes(), "the first sweep to begin")
    codes = [process.wait() for process in processes]
    first, second = ((place.folder / f"{who}.err").read_text(encoding="utf-8") for who in ("first", "second"))
    assert codes == [0, 0], (codes, first, second)
    assert processes_with(marker) == []
    assert (_WAITS in first, _WAITS in second) == (False, True), (first, second)
    spans: dict[str, list[tuple[float, float]]] = {"first": [], "second": []}
    for line in windows.read_text(encoding="ascii").splitlines():
        who, _, begin, end = line.split()
        spans[who].append((float(begin), float(end)))
    gap_s = min(begin for begin, _ in spans["second"]) - max(end for _, end in spans["first"])
    assert gap_s > 0, spans
    assert min(len(found) for found in spans.values()) >= place.asked
    found = load_all(place.runs)
    assert found.problems == (), found.problems
    sweeps = [entry.record.sweep for entry in found.current]
    assert len(sweeps) == 2 * place.asked, (sweeps, first, second)
    assert sweeps == sorted(sweeps), "the rows of one sweep lie together"
    assert {sweeps.count(sweep) for sweep in sweeps} == {place.asked}
    assert files.check(place.runs) == []
    return gap_s


def resume_twice_at_once(place: Place) -> str:
    """Resume one sweep twice at once: one finishes it, the other finds nothing to do, and no variant runs twice."""
    marker = uuid.uuid4().hex
    process = place.start_sweep(marker=marker, errors=place.folder / "killed.err")
    wait_until(lambda: place.files() or process.poll() is not None, "a record")
    process.kill()
    process.wait()
    wait_until(lambda: not processes_with(marker), "a killed sweep's last process to end", GONE_WITHIN_S)
    before = place.files()
    assert place.states() == [False]
    assert len(place.records().current) < place.asked
    marker = uuid.uuid4().hex
    errors = [place.folder / f"resume{number}.err" for number in range(2)]
    with device_lock("cpu", print):
        processes = [place.start_sweep("--resume", marker=marker, errors=path) for path in errors]
        for path in errors:
            wait_until(lambda path=path: _WAITS in path.read_text(encoding="utf-8"), "a sweep to wait for the device")
    codes = [process.wait() for process in processes]
    text = [path.read_text(encoding="utf-8") for path in errors]
    assert sorted(codes) == [0, FAILED], text
    assert "no unfinished run of toy" in text[codes.index(FAILED)]
    check_complete(place, before)
    return f"{place.asked - len(before)} variants left, each run once"


def check_failed(ended: Ended, says: str) -> None:
    """Check that the command ended with one message and without a traceback."""
    assert ended.code == FAILED, (ended.code, ended.err)
    assert len(ended.said) == 1, ended.err
    assert re.search(says, ended.said[0]), ended.said


def break_fsync(place: Place, call: int) -> bool:
    """Let one fsync of a sweep fail, then resume it; False if the sweep calls fsync fewer times."""
    ended = place.sweep(BAKEOFF_TEST_FSYNC=str(call))
    if "fsync fails" not in ended.err:
        return False
    check_nothing_half_written(place, ended)
    before = place.files()
    if ended.code == 0:  # a failed write of the cache is no error
        check_complete(place, before)
        return True
    check_failed(ended, r"cannot be written to .*: Input/output error")
    ended = place.resume()
    if place.states() == [True] and ended.code == FAILED:  # only the page was missing
        assert place.run("history").code == 0
    else:
        assert ended.code == 0, ended.err
    check_complete(place, before)
    return True


def check_nothing_half_written(place: Place, ended: Ended) -> None:
    """Check that all announced records are stored and readable, and that no temporary file is left."""
    recorded = {str(entry.record.variant) for entry in place.records().current} | place.kept()
    assert set(_FINISHED_ROW.findall(ended.err)) <= recorded
    assert place.litter() == []


def cannot_mount(folder: Path) -> str:
    """Why no small disk can be mounted here; empty if it can."""
    probe = folder / "probe"
    try:
        with small_disk(probe, 4):
            return ""
    except (OSError, subprocess.CalledProcessError) as error:
        return f"cannot mount a tmpfs: {error}"


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[None]:
    """Mount a file system of `kib` KiB at `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    _mount("mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder))
    try:
        yield
    finally:
        _mount("umount", str(folder))


def make_room(folder: Path, kib: int) -> None:
    _mount("mount", "-o", f"remount,size={kib}k", str(folder))


def make_read_only(folder: Path) -> None:
    """Remount read-only; repeated while a process has a file open for writing there."""
    for _ in range(100):
        try:
            _mount("mount", "-o", "remount,ro", str(folder))
            return
        except subprocess.CalledProcessError:
            time.sleep(0.01)
    raise AssertionError(f"{folder} always has a file open for writing")


def make_writable(folder: Path) -> None:
    _mount("mount", "-o", "remount,rw", str(folder))


def _mount(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def fill_records(place: Place, kib: int) -> int:
    """Fill the disk during a sweep, then make room and resume; return the number of records written before."""
    with small_disk(place.runs, kib):
        ended = place.sweep()
        check_failed(ended, r"cannot be written to .*: No space left on device; make room")
        check_nothing_half_written(place, ended)
        before = place.files()
        taken = len(place.records().current)
        assert taken < place.asked
        assert place.run("table").code == (0 if taken else FAILED)
        make_room(place.runs, 1024)
        ended = place.resume()
        assert ended.code == 0, ended.err
        check_complete(place, before)
        return taken


def fill_other(place: Place, which: Path, kib: int) -> int:
    """Fill the disk of caches or workers: rows or the sweep may fail, but with a message; return the exit code."""
    with small_disk(which, max(kib, 4)):
        if not kib:
            (which / "filler").write_bytes(bytes(4096))
        ended = place.sweep()
        assert ended.code in (0, FAILED, 3), ended.err
        if ended.code == FAILED:
            assert len(ended.said) == 1, ended.err
            assert "No space left on device" in ended.said[0]
        check_nothing_half_written(place, ended)
        before = place.files()
        make_room(which, 4096)
        if place.states() != [True]:
            resumed = place.resume()
            assert resumed.code in (0, 3), resumed.err
            check_complete(place, before)
        return ended.code


def lose_write_permission(place: Place) -> int:
    """Make records read-only after the first row; return their number then. Reading them still works."""
    with small_disk(place.runs, 1024):
        marker, errors = uuid.uuid4().hex, place.folder / "read-only.err"
        process = place.start_sweep(marker=marker, errors=errors)
        wait_until(lambda: place.files() or process.poll() is not None, "a record")
        make_read_only(place.runs)
        ended = end_of(process, errors, marker)
        check_failed(ended, r"cannot be written to .*: Read-only file system")
        check_nothing_half_written(place, ended)
        before = place.files()
        assert place.run("table").code == 0
        check_failed(place.run("history"), r"OPTIMIZATION_HISTORY.md cannot be written to .*: Read-only file system")
        check_failed(place.sweep(), r"records cannot be written to .*: Read-only file system")
        assert place.files() == before
        taken = len(place.records().current)
        make_writable(place.runs)
        ended = place.resume()
        assert ended.code == 0, ended.err
        check_complete(place, before)
        return taken


@dataclass(frozen=True)
class Cost:
    """Time and memory of a command."""

    seconds: float
    peak_bytes: int
    """Largest resident size of the process."""
    out: str


def cost_of(*command: str, cwd: Path) -> Cost:
    """Run `bakeoff ...` alone and measure it; it must succeed."""
    started = time.monotonic()
    with open(cwd / "cost.out", "w+b") as out, open(cwd / "cost.err", "w+b") as err:
        process = subprocess.Popen([sys.executable, "-m", "bakeoff", *command], cwd=cwd, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        assert process.returncode == 0, err.read().decode()
        return Cost(seconds, usage.ru_maxrss * 1024, out.read().decode())
