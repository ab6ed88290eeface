"""`DiffusionAnalyzer`: rates of denoising steps and blocks whose times the caller measured.

Inferix adds up the frames of a block at each of its steps and calls steps per second BPS. Here a block counts once:
rates are over the time of blocks if blocks were recorded, else over the time of steps. A block's size is in latent
frames, so `fps` is None unless `frames_per_block` says how many frames a decoded block has.
"""

from dataclasses import dataclass, field
from math import inf
from typing import Any

from bakeoff.profile.plain import number, plain, whole

MOST_MS = 86_400_000.0
"""Largest time of one step or block: a day, so that totals fit into 64 bits of nanoseconds. Memory in MiB has the same
limit."""
MOST_FRAMES = 1_000_000
MOST_PARAMETERS = (1 << 63) - 1


@dataclass(slots=True)
class _Times:
    """Times of steps or blocks, and the latent frames of their blocks."""

    count: int = 0
    ms: float = 0.0
    least_ms: float = inf
    greatest_ms: float = 0.0
    blocks: int = 0
    latents: int = 0
    is_timed: bool = True
    """Whether every time is known."""

    def add(self, ms: float | None) -> None:
        self.count += 1
        if ms is None:
            self.is_timed = False
            return
        self.ms += ms
        self.least_ms = min(self.least_ms, ms)
        self.greatest_ms = max(self.greatest_ms, ms)

    def begin_block(self, latents: int) -> None:
        self.blocks += 1
        self.latents += latents

    def figures(self) -> dict[str, Any]:
        timed = self.is_timed
        return {
            "total_computation_time_ms": self.ms if timed else None,
            "avg_computation_time_ms": self.ms / self.count if timed else None,
            "min_computation_time_ms": self.least_ms if timed else None,
            "max_computation_time_ms": self.greatest_ms if timed else None,
            "total_blocks": self.blocks,
            "avg_block_size": self.latents / self.blocks,
            "total_latent_frames": self.latents,
        }


@dataclass(slots=True)
class DiffusionAnalyzer:
    """Totals of one session in bounded memory; `models` are kept from session to session."""

    frames_per_block: int | None = None
    """Number of frames of a decoded block; None if unknown."""
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    _steps: _Times = field(default_factory=_Times)
    _blocks: _Times = field(default_factory=_Times)
    _last: int = -1
    """Index of the last step; a step whose index is not greater begins a block."""
    _timesteps: int = 0
    _timestep_sum: float = 0.0
    _memory_sum: float = 0.0
    _memory_count: int = 0
    _memory_peak: float = 0.0

    @property
    def steps(self) -> int:
        return self._steps.count

    @property
    def blocks(self) -> int:
        return self._blocks.count

    def add_step(self, step: object, at: object, block_size: object, ms: object) -> tuple[int, int | None]:
        """Add a step that took `ms` milliseconds, None if not yet known; return its index and nanoseconds.

        `at` is the timestep. Raises ValueError if index, size or time is no valid number.
        """
        place, size = _whole(step, "step"), _whole(block_size, "block_size")
        took = None if ms is None else _number(ms, "computation_time_ms")
        if place <= self._last or not self._steps.blocks:
            self._steps.begin_block(size)
        self._last = place
        self._steps.add(took)
        found = number(at)
        if found is not None:
            self._timesteps += 1
            self._timestep_sum += found
        return place, None if took is None else round(took * 1e6)

    def add_block(
        self, block_index: object, block_size: object, ms: object, memory_mib: object
    ) -> tuple[int, int, float | None]:
        """Add a block that took `ms` milliseconds; return its latent frames, nanoseconds, and MiB of memory if given.

        Raises ValueError if one of them is no valid number.
        """
        _whole(block_index, "block_index")
        size, took = _whole(block_size, "block_size"), _number(ms, "computation_time_ms")
        memory = None if memory_mib is None else _number(memory_mib, "memory_usage_mb")
        self._blocks.begin_block(size)
        self._blocks.add(took)
        if memory is not None:
            self._memory_sum += memory
            self._memory_count += 1
            self._memory_peak = max(self._memory_peak, memory)
        return size, round(took * 1e6), memory

    def add_model(self, name: object, count: object, kind: object) -> tuple[str, int, str]:
        """Record a model's number of parameters and type, replacing an earlier one of that name; return all three.

        Raises ValueError if the number is not valid.
        """
        size = _whole(count, "parameters_count", MOST_PARAMETERS)
        self.models[str(name)] = {"parameters_count": size, "model_type": str(kind)}
        return str(name), size, str(kind)

    def get_diffusion_analysis(self) -> dict[str, Any] | None:
        """Return the figures of steps: times in ms, mean timestep, and rates; None if no step was recorded."""
        steps = self._steps
        if not steps.count:
            return None
        mean = self._timestep_sum / self._timesteps if self._timesteps else None
        found = {"total_steps": steps.count, **steps.figures(), "avg_timestep": mean}
        return found | (self._rates(self._blocks, "blocks") if self._blocks.count else self._rates(steps, "steps"))

    def get_block_analysis(self) -> dict[str, Any] | None:
        """Return the figures of blocks: times in ms, memory in MiB as given, rates; None if no block was recorded."""
        blocks = self._blocks
        if not blocks.count:
            return None
        mean = self._memory_sum / self._memory_count if self._memory_count else None
        peak = self._memory_peak if self._memory_count else None
        memory = {"avg_memory_usage_mb": mean, "peak_memory_usage_mb": peak}
        return {**blocks.figures(), **memory, **self._rates(blocks, "blocks")}

    def get_model_analysis(self) -> dict[str, Any] | None:
        """Return the number of parameters of each model and of all together; None if no model was recorded."""
        if not self.models:
            return None
        total = sum(model["parameters_count"] for model in self.models.values())
        return {
            "models": {name: dict(model) for name, model in self.models.items()},
            "total_parameters": total,
            "total_parameters_readable": _readable(total),
        }

    def _rates(self, times: _Times, of: str) -> dict[str, Any]:
        """Return rates over the time of `of`, `steps` or `blocks`; rates are None if that time is 0 or unknown."""
        known = self.frames_per_block is not None
        frames = (self.frames_per_block or 0) * times.blocks
        seconds = times.ms / 1e3 if times.is_timed else 0.0
        rate = (frames if known else times.latents) / seconds if seconds else None
        return {
            "rates_over": f"time of {of}",
            "rate": rate,
            "rate_unit": "frames/s" if known else "latent frames/s",
            "total_frames": frames if known else None,
            "fps": rate if known else None,
            "bps": times.blocks / seconds if seconds else None,
        }


def _whole(value: object, name: str, most: int = MOST_FRAMES) -> int:
    found = whole(value)
    if found is None or found > most:
        raise ValueError(f"{name} is {_shown(value)}; give a whole number from 0 to {most}")
    return found


def _number(value: object, name: str) -> float:
    found = number(value)
    if found is None or not 0 <= found <= MOST_MS:
        raise ValueError(f"{name} is {_shown(value)}; give a number of the host from 0 to {MOST_MS:g}")
    return found


def _shown(value: object) -> str:
    return f"{value}" if isinstance(value, float) else str(plain(value)[0])


def _readable(count: int) -> str:
    for size, letter in ((10**9, "B"), (10**6, "M")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return f"{count:,}"
