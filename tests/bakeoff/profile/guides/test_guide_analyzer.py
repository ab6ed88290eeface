"""Rates of recorded steps and blocks: a block counts once, and its frames are those it becomes."""

import random

import pytest

from bakeoff.profile.analyzer import DiffusionAnalyzer

TIMESTEPS = (1000, 750, 500, 250)


def run(analyzer: DiffusionAnalyzer, blocks: int, step_ms: float, block_ms: float | None, size: int = 3) -> None:
    for block in range(blocks):
        for step, timestep in enumerate(TIMESTEPS):
            analyzer.add_step(step, timestep, size, step_ms)
        if block_ms is not None:
            analyzer.add_block(block, size, block_ms, 1_000.0 + block)


def test_eight_blocks_of_four_steps_are_40_blocks_a_second() -> None:
    """Inferix gives 600 FPS and 200 BPS for it, and 120 FPS in another section of the same report."""
    analyzer = DiffusionAnalyzer(frames_per_block=12)
    run(analyzer, blocks=8, step_ms=5, block_ms=25)
    for found in (analyzer.get_diffusion_analysis(), analyzer.get_block_analysis()):
        assert found is not None
        assert (found["fps"], found["bps"], found["total_frames"]) == (480, 40, 96)
        assert (found["rate"], found["rate_unit"], found["rates_over"]) == (480, "frames/s", "time of blocks")


def test_without_frames_of_a_block_the_rate_is_of_latent_frames() -> None:
    analyzer = DiffusionAnalyzer()
    run(analyzer, blocks=8, step_ms=5, block_ms=25)
    found = analyzer.get_block_analysis()
    assert found is not None
    assert (found["rate"], found["rate_unit"], found["fps"], found["total_frames"]) == (
        120,
        "latent frames/s",
        None,
        None,
    )


def test_steps_alone_count_the_frames_of_a_block_once() -> None:
    analyzer = DiffusionAnalyzer()
    run(analyzer, blocks=8, step_ms=5, block_ms=None)
    found = analyzer.get_diffusion_analysis()
    assert found is not None
    assert (found["total_steps"], found["total_blocks"], found["total_latent_frames"]) == (32, 8, 24)
    assert (found["rate"], found["rate_unit"], found["bps"]) == (150, "latent frames/s", 50)
    assert found["rates_over"] == "time of steps"
    assert found["avg_timestep"] == 625
    assert analyzer.get_block_analysis() is None


@pytest.mark.parametrize("seed", range(20))
def test_rates_are_exact_for_any_number_of_steps_and_blocks(seed: int) -> None:
    chance = random.Random(seed)
    blocks, steps, size, ms = (chance.randrange(1, most) for most in (50, 9, 7, 90))
    analyzer = DiffusionAnalyzer()
    for _ in range(blocks):
        for step in range(steps):
            analyzer.add_step(step, None, size, ms)
    found = analyzer.get_diffusion_analysis()
    assert found is not None
    assert found["bps"] == pytest.approx(1e3 / (steps * ms))
    assert found["rate"] == pytest.approx(size * 1e3 / (steps * ms))
    assert found["avg_timestep"] is None


def test_parameters_do_not_add_up_when_a_model_is_recorded_again() -> None:
    analyzer = DiffusionAnalyzer()
    assert analyzer.get_model_analysis() is None
    for _ in range(3):
        analyzer.add_model("wm", 1_300_000_000, "diffusion")
        analyzer.add_model("vae", 120_000_000, "vae")
    found = analyzer.get_model_analysis()
    assert found is not None
    assert found["total_parameters"] == 1_420_000_000
    assert found["total_parameters_readable"] == "1.4B"
    assert found["models"]["vae"] == {"parameters_count": 120_000_000, "model_type": "vae"}


def test_a_block_without_memory_has_none() -> None:
    analyzer = DiffusionAnalyzer()
    analyzer.add_block(0, 3, 25, None)
    found = analyzer.get_block_analysis()
    assert found is not None
    assert (found["avg_memory_usage_mb"], found["peak_memory_usage_mb"]) == (None, None)
    analyzer.add_block(1, 3, 25, 800)
    found = analyzer.get_block_analysis()
    assert found is not None
    assert (found["avg_memory_usage_mb"], found["peak_memory_usage_mb"]) == (800, 800)


def test_times_of_zero_have_no_rate() -> None:
    analyzer = DiffusionAnalyzer()
    analyzer.add_step(0, None, 3, 0)
    found = analyzer.get_diffusion_analysis()
    assert found is not None
    assert (found["rate"], found["bps"]) == (None, None)


@pytest.mark.parametrize(
    ("step", "size", "ms", "said"),
    [
        (-1, 3, 5, "step is -1"),
        (0.5, 3, 5, "step is 0.5"),
        (0, "three", 5, "block_size is three"),
        (0, 3, float("nan"), "computation_time_ms is nan"),
        (0, 3, -1, "computation_time_ms is -1"),
    ],
)
def test_what_is_no_number_is_refused(step: object, size: object, ms: object, said: str) -> None:
    analyzer = DiffusionAnalyzer()
    with pytest.raises(ValueError, match=said):
        analyzer.add_step(step, 1000, size, ms)
    assert analyzer.get_diffusion_analysis() is None


def test_steps_do_not_fill_memory() -> None:
    analyzer = DiffusionAnalyzer()
    run(analyzer, blocks=100, step_ms=5, block_ms=25)
    few = len(repr(analyzer))
    run(analyzer, blocks=2_000, step_ms=5, block_ms=25)
    assert len(repr(analyzer)) < few + 100
