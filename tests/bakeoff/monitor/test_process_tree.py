"""CPU time, memory and load from a made-up /proc, and of real processes that come and go."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bakeoff.monitor.cpu import CpuProbe, ProcessTree
from bakeoff.monitor.request import Reading

SECOND = 1_000_000_000
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
MIB = 1 << 20
V2 = "30 29 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"


class Proc:
    """A root folder with processes; times in seconds."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc").mkdir()
        self.set(1, 0, 1000.0)
        self.set(100, 1, 50.0)

    def set(self, pid: int, parent: int, own_s: float, waited_s: float = 0.0, mib: int = 0, started: int = 7) -> None:
        folder = self.root / f"proc/{pid}"
        folder.mkdir(exist_ok=True)
        own, waited = round(own_s / TICK_S), round(waited_s / TICK_S)
        pages = mib * MIB // os.sysconf("SC_PAGE_SIZE")
        (folder / "stat").write_text(
            f"{pid} (a) name) S {parent} 1 1 0 -1 0 0 0 0 0 {own} 0 {waited} 0 20 0 1 0 {started} 4096 {pages} 0\n"
        )

    def end(self, pid: int) -> None:
        (self.root / f"proc/{pid}/stat").unlink()
        (self.root / f"proc/{pid}").rmdir()


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def seconds(tree: ProcessTree) -> float:
    """CPU seconds since the first reading."""
    reading = tree.read()
    assert reading is not None
    return reading.cpu_ns / SECOND


def test_children_and_theirs_count_and_others_do_not(proc: Proc) -> None:
    tree = ProcessTree(100, root=proc.root)
    tree.read()
    proc.set(101, 100, 0.3, mib=2)
    proc.set(102, 101, 0.2, mib=3)
    proc.set(300, 1, 9.0, mib=99)
    assert tree.read() == (pytest.approx(0.5 * SECOND), 5 * MIB)
    proc.set(1, 0, 2000.0)
    assert seconds(tree) == pytest.approx(0.5)


def test_a_child_that_was_waited_for_counts_once(proc: Proc) -> None:
    """Its 0.8 s were 0.6 s when it was seen last; all of them then stand in its parent's counters."""
    tree = ProcessTree(100, root=proc.root)
    tree.read()
    proc.set(101, 100, 0.6)
    assert seconds(tree) == pytest.approx(0.6)
    proc.end(101)
    proc.set(100, 1, 50.0, waited_s=0.8)
    assert seconds(tree) == pytest.approx(0.8)


def test_a_grandchild_that_ended_with_its_parent_counts_once(proc: Proc) -> None:
    tree = ProcessTree(100, root=proc.root)
    tree.read()
    proc.set(101, 100, 0.5)
    proc.set(102, 101, 0.5, waited_s=0.1)
    assert seconds(tree) == pytest.approx(1.1)
    proc.end(101)
    proc.end(102)
    proc.set(100, 1, 50.0, waited_s=1.3)
    assert seconds(tree) == pytest.approx(1.3)


def test_a_child_whose_parent_waits_later_counts_once(proc: Proc) -> None:
    """The parent was read before it waited, the child after: the sum must not fall, and not count it twice."""
    tree = ProcessTree(100, root=proc.root)
    tree.read()
    proc.set(101, 100, 0.6)
    tree.read()
    proc.end(101)
    assert seconds(tree) == pytest.approx(0.6)
    proc.set(100, 1, 50.1, waited_s=0.6)
    assert seconds(tree) == pytest.approx(0.7)


def test_a_process_that_lost_its_parent_still_counts(proc: Proc) -> None:
    tree = ProcessTree(100, root=proc.root)
    proc.set(101, 100, 0.0)
    proc.set(102, 101, 0.0)
    tree.read()
    proc.end(101)
    proc.set(102, 1, 0.3)
    proc.set(103, 102, 0.1)
    assert seconds(tree) == pytest.approx(0.4)


def test_a_number_that_was_given_to_another_process_is_no_member(proc: Proc) -> None:
    tree = ProcessTree(100, root=proc.root)
    proc.set(101, 100, 5.0)
    tree.read()
    proc.set(101, 1, 8.0, started=99)
    assert seconds(tree) == 0


