"""The Python blocks of Inferix' guides run with their imports changed and give the right numbers."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import guides
import pytest
from guide_runs import events, record_of

from bakeoff.profile import InferixProfiler

CUSTOM, SIMPLE, DIRECT = range(3)


def run(place: int, names: dict[str, Any]) -> dict[str, Any]:
    """The names that a block makes, with no change but its import."""
    source = guides.blocks("python")[place].replace(guides.IMPORTED, guides.OURS)
    exec(compile(source, f"guide {place}", "exec"), names)
    return names


@pytest.fixture
def custom(profiler: InferixProfiler) -> Any:
    """The first block's pipeline with a profiler, and with the method that it calls but lacks."""
    pipeline = run(CUSTOM, {})["CustomPipeline"]()
    pipeline._generate_video = lambda _prompts, **_kwargs: SimpleNamespace(shape=(1, 12, 3, 480, 832))
    pipeline._profiling_enabled = True
    pipeline._profiler = profiler
    return pipeline


def test_the_custom_pipeline_records_what_ran_before_its_session(custom: Any, profiler: InferixProfiler) -> None:
    custom._initialize_model()
    custom.load_checkpoint("self_forcing_dmd.pt")
    custom.run_text_to_video(["a sunset"])
    record = record_of(profiler)
    assert (record.name, record.status, record.tags) == ("video_generation", "ok", {"mode": "t2v"})
    assert {each.path for each in record.before} >= {("model_initialization",), ("checkpoint_loading",)}
    (loaded,) = events(profiler, "checkpoint_loaded")
    assert (loaded.data, loaded.failed) == ({"checkpoint_path": "self_forcing_dmd.pt"}, False)
    assert loaded.t_ns < 0


def test_the_custom_pipeline_records_steps_blocks_and_models(custom: Any, profiler: InferixProfiler) -> None:
    with profiler.session("t2v"):
        custom.record_model_parameters("wm", 1_300_000_000, "diffusion")
        for block in range(8):
            for step, timestep in enumerate((1000, 750, 500, 250)):
                custom.diffusion_step(step, timestep, 3)
            custom.process_block(block, 3, 25, 9_000)
    record = record_of(profiler)
    assert [(step.index, step.timestep, step.calls) for step in record.steps] == [
        (0, 1000, 8),
        (1, 750, 8),
        (2, 500, 8),
        (3, 250, 8),
    ]
    (units,) = record.units
    assert (units.kind, units.count, units.latents, units.wall_ns) == ("steady", 8, 24, 8 * 25_000_000)
    assert [(model.name, model.count, model.kind) for model in record.parameters] == [
        ("wm", 1_300_000_000, "diffusion")
    ]
    (series,) = [each for each in record.series if each.name == "block.memory"]
    assert (series.greatest, series.count, series.unit) == (9_000, 8, "MiB")


def test_the_simple_pipeline_finds_an_installed_profiler(profiler: InferixProfiler) -> None:
    profiler.install()
    pipeline = run(SIMPLE, {})["VideoPipeline"]()
    pipeline._initialize_model()
    pipeline.run_text_to_video(["a sunset"])
    record = record_of(profiler)
    assert (record.name, record.tags) == ("video_generation", {"mode": "t2v"})
    assert [each.path for each in record.before if each.path] == [("model_initialization",)]


@dataclass
class FakeClock:
    """torch.cuda with events on a clock of its own: `Event.elapsed_time` is milliseconds between two records (torch
    2.13, torch/cuda/streams.py)."""

    ms: float = 0.0
    waits: int = 0

    def event(self, enable_timing: bool) -> Any:
        assert enable_timing
        made = SimpleNamespace(at=None)
        made.record = lambda: setattr(made, "at", self.ms)
        made.elapsed_time = lambda end: end.at - made.at
        return made

    def synchronize(self) -> None:
        self.waits += 1


class Denoising:
    """Timesteps that take time to run through, as the calls of a model between them would."""

    def __init__(self, clock: FakeClock, step_ms: float) -> None:
        self.clock, self.step_ms = clock, step_ms

    def __iter__(self) -> Iterator[int]:
        for timestep in (1000, 750, 500, 250):
            self.clock.ms += self.step_ms
            yield timestep
        self.clock.ms += self.step_ms  # the pass that fills the cache


def direct(profiler: InferixProfiler | None, blocks: int, step_ms: float, size: int) -> FakeClock:
    clock = FakeClock()
    cuda = SimpleNamespace(Event=clock.event, synchronize=clock.synchronize)
    names = {
        "torch": SimpleNamespace(cuda=cuda),
        "num_blocks": blocks,
        "denoising_steps": Denoising(clock, step_ms),
        "block_size": size,
        "step_time_ms": step_ms,
        "peak_memory_mb": 9_000.0,
        "profiler": profiler,
    }
    run(DIRECT, names)
    return clock


def test_direct_integration_gives_frames_over_the_time_of_blocks(profiler: InferixProfiler) -> None:
    """Eight blocks of four steps of 5 ms, 25 ms a block: Inferix says 600 FPS and 200 BPS."""
    with profiler.session("direct"):
        direct(profiler, blocks=8, step_ms=5, size=3)
        found = profiler.diffusion_analyzer.get_diffusion_analysis()
    assert found is not None
    assert (found["bps"], found["rate"], found["rate_unit"], found["fps"]) == (40, 120, "latent frames/s", None)
    record = record_of(profiler)
    (units,) = record.units
    assert (units.count, units.wall_ns, units.latents, units.frames) == (8, 200_000_000, 24, 0)
    assert [(step.calls, step.ns) for step in record.steps] == [(8, 40_000_000)] * 4
