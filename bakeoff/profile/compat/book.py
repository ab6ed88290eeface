"""What is counted of one session besides its record: steps, blocks, streams, caches, allocations."""

from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from bakeoff.models.types import Scalar
from bakeoff.profile.compat.analyzer import DiffusionAnalyzer
from bakeoff.profile.compat.counts import AllocationCount, CacheCount, StreamCount
from bakeoff.profile.recording import Recording

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