def test_the_one_that_reads_does_not_count(proc: Proc) -> None:
    tree = ProcessTree(100, without=[101], root=proc.root)
    tree.read()
    proc.set(101, 100, 3.0, mib=50)
    assert tree.read() == (0, 0)


def test_a_rate_has_no_first_value_and_its_time_is_not_too_short(proc: Proc) -> None:
    """A zero at the start would be an invention, and in a few milliseconds the kernel's ticks are too coarse."""
    probe = CpuProbe(100, ["process"], root=proc.root)
    assert rates(probe, 0) == []
    proc.set(100, 1, 52.0)
    assert rates(probe, SECOND) == [pytest.approx(200.0)]
    proc.set(100, 1, 52.01)
    assert rates(probe, SECOND + 5_000_000) == []
    proc.set(100, 1, 52.25)
    assert rates(probe, SECOND + SECOND // 2) == [pytest.approx(50.0)]


def rates(probe: CpuProbe, now_ns: int) -> list[float]:
    return [reading.value for reading in probe.sample(now_ns) if reading.name == "cpu.process"]


def test_a_process_that_was_never_there_is_said_and_the_end_of_one_is_not(proc: Proc) -> None:
    probe, other = (CpuProbe(pid, ["process"], root=proc.root) for pid in (100, 200))
    list(probe.sample(0))
    proc.end(100)
    for second in (4, 5):
        assert [*probe.sample(second * SECOND), *other.sample(second * SECOND)] == []
    assert (probe.report().missing, other.report().missing) == ((), ("process 200 was not found",))


def test_memory_of_the_machine_and_load(proc: Proc) -> None:
    (proc.root / "proc/meminfo").write_text(
        "MemTotal:       8192 kB\nMemFree:        1024 kB\nMemAvailable:   6144 kB\nBuffers: 1 kB\nCached: 2 kB\nx: y\n"
    )
    (proc.root / "proc/loadavg").write_text("3.25 1.00 0.50 2/300 4711\n")
    probe = CpuProbe(100, ["memory", "load"], root=proc.root)
    assert list(probe.sample(0)) == [Reading("cpu.memory", "machine", 2.0), Reading("cpu.load", "machine", 3.25)]
    assert probe.report().missing == ()


def test_memory_is_of_the_group_whose_limit_is_next(proc: Proc) -> None:
    (proc.root / "proc/self").mkdir()
    (proc.root / "proc/self/mountinfo").write_text(f"{V2}\n")
    (proc.root / "proc/self/cgroup").write_text("0::/a/b\n")
    group = proc.root / "sys/fs/cgroup/a"
    (group / "b").mkdir(parents=True)
    (group / "memory.max").write_text(f"{100 * MIB}\n")
    (group / "memory.current").write_text(f"{70 * MIB}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {20 * MIB}\n")
    (group / "b/memory.max").write_text("max\n")
    (group / "b/memory.current").write_text(f"{1 * MIB}\n")
    probe = CpuProbe(100, ["memory"], root=proc.root)
    assert list(probe.sample(0)) == [Reading("cpu.memory", "machine", 50.0)]
    (group / "memory.current").write_text(f"{90 * MIB}\n")
    assert list(probe.sample(SECOND)) == [Reading("cpu.memory", "machine", 70.0)]


def test_real_children_that_end_between_readings_count() -> None:
    """This process waits for two that work for 0.2 s of CPU time each, one of which it reads while it lives."""
    work = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    tree = ProcessTree(os.getpid())
    tree.read()
    before_s = sum(os.times()[:4])
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    for read in (True, False):
        command = [sys.executable, "-S", "-c", work]
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere) as child:
            assert child.stdout is not None
            child.stdout.readline()
            if read:
                tree.read()
    found_s, used_s = seconds(tree), sum(os.times()[:4]) - before_s
    assert used_s > 0.385
    assert found_s == pytest.approx(used_s, abs=0.05)


@pytest.mark.alone
def test_reading_a_tree_takes_little_time() -> None:
    """So that a sample a second stays far below its share."""
    tree = ProcessTree(os.getpid())
    tree.read()
    took = []
    for _ in range(15):
        started = time.perf_counter()
        tree.read()
        took.append(time.perf_counter() - started)
    assert sorted(took)[7] < 0.005
