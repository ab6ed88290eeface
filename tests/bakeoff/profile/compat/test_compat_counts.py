"""Definitions of streamed frames, of a cache's hit rate and of allocations."""

from bakeoff.profile.compat.book import CacheCount, StreamCount


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


def test_an_eviction_is_no_request() -> None:
    assert CacheCount().hit_rate is None
    assert CacheCount(hits=9, misses=1, evictions=10).hit_rate == 0.9
