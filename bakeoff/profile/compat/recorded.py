"""Puts what callers measured themselves into a recording and a book of counts. A wrong value becomes a failed event."""

from collections.abc import Iterator
from contextlib import contextmanager

from bakeoff.profile.compat.analyzer import Block
from bakeoff.profile.compat.book import Book
from bakeoff.profile.plain import number, plain, text, whole
from bakeoff.profile.recording import Recording
from bakeoff.profile.torch_state import compiled
from bakeoff.profile.units import FinishedUnit

_ALLOCATED, _FREED = ("alloc", "allocation"), ("dealloc", "deallocation", "free")
_HITS, _MISSES, _EVICTIONS = ("hit", "hits"), ("miss", "misses"), ("eviction", "evictions")


def record_step(recording: Recording, book: Book, step: object, timestep: object, size: object, ms: object) -> None:
    """Record a step of `ms` milliseconds in a block of `size` latent frames."""
    with failing(recording, book, "diffusion_step"):
        if ms is None:
            raise ValueError("computation_time_ms is None; give milliseconds, or use @profile_diffusion_step")
        found = book.analyzer.add_step(step, timestep, size, ms)
        if found.ns is not None and recording.has_steps:
            recording.units.add_step(found.index, timestep, found.ns)


def count_step(recording: Recording, book: Book, step: object, timestep: object, size: object, ms: object) -> None:
    """Count a step that has a range; `ms` is None where its time is on a device."""
    with failing(recording, book, "diffusion_step"):
        book.analyzer.add_step(step, timestep, size, ms)


def count_block(recording: Recording, book: Book, index: object, size: object, ms: object, mib: object) -> Block | None:
    """Count a block of `ms` milliseconds; `mib` is memory as the caller read it, or None. None for wrong values."""
    found: Block | None = None
    with failing(recording, book, "block_computation"):
        found = book.analyzer.add_block(index, size, ms, mib)
        if found.memory_mib is not None:
            recording.sample("block.memory", found.memory_mib, "MiB")
    return found


def record_block(recording: Recording, book: Book, index: object, size: object, ms: object, mib: object) -> None:
    """Count a block and record it as a unit that ended now."""
    found = count_block(recording, book, index, size, ms, mib)
    if found is None or not recording.has_units:
        return
    before, book.compiled = book.compiled, compiled()
    recording.units.add(
        FinishedUnit(
            kind="compiling" if book.compiled > before else "steady",
            frames=found.frames,
            latents=found.latents,
            start_ns=recording.now() - found.ns,
            ns=found.ns,
            lines={},
            spans=(),
            depth=1,
        )
    )


def record_model(recording: Recording, book: Book, name: object, count: object, kind: object) -> None:
    """Size of a model."""
    with failing(recording, book, "model_parameters"):
        recording.parameters(*book.analyzer.add_model(name, count, kind))


def record_batch(
    recording: Recording, book: Book, frames: object, encoding_ms: object, network_ms: object, buffer: object
) -> None:
    """A batch of frames that was delivered now."""
    with failing(recording, book, "streaming_event"):
        book.stream.deliver(_whole(frames, "batch_size"), recording.now())
    for name, value, unit in (("encoding", encoding_ms, "ms"), ("network", network_ms, "ms"), ("buffer", buffer, "%")):
        if value is not None:
            recording.sample(f"stream.{name}", value, unit)


def record_dropped(recording: Recording, book: Book, count: object) -> None:
    """Frames that were not delivered."""
    with failing(recording, book, "dropped_frames"):
        book.stream.dropped += _whole(count, "count")


def record_cache(
    recording: Recording, book: Book, kind: object, size: object, requested: object, evicted: object
) -> None:
    """A use of a cache that holds `size` now."""
    with failing(recording, book, "cache_event"):
        if kind in _EVICTIONS:
            book.cache.evictions += 1
        elif kind in _HITS:
            book.cache.hits += 1
        elif kind in _MISSES:
            book.cache.misses += 1
        else:
            raise ValueError(f"event_type is {plain(kind)[0]}; give hits, misses or evictions")
        book.cache.requested += number(requested) or 0.0
        book.cache.evicted += number(evicted) or 0.0
        recording.sample("cache.size", size, "")


def record_allocation(
    recording: Recording, book: Book, kind: object, size: object, allocator: object, context: object
) -> None:
    """Bytes that were allocated or freed. `context` is told where they cannot be counted."""
    name = text(str(allocator))
    with failing(recording, book, "memory_event"):
        if kind not in (*_ALLOCATED, *_FREED):
            raise ValueError(f"event_type is {plain(kind)[0]} ({plain(context)[0]}); give alloc or dealloc")
        found = _whole(size, "size_bytes")
        count = book.allocator(name)
        if kind in _ALLOCATED:
            count.allocate(found)
        else:
            count.free(found)
        recording.sample(f"memory.{name}", count.live_bytes / (1 << 20), "MiB")


@contextmanager
def failing(recording: Recording, book: Book, name: str) -> Iterator[None]:
    """One thread at a time; a ValueError becomes an event."""
    try:
        with book.lock:
            yield
    except ValueError as error:
        recording.event(name, {"error": str(error)}, failed=True)


def _whole(value: object, name: str) -> int:
    found = whole(value)
    if found is None:
        raise ValueError(f"{name} is {plain(value)[0]}; give a whole number from 0")
    return found
