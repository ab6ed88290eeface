"""The memory meter that detects leaks."""

import ctypes

import pytest

pytest.importorskip("torch", reason="the meters read torch's too")

from bakeoff.worker.checks.memory import used_bytes

BLOCK, BLOCKS = 2048, 15_000


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc 2.33 counts what malloc holds free")
def test_memory_that_fills_what_was_freed_is_memory_in_use() -> None:
    """The resident size does not show it: the pages were there before."""
    freed = [bytearray(BLOCK) for _ in range(BLOCKS)]
    last = bytearray(BLOCK)  # keeps the top of the heap from falling to the kernel
    del freed
    before = used_bytes()
    kept = [bytearray(BLOCK) for _ in range(BLOCKS)]
    grown = used_bytes() - before
    assert len(kept) * BLOCK <= grown < 2 * len(kept) * BLOCK, "other threads of the test process allocate too"
    del last
