"""Definitions of streamed frames, of a cache's hit rate and of allocations."""

import pytest

from bakeoff.profile.compat.book import AllocationCount, CacheCount, StreamCount


@pytest.mark.parametrize("batches", [2, 10, 1_000])
def test_a_stream_at_24_frames_a_second_is_24_frames_a_second(batches: int) -> None:
    stream = StreamCount()
    for place in range(batches):
        stream.deliver(1, 5_000_000_000 + round(place * 1e9 / 24))
    assert stream.fps == pytest.approx(24, rel=1e-6)


def test_the_first_batch_was_made_before_the_first_gap() -> None:
    stream = StreamCount()
    for at_s, frames in ((0, 9), (1, 12), (2, 12)):
        stream.deliver(frames, at_s * 10**9)
    assert stream.frames == 33
    assert stream.fps == 12


def test_one_batch_has_no_rate() -> None:
    stream = StreamCount()
    assert (stream.fps, stream.drop_share) == (None, None)
    stream.deliver(12, 1)
    assert stream.fps is None


def test_dropped_frames_are_a_share_of_all() -> None:
    stream = StreamCount(dropped=5)
    stream.deliver(95, 1)
    assert stream.drop_share == 0.05


def test_an_eviction_is_no_request() -> None:
    assert CacheCount().hit_rate is None
    assert CacheCount(hits=9, misses=1, evictions=10).hit_rate == 0.9


def test_freed_bytes_are_not_allocated_ones() -> None:
    count = AllocationCount()
    assert count.small_share is None
    for size in (4 << 20, 1 << 20, 512):
        count.allocate(size)
    count.free(4 << 20)
    count.allocate(1 << 20)
    assert count.allocated_bytes == (6 << 20) + 512
    assert count.freed_bytes == 4 << 20
    assert count.live_bytes == (2 << 20) + 512
    assert count.peak_bytes == (5 << 20) + 512
    assert count.small_share == 0.75
