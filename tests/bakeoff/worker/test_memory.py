"""The memory meter that detects leaks."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the meters read torch's too")

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
