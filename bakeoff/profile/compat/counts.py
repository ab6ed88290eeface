"""Counts of streamed frames, of uses of a cache and of allocations, by the usual definitions of their names."""

from dataclasses import dataclass

SMALL_BYTES = 1 << 20
"""torch's CUDA allocator takes blocks of at most this size from its pool for small ones (kSmallSize)."""


@dataclass(slots=True)
class StreamCount:
    """Batches of frames that were delivered, and frames that were dropped."""

    batches: int = 0
    frames: int = 0
    dropped: int = 0
    _first_frames: int = 0
    _first_ns: int = 0
    _last_ns: int = 0

    def deliver(self, frames: int, at_ns: int) -> None:
        """A batch that was complete at this time."""
        if not self.batches:
            self._first_frames, self._first_ns = frames, at_ns
        self.batches += 1
        self.frames += frames
        self._last_ns = at_ns

    @property
    def fps(self) -> float | None:
        """Frames of all batches but the first, over the time since the first: N batches have N - 1 gaps.

        None before the second batch.
        """
        ns = self._last_ns - self._first_ns
        return (self.frames - self._first_frames) * 1e9 / ns if ns > 0 else None

    @property
    def drop_share(self) -> float | None:
        """Dropped frames of all; None where there were none of either kind."""
        total = self.frames + self.dropped
        return self.dropped / total if total else None


@dataclass(slots=True)
class CacheCount:
    """Requests to a cache, and what it evicted."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    requested: float = 0.0
    """Sum of the sizes of requests, in the caller's unit."""
    evicted: float = 0.0

    @property
    def hit_rate(self) -> float | None:
        """Hits of all requests; an eviction is no request. None before the first request."""
        requests = self.hits + self.misses
        return self.hits / requests if requests else None


@dataclass(slots=True)
class AllocationCount:
    """Bytes that were allocated and freed."""

    allocations: int = 0
    small: int = 0
    allocated_bytes: int = 0
    freed_bytes: int = 0
    peak_bytes: int = 0
    """The most that was live at once, of what was recorded."""

    def allocate(self, size: int) -> None:
        self.allocations += 1
        self.small += size <= SMALL_BYTES
        self.allocated_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def free(self, size: int) -> None:
        self.freed_bytes += size

    @property
    def live_bytes(self) -> int:
        return self.allocated_bytes - self.freed_bytes

    @property
    def small_share(self) -> float | None:
        """Allocations of at most 1 MiB of all. It says nothing about fragmentation. None before the first."""
        return self.small / self.allocations if self.allocations else None
