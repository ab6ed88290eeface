"""Rates of recorded steps and blocks: a block counts once, and its frames are those it becomes."""

from collections.abc import Mapping
from typing import Any

from bakeoff.profile.analyzer import DiffusionAnalyzer
from bakeoff.profile.recording import Recording

TIMESTEPS = (1000, 750, 500, 250)


def run(recording: Recording, blocks: int, step_ms: float, block_ms: float | None, size: int = 3) -> None:
    for block in range(blocks):
        for step, timestep in enumerate(TIMESTEPS):
            recording.units.add_step(step, timestep, round(step_ms * 1e6))
            recording.sample("block_size", size)
        if block_ms is not None:
            recording.measured_unit(block_ms, 0, size)
            recording.sample("block.memory", 1_000.0 + block, "MiB")


def analyzed(recording: Recording, frames_per_block: int | None = None) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The analyses of steps and of blocks."""
    analyzer = DiffusionAnalyzer(recording, frames_per_block)
    steps, blocks = analyzer.get_diffusion_analysis(), analyzer.get_block_analysis()
    return steps or {}, blocks or {}


def test_eight_blocks_of_four_steps_are_40_blocks_a_second() -> None:
    """Inferix gives 600 FPS and 200 BPS for it, and 120 FPS in another section of the same report."""
    recording = Recording()
    run(recording, blocks=8, step_ms=5, block_ms=25)
    for found in analyzed(recording, frames_per_block=12):
        assert (found["fps"], found["bps"], found["total_frames"]) == (480, 40, 96)
        assert (found["rate"], found["rate_unit"], found["rates_over"]) == (480, "frames/s", "time of blocks")
    steps, blocks = analyzed(recording)
    assert (steps["total_steps"], steps["total_computation_time_ms"], steps["avg_timestep"]) == (32, 160, 625)
    assert (blocks["total_computation_time_ms"], blocks["min_computation_time_ms"]) == (200, 25)
    assert (blocks["avg_memory_usage_mb"], blocks["peak_memory_usage_mb"]) == (1_003.5, 1_007)


def test_without_frames_of_a_block_the_rate_is_of_latent_frames() -> None:
    recording = Recording()
    run(recording, blocks=8, step_ms=5, block_ms=25)
    _, found = analyzed(recording)
    assert (found["rate"], found["rate_unit"]) == (120, "latent frames/s")
    assert (found["fps"], found["total_frames"]) == (None, None)


def test_steps_alone_count_the_frames_of_a_block_once() -> None:
    recording = Recording()
    run(recording, blocks=8, step_ms=5, block_ms=None)
    found, blocks = analyzed(recording)
    assert (found["total_steps"], found["total_blocks"], found["total_latent_frames"]) == (32, 8, 24)
    assert (found["rate"], found["rate_unit"], found["bps"]) == (150, "latent frames/s", 50)
    assert (found["rates_over"], found["avg_timestep"], blocks) == ("time of steps", 625, {})


def test_parameters_do_not_add_up_when_a_model_is_recorded_again() -> None:
    recording = Recording()
    analyzer = DiffusionAnalyzer(recording)
    assert analyzer.get_model_analysis() is None
    for _ in range(3):
        recording.parameters("wm", 1_300_000_000, "diffusion")
        recording.parameters("vae", 120_000_000, "vae")
    found = analyzer.get_model_analysis()
    assert found is not None
    assert found["total_parameters"] == 1_420_000_000
    assert found["total_parameters_readable"] == "1.4B"
    assert found["models"]["vae"] == {"parameters_count": 120_000_000, "model_type": "vae"}


def test_times_of_zero_have_no_rate() -> None:
    recording = Recording()
    recording.units.add_step(0, None, 0)
    found, _ = analyzed(recording)
    assert (found["rate"], found["bps"]) == (None, None)
