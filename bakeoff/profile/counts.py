"""Steps, blocks and delivered frames that callers measured and counted themselves.

A wrong value becomes an event that is marked as failed. The totals become events at the end of a session.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any

from bakeoff.profile.analyzer import DiffusionAnalyzer
from bakeoff.profile.plain import plain, whole
from bakeoff.profile.torch_state import compiled
from bakeoff.profile.units import FinishedUnit

if TYPE_CHECKING:
    from bakeoff.profile.recording import Recording


@dataclass(slots=True)
class StreamCount:
    """Delivered batches and frames, and dropped frames, of a stream."""

    batches: int = 0
    frames: int = 0
    dropped: int = 0
    _first_frames: int = 0
    _first_ns: int = 0
    _last_ns: int = 0

    def deliver(self, frames: int, at_ns: int) -> None:
        """Count a batch of `frames` frames that was complete at `at_ns`."""
        if not self.batches:
            self._first_frames, self._first_ns = frames, at_ns
        self.batches += 1
        self.frames += frames
        self._last_ns = at_ns

    @property
    def fps(self) -> float | None:
        """Frames per second, of all batches but the first over the time since the first: N batches have N - 1 gaps.

        None before the second batch.
        """
        ns = self._last_ns - self._first_ns
        return (self.frames - self._first_frames) * 1e9 / ns if ns > 0 else None

    def figures(self) -> dict[str, Any]:
        """Return the counts, `fps`, and `drop_share`: dropped frames as a share of delivered and dropped ones."""
        total = self.frames + self.dropped
        share = self.dropped / total if total else None
        counts = {"batches": self.batches, "frames": self.frames, "dropped_frames": self.dropped}
        return {**counts, "fps": self.fps, "drop_share": share}


@dataclass(slots=True)
class Counts:
    """Counts of one session, or of the time before one. Thread-safe; its methods never raise."""

    recording: "Recording"
    analyzer: DiffusionAnalyzer
    stream: StreamCount = field(default_factory=StreamCount)
    metadata: dict[str, Any] = field(default_factory=dict)
    """The newest metadata of each stage."""
    _compiled: int = field(default_factory=compiled)
    """Count of `torch_state.compiled()` when the last block was recorded."""
    _lock: RLock = field(default_factory=RLock)

    def step(self, step: object, timestep: object, size: object, ms: object) -> None:
        """Record a step of `ms` milliseconds in a block of `size` latent frames."""
        with self._failing("diffusion_step"):
            if ms is None:
                raise ValueError("computation_time_ms is None; give milliseconds, or use @profile_diffusion_step")
            index, ns = self.analyzer.add_step(step, timestep, size, ms)
            if ns is not None and self.recording.has_steps:
                self.recording.units.add_step(index, timestep, ns)

    def measured_step(self, step: object, timestep: object, size: object, ms: float | None) -> None:
        """Count a step that is also recorded as a range; `ms` is None if its time is read from a device later."""
        with self._failing("diffusion_step"):
            self.analyzer.add_step(step, timestep, size, ms)

    def measured_block(self, index: object, size: object, ms: object, mib: object) -> tuple[int, int] | None:
        """Count a block of `size` latent frames that took `ms` milliseconds; return its latent frames and nanoseconds.

        `mib` is the memory in MiB as the caller read it, or None. Returns None if a value is wrong.
        """
        found: tuple[int, int] | None = None
        with self._failing("block_computation"):
            latents, ns, memory = self.analyzer.add_block(index, size, ms, mib)
            found = latents, ns
            if memory is not None:
                self.recording.sample("block.memory", memory, "MiB")
        return found

    def block(self, index: object, size: object, ms: object, mib: object) -> None:
        """Count a block and record it as a unit that ended now; the parameters are those of `measured_block`."""
        recording, found = self.recording, self.measured_block(index, size, ms, mib)
        if found is None or not recording.has_units:
            return
        before, self._compiled = self._compiled, compiled()
        recording.units.add(
            FinishedUnit(
                kind="compiling" if self._compiled > before else "steady",
                frames=self.analyzer.frames_per_block or 0,
                latents=found[0],
                start_ns=recording.now() - found[1],
                ns=found[1],
                lines={},
                spans=(),
                depth=1,
            )
        )

    def model(self, name: object, count: object, kind: object) -> None:
        """Record the size of a model."""
        with self._failing("model_parameters"):
            self.recording.parameters(*self.analyzer.add_model(name, count, kind))

    def batch(self, frames: object, encoding_ms: object, network_ms: object, buffer: object) -> None:
        """Record a batch of frames that was delivered now; times are in milliseconds, `buffer` is in percent."""
        with self._failing("streaming_event"):
            self.stream.deliver(_whole(frames, "batch_size"), self.recording.now())
        values = (("encoding", encoding_ms, "ms"), ("network", network_ms, "ms"), ("buffer", buffer, "%"))
        for name, value, unit in values:
            if value is not None:
                self.recording.sample(f"stream.{name}", value, unit)

    def dropped(self, count: object) -> None:
        """Record frames that were not delivered."""
        with self._failing("dropped_frames"):
            self.stream.dropped += _whole(count, "count")

    def tell(self) -> None:
        """Record the figures of steps, blocks and stream as events, at the end of their session."""
        found = {
            "diffusion_analysis": self.analyzer.get_diffusion_analysis(),
            "block_analysis": self.analyzer.get_block_analysis(),
            "streaming_analysis": self.stream.figures() if self.stream.batches or self.stream.dropped else None,
        }
        for name, figures in found.items():
            if figures is not None:
                self.recording.event(name, figures)

    def tell_as_earlier(self, later: "Recording") -> None:
        """Record these counts as one event in the recording of a session that began after them."""
        counted = {
            "steps": self.analyzer.steps,
            "blocks": self.analyzer.blocks,
            "batches": self.stream.batches,
            "dropped_frames": self.stream.dropped,
        }
        if any(counted.values()):
            later.event("recorded_outside_sessions", {name: count for name, count in counted.items() if count})

    @contextmanager
    def _failing(self, name: str) -> Iterator[None]:
        """Run the block under the lock; turn a ValueError into a failed event of this name."""
        try:
            with self._lock:
                yield
        except ValueError as error:
            self.recording.event(name, {"error": str(error)}, failed=True)


def _whole(value: object, name: str) -> int:
    found = whole(value)
    if found is None:
        raise ValueError(f"{name} is {plain(value)[0]}; give a whole number from 0")
    return found
