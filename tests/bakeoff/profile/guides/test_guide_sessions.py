"""`InferixProfiler`: each fault of Inferix' own profiler, and what is right instead."""

from pathlib import Path
from typing import Any

import pytest
from guide_runs import events, profiler_in, record_of

from bakeoff.profile import InferixProfiler


def test_what_comes_before_a_session_is_part_of_it(profiler: InferixProfiler) -> None:
    with profiler.stage("load_checkpoint", {"path": "a.pt"}):
        profiler.add_event("checkpoint_loaded", {"bytes": 5})
    profiler.record_model_parameters("wm", 7, "diffusion")
    with profiler.session("later"):
        pass
    record = record_of(profiler)
    assert ("load_checkpoint",) in {each.path for each in record.before}
    assert events(profiler, "checkpoint_loaded")[0].data == {"bytes": 5}
    assert events(profiler, "stage_metadata")[0].data == {"stage": "load_checkpoint", "path": "a.pt"}
    assert [model.count for model in record.parameters] == [7]


def test_steps_and_blocks_outside_sessions_are_told_by_the_next(profiler: InferixProfiler) -> None:
    for step in range(4):
        profiler.record_diffusion_step(step, 1000, 3, 5)
    profiler.record_block_computation(0, 3, 25)
    with profiler.session("next"):
        pass
    (told,) = record_of(profiler).findings
    assert told.code == "misused"
    assert told.text.startswith("1 unit and 4 steps ran outside sessions")
    assert (record_of(profiler).steps, record_of(profiler).units) == ((), ())
    with profiler.session("one after"):
        pass
    assert record_of(profiler).findings == ()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda it: it.record_diffusion_step(-1, 1000, 3, 5), "index of a step is -1"),
        (lambda it: it.record_diffusion_step(0, 1000, 3, None), "computation_time_ms is None"),
        (lambda it: it.record_diffusion_step(0, 1000, "three", 5), "sample of 'block_size' is 'three'"),
        (lambda it: it.record_block_computation(0, 3, float("nan"), 1), "computation_time_ms is None"),
        (lambda it: it.record_block_computation(0, 3, -1, 1), "computation_time_ms is -1"),
        (lambda it: it.record_block_computation(0, 3, 25, "much"), "sample of 'block.memory' is 'much'"),
        (lambda it: it.record_block_computation(0, 3, 1e18, 1), "computation_time_ms is 1e+18"),
        (lambda it: it.record_block_computation(0, "3 frames", 25, 1), "latents of a unit is '3 frames'"),
        (lambda it: it.record_model_parameters("wm", -5, ""), "parameters of 'wm' cannot be read"),
    ],
)
def test_a_wrong_value_is_a_finding_and_raises_nothing(call: Any, said: str, profiler: InferixProfiler) -> None:
    with profiler.session("wrong"):
        call(profiler)
    (found,) = record_of(profiler).findings
    assert found.code == "misused"
    assert said in found.text


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        ("profile_diffusion_steps", (0, 1, 1)),
        ("profile_block_computation", (1, 0, 1)),
        ("profile_model_parameters", (1, 1, 0)),
    ],
)
def test_each_key_leaves_out_its_own(key: str, kept: tuple[int, int, int], tmp_path: Path) -> None:
    profiler = profiler_in(tmp_path, **{key: False})
    with profiler.session("keys"):
        profiler.record_diffusion_step(0, 1000, 3, 5)
        profiler.record_block_computation(0, 3, 25, 100)
        profiler.record_model_parameters("wm", 7, "diffusion")
    record = record_of(profiler)
    assert (len(record.steps), len(record.units), len(record.parameters)) == kept
