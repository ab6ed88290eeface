"""Who excludes whom: by CPU and by GPU, between processes with other caches, homes and CPUs."""

import json
import math
import os
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from bakeoff.machine import locks
from bakeoff.machine.locks import clearing_lock, device_lock, entry_lock
from bakeoff.models.errors import BakeoffError

HOLDER = """
import os, sys
from pathlib import Path
from types import SimpleNamespace
from bakeoff.machine import host
from bakeoff.machine.locks import device_lock
device, cpus, gpu = sys.argv[1:]
sys.argv = ["/usr/bin/bakeoff", "verify", "art of mine"]
host.read_host = lambda: SimpleNamespace(gpus=({"uuid": gpu},))
if cpus:
    os.sched_setaffinity(0, {int(number) for number in cpus.split(",")})
say = lambda text: print(text, flush=True)
with device_lock(device, say, Path(os.environ["BAKEOFF_CACHE"])) as held:
    print("held", held == 0, flush=True)
    sys.stdin.read()
"""
CPUS = sorted(os.sched_getaffinity(0))
two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")


class Process:
    """A process that takes the locks of a device, and holds them until it is told to end."""

    def __init__(self, folder: Path, device: str, cpus: str, gpu: str) -> None:
        folder.mkdir()
        (folder / "cache").mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, device, cpus, gpu],
            env={**os.environ, "HOME": str(folder), "BAKEOFF_CACHE": str(folder / "cache")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        if self.process.returncode is None:
            self.process.communicate()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Process] = []

    def begin(device: str = "cpu", cpus: str = "", gpu: str = "GPU-1") -> Process:
        made.append(Process(tmp_path / f"user{len(made)}", device, cpus, gpu))
        return made[-1]

    yield begin
    for each in made:
        each.process.kill()
        each.end()


def excludes(start: Start, one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether a second process waits until the first one ends."""
    first = start(**one)
    assert first.line() == "held False"
    second = start(**other)
    line = second.line()
    if line == "held False":
        return False
    who = f"pid {first.process.pid} of {psutil.Process().username()}: bakeoff verify 'art of mine' in {os.getcwd()}"
    assert re.fullmatch(rf"waiting for {re.escape(who)}, since \d\d:\d\d", line)
    first.end()
    assert second.line() == "held True"
    return True


def test_one_cpu_is_measured_on_by_one_whatever_cache_and_home(start: Start) -> None:
    assert excludes(start, {}, {})


@two_cpus
def test_disjoint_cpus_are_measured_on_at_once(start: Start) -> None:
    assert not excludes(start, {"cpus": f"{CPUS[0]}"}, {"cpus": f"{CPUS[1]}"})


@two_cpus
def test_a_common_cpu_excludes(start: Start) -> None:
    assert excludes(start, {"cpus": f"{CPUS[1]}"}, {"cpus": f"{CPUS[0]},{CPUS[1]}"})


@pytest.mark.parametrize(
    ("first", "second", "excluded"),
    [
        (("cuda", "GPU-1"), ("cuda", "GPU-1"), True),
        (("cuda", "GPU-1"), ("cuda", "GPU-2"), False),
        (("cuda", "GPU-1"), ("cpu", ""), True),
        (("cpu", ""), ("cuda", "GPU-1"), True),
    ],
)
def test_a_gpu_is_held_alone_and_its_cpus_with_other_gpus(
    start: Start, first: tuple[str, str], second: tuple[str, str], excluded: bool
) -> None:
    one, other = ({"device": device, "gpu": gpu} for device, gpu in (first, second))
    assert excludes(start, one, other) == excluded


def test_all_who_share_are_named_whenever_they_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many take the locks at once; each has a line of its own."""
    monkeypatch.setattr(locks.host, "read_host", lambda: SimpleNamespace(gpus=()))
    for number in range(20):
        monkeypatch.setenv(locks.VARIABLE, str(tmp_path / f"locks{number}"))
        together = threading.Barrier(8)

        def share(together: threading.Barrier) -> None:
            together.wait(60)
            with device_lock("cuda", pytest.fail):
                together.wait(60)

        with ThreadPoolExecutor(8) as pool:
            for done in [pool.submit(share, together) for _ in range(8)]:
                done.result()
        for file in (tmp_path / f"locks{number}").iterdir():
            assert [json.loads(line)["pid"] for line in file.read_text().splitlines()] == [os.getpid()] * 8


def test_the_seconds_since_another_process_left_are_known() -> None:
    """Its load is in the load average of the process that follows, and is nobody else's work."""
    with device_lock("cpu", pytest.fail) as first:
        assert first == math.inf
        time.sleep(0.2)
        left = time.monotonic()
    with device_lock("cpu", pytest.fail) as second:
        assert 0 < second < time.monotonic() - left + 0.1  # a file system's clock ticks every few milliseconds
    for file in locks.lock_folder().iterdir():
        os.utime(file, (time.time() - 3600,) * 2)
    with device_lock("cpu", pytest.fail) as third:
        assert 3600 <= third < 3660


def test_many_processes_with_several_locks_do_not_wait_for_each_other(start: Start) -> None:
    """Each waits for one of two CPUs or a GPU that another has; none is left."""
    processes = [
        start(device, cpus, "GPU-1")
        for cpus in (f"{CPUS[0]}", f"{CPUS[-1]}", ",".join(map(str, CPUS)))
        for device in ("cpu", "cuda")
    ]
    for each in processes:
        assert each.process.stdin is not None
        each.process.stdin.close()
        each.process.stdin = None
    for each in processes:
        each.process.communicate(timeout=60)
    assert [each.process.returncode for each in processes] == [0] * len(processes)


def test_lock_files_are_for_all_users(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with device_lock("cpu", print):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "locks").stat().st_mode) == 0o1777
    files = list((tmp_path / "locks").iterdir())
    assert {path.name for path in files} == {f"cpu{number}.lock" for number in CPUS}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o666}


