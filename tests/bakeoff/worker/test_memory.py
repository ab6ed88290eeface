"""The memory meter that detects leaks."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the meters read torch's too")

from bakeoff.process.environment import worker_environment

BLOCK, BLOCKS = 2048, 15_000
GROWTH = f"""
from bakeoff.worker.checks.memory import used_bytes
freed = [bytearray({BLOCK}) for _ in range({BLOCKS})]
last = bytearray({BLOCK})  # keeps the top of the heap from falling to the kernel
del freed
before = used_bytes()
kept = [bytearray({BLOCK}) for _ in range({BLOCKS})]
print(used_bytes() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc 2.33 counts what malloc holds free")
def test_memory_that_fills_what_was_freed_is_memory_in_use(tmp_path: Path) -> None:
    """The resident size does not show it: the pages were there before. A process of its own: others allocate too."""
    done = subprocess.run(
        [sys.executable, "-c", GROWTH], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    assert BLOCKS * BLOCK <= int(done.stdout) < 1.5 * BLOCKS * BLOCK


MIB = 1 << 20
KEEPING = f"""
from bakeoff.worker.checks.memory import meter, resident_bytes, trim_heap
def call():
    return len(bytearray(b"x") * {64 * MIB})
call()
built = bytearray(b"x") * {300 * MIB}
del built
found = meter(call, "cpu", 0, 0, 0)
trim_heap()
before = resident_bytes()
call()
print(found.host_call_bytes, resident_bytes() - before, found.allocator, found.helpers_peak_bytes)
"""
SERVED = f"""
import os, time
from bakeoff.worker.checks.memory import meter, resident_bytes
inherited = bytearray(b"x") * {32 * MIB}
ready, written = os.pipe()
server = os.fork()
if server == 0:
    kept = bytearray(b"x") * {100 * MIB}
    os.write(written, b"1")
    time.sleep(60)
    os._exit(0)
os.read(ready, 1)
found = meter(lambda: None, "cpu", 0, 0, 0)
os.kill(server, 9)
print(found.helpers_peak_bytes, found.host_peak_bytes - resident_bytes())
"""


UNSEEN = f"""
import os, subprocess, sys
from bakeoff.worker.checks.memory import meter
file = os.memfd_create("cache")
def call():
    if {{child}}:
        subprocess.run([sys.executable, "-c", "bytearray(b'x') * {300 * MIB}"])
    if {{kept}} and not os.fstat(file).st_size:
        os.write(file, bytes({200 * MIB}))
found = meter(call, "cpu", 0, 0, 0)
print(found.unseen_bytes, found.host_peak_bytes)
"""


def run(script: str, folder: Path) -> list[str]:
    """What a script prints in a worker's environment."""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=worker_environment(1), capture_output=True, text=True,
        check=True, timeout=120,
    )  # fmt: skip
    return done.stdout.split()


def test_memory_is_metered_as_timed_and_stays_so(tmp_path: Path) -> None:
    """malloc keeps what calls free, and the meter returns to the kernel what was freed before its first call alone."""
    peak, kept, allocator, helpers = run(KEEPING, tmp_path)
    assert allocator == "kept"
    assert 60 * MIB < int(peak) < 160 * MIB
    assert int(kept) > 60 * MIB, "what a call freed stays resident"
    assert int(helpers) == 0


def test_memory_of_started_processes_counts(tmp_path: Path) -> None:
    helpers, extra = map(int, run(SERVED, tmp_path))
    assert 100 * MIB < helpers < 250 * MIB
    assert abs(extra - helpers) < 50 * MIB


@pytest.mark.parametrize(("child", "kept", "least"), [(0, 0, 0), (1, 1, 500)])
def test_what_a_peak_lacks_is_told_as_a_bound_and_not_added(child: int, kept: int, least: int, tmp_path: Path) -> None:
    """A process that ends within a call, and a file in memory that is not mapped."""
    unseen, peak = map(int, run(UNSEEN.format(child=child, kept=kept), tmp_path))
    assert least * MIB <= unseen <= 2 * least * MIB
    assert peak < 300 * MIB + 200 * MIB, "torch alone, and the bytes that are written"
