"""What is counted of one session besides its record: steps, blocks, streams, caches, allocations."""

from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from bakeoff.models.types import Scalar
from bakeoff.profile.compat.analyzer import DiffusionAnalyzer
from bakeoff.profile.recording import Recording

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


MOST_ALLOCATORS = 16


@dataclass(slots=True)
class Book:
    """Counts of one session, or of the time before one."""

    analyzer: DiffusionAnalyzer
    stream: StreamCount = field(default_factory=StreamCount)
    cache: CacheCount = field(default_factory=CacheCount)
    allocators: dict[str, AllocationCount] = field(default_factory=dict)
    metadata: dict[str, dict[str, Scalar]] = field(default_factory=dict)
    """What was told last of each stage."""
    compiled: int = 0
    """Frames that torch had compiled when the last block was recorded."""
    lock: RLock = field(default_factory=RLock)
    """Held while counting."""

    def allocator(self, name: str) -> AllocationCount:
        """The count of one allocator; those beyond 16 count as `others`."""
        if name not in self.allocators and len(self.allocators) >= MOST_ALLOCATORS:
            name = "others"
        return self.allocators.setdefault(name, AllocationCount())

    def tell_stray(self, recording: Recording) -> None:
        """Record what was counted outside sessions as an event of the next one."""
        counted = {
            "steps": self.analyzer.steps,
            "blocks": self.analyzer.blocks,
            "batches": self.stream.batches,
            "dropped_frames": self.stream.dropped,
            "cache_events": self.cache.hits + self.cache.misses + self.cache.evictions,
            "allocations": sum(count.allocations for count in self.allocators.values()),
        }
        if any(counted.values()):
            recording.event("recorded_outside_sessions", {name: count for name, count in counted.items() if count})

    def tell(self, recording: Recording) -> None:
        """Record what was counted as events, at the end of its session."""
        analyses = {
            "diffusion_analysis": self.analyzer.get_diffusion_analysis(),
            "block_analysis": self.analyzer.get_block_analysis(),
        }
        for name, found in analyses.items():
            if found is not None:
                recording.event(name, found)
        if self.stream.batches or self.stream.dropped:
            recording.event("streaming_analysis", self._streamed())
        if self.cache.hits or self.cache.misses or self.cache.evictions:
            recording.event("cache_analysis", self._cached())
        for name, count in self.allocators.items():
            recording.event("memory_analysis", {"allocator": name, **_allocated(count)})

    def _streamed(self) -> dict[str, Any]:
        stream = self.stream
        return {
            "batches": stream.batches,
            "frames": stream.frames,
            "dropped_frames": stream.dropped,
            "fps": stream.fps,
            "drop_share": stream.drop_share,
        }

    def _cached(self) -> dict[str, Any]:
        cache = self.cache
        return {
            "hits": cache.hits,
            "misses": cache.misses,
            "evictions": cache.evictions,
            "hit_rate": cache.hit_rate,
            "requested_size": cache.requested,
            "evicted_size": cache.evicted,
        }


def _allocated(count: AllocationCount) -> dict[str, Any]:
    return {
        "allocations": count.allocations,
        "allocated_bytes": count.allocated_bytes,
        "freed_bytes": count.freed_bytes,
        "live_bytes": count.live_bytes,
        "peak_bytes": count.peak_bytes,
        "small_share": count.small_share,
    }