@pytest.mark.parametrize("kind", ["folder", "file", "pipe"])
def test_a_link_or_pipe_in_the_place_of_a_lock_is_refused(tmp_path: Path, kind: str) -> None:
    theirs = tmp_path / "theirs"
    if kind == "folder":
        theirs.mkdir()
        (tmp_path / "locks").symlink_to(theirs)
    else:
        (tmp_path / "locks").mkdir()
        path = tmp_path / "locks" / f"cpu{CPUS[0]}.lock"
        theirs.write_text("precious")
        path.symlink_to(theirs) if kind == "file" else os.mkfifo(path)
    with pytest.raises(BakeoffError) as refused, device_lock("cpu", print):
        pass
    assert refused.value.code == "not-writable"
    assert list(theirs.iterdir()) == [] if kind == "folder" else theirs.read_text() == "precious"


def test_the_default_folder_is_one_for_all_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(locks.VARIABLE)
    folder = locks.lock_folder()
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setenv("TMPDIR", "/nowhere")
    monkeypatch.setenv("BAKEOFF_CACHE", "/nowhere")
    assert locks.lock_folder() == folder
    assert folder.parent.stat().st_mode & 0o1777 == 0o1777


class TestClearing:
    @pytest.fixture
    def cache(self, tmp_path: Path) -> Path:
        folder = tmp_path / "cache"
        folder.mkdir()
        return folder

    def test_it_is_refused_while_its_cache_is_used(self, start: Start, tmp_path: Path) -> None:
        first = start()
        first.line()
        with pytest.raises(BakeoffError) as refused, clearing_lock(tmp_path / "user0/cache"):
            pass
        assert refused.value.code == "busy"
        assert f"pid {first.process.pid} of" in str(refused.value)
        first.end()
        with clearing_lock(tmp_path / "user0/cache"):
            pass

    def test_it_is_refused_while_a_user_of_its_cache_waits(self, start: Start, tmp_path: Path) -> None:
        """What that one has planned with must still be there when it begins."""
        assert start().line() == "held False"
        assert "waiting" in start().line()
        with pytest.raises(BakeoffError) as refused, clearing_lock(tmp_path / "user1/cache"):
            pass
        assert refused.value.code == "busy"

    def test_two_do_not_build_into_one_entry(self, cache: Path) -> None:
        said: list[str] = []

        def stop(text: str) -> None:
            said.append(text)
            raise KeyboardInterrupt

        with entry_lock(cache, cache / "compiled/aaaa", stop):
            with entry_lock(cache, cache / "compiled/bbbb", stop):
                pass
            with pytest.raises(KeyboardInterrupt), entry_lock(cache, cache / "compiled/aaaa", stop):
                pass
        assert [f"pid {os.getpid()} of" in text for text in said] == [True]
