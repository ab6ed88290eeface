"""`DiffusionAnalyzer`: the rates that Inferix' guides name, of what a recording holds.

Inferix adds up the frames of a block at each of its steps and calls steps per second BPS. Here a block is a unit and
counts once: rates are over the time of units if there are any, else over the time of steps. A block's size is in latent
frames, so `fps` is None unless units have frames, as with `Profiler(..., frames_per_block=12)`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bakeoff.record.session import StepTotals, UnitTotals

if TYPE_CHECKING:
    from bakeoff.profile.recording import Recording


class DiffusionAnalyzer:
    """Figures of one recording, computed when they are asked for. Times are in milliseconds, memory in MiB."""

    def __init__(self, recording: "Recording", frames_per_block: int | None = None) -> None:
        self._recording, self._frames_per_block = recording, frames_per_block

    def get_diffusion_analysis(self) -> dict[str, Any] | None:
        """Return the figures of steps, their mean timestep, and rates; None if no step was recorded.

        Times of steps are unknown, and None, where a device ran them: the host's are those of their launch.
        """
        steps = self._recording.units.steps()
        if not steps:
            return None
        launched = self._recording.device_clock is not None and any(
            stage.kind == "step" for _, stage in self._recording.tree.root.walk()
        )
        count, ns = sum(each.calls for each in steps), None if launched else sum(each.ns for each in steps)
        timed = [each for each in steps if each.timestep is not None]
        calls = sum(each.calls for each in timed)
        mean = sum((each.timestep or 0) * each.calls for each in timed) / calls if calls else None
        found: dict[str, Any] = {"total_steps": count, "avg_timestep": mean, **_times(ns, count, steps)}
        blocks = self.get_block_analysis()
        if blocks is not None:
            return blocks | found
        begun = max(each.calls for each in steps)
        size = self._series("block_size")[0] or 0
        return found | self._rates(begun, round(size * begun), None, ns, "steps")

    def get_block_analysis(self) -> dict[str, Any] | None:
        """Return the figures of units, their memory as given, and rates; None if no unit was recorded."""
        units = self._recording.units.totals()
        if not units:
            return None
        count, ns = sum(each.count for each in units), sum(each.wall_ns for each in units)
        mean, peak = self._series("block.memory")
        frames, latents = sum(each.frames for each in units), sum(each.latents for each in units)
        rates = self._rates(count, latents, frames or None, ns, "blocks")
        return {**_times(ns, count, units), "avg_memory_usage_mb": mean, "peak_memory_usage_mb": peak, **rates}

    def get_model_analysis(self) -> dict[str, Any] | None:
        """Return the number of parameters of each model and of all together; None if no model was recorded."""
        models = self._recording.models
        if not models:
            return None
        total = sum(each.count for each in models.values())
        sizes = {name: {"parameters_count": each.count, "model_type": each.kind} for name, each in models.items()}
        size, letter = next(((size, letter) for size, letter in ((10**9, "B"), (10**6, "M")) if total >= size), (1, ""))
        readable = f"{total / size:.1f}{letter}" if letter else f"{total:,}"
        return {"models": sizes, "total_parameters": total, "total_parameters_readable": readable}

    def _series(self, name: str) -> tuple[float | None, float | None]:
        """Return mean and greatest value of a series of the user; None for what was not sampled."""
        found = next((each for each in self._recording.series() if (each.name, each.source) == (name, "user")), None)
        return (None, None) if found is None else (found.mean, found.greatest)

    def _rates(self, blocks: int, latents: int, frames: int | None, ns: int | None, of: str) -> dict[str, Any]:
        """Return rates over `ns` nanoseconds, None if that time is 0 or unknown."""
        if frames is None and self._frames_per_block is not None:
            frames = self._frames_per_block * blocks
        rate = (latents if frames is None else frames) * 1e9 / ns if ns else None
        return {
            "total_blocks": blocks,
            "avg_block_size": latents / blocks,
            "total_latent_frames": latents,
            "rates_over": f"time of {of}",
            "rate": rate,
            "rate_unit": "latent frames/s" if frames is None else "frames/s",
            "total_frames": frames,
            "fps": None if frames is None else rate,
            "bps": blocks * 1e9 / ns if ns else None,
        }


def _times(ns: int | None, count: int, parts: Sequence[StepTotals | UnitTotals]) -> dict[str, Any]:
    least, greatest = min(each.least_ns for each in parts), max(each.greatest_ns for each in parts)
    known: dict[str, float] = {"total": ns or 0, "avg": (ns or 0) / count, "min": least, "max": greatest}
    return {f"{name}_computation_time_ms": None if ns is None else value / 1e6 for name, value in known.items()}
