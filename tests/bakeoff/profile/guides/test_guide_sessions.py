"""`InferixProfiler`: each fault of Inferix' own profiler, and what is right instead."""

from pathlib import Path
from typing import Any

import pytest
from guide_runs import config_in, events, paths, profiler_in, record_of

from bakeoff.models.errors import BakeoffError
from bakeoff.profile import InferixProfiler, Settings


def test_a_second_session_holds_nothing_of_the_first(profiler: InferixProfiler) -> None:
    for place in range(2):
        with profiler.session(f"prompt {place}"):
            profiler.record_diffusion_step(place, 1000, 3, 5)
            profiler.record_block_computation(place, 3, 25, 100 + place)
            profiler.add_event(f"event {place}")
            with profiler.stage(f"stage {place}"):
                pass
    record = record_of(profiler)
    assert (record.name, [step.index for step in record.steps]) == ("prompt 1", [1])
    assert sum(units.count for units in record.units) == 1
    assert paths(profiler) == {(), ("stage 1",)}
    assert not events(profiler, "event 0")
    assert [series.count for series in record.series if series.name == "block.memory"] == [1]


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


def test_a_mapping_is_as_a_file() -> None:
    assert InferixProfiler({"profiling": {"enabled": True}}).settings == Settings(enabled=True)
    with pytest.raises(BakeoffError, match="unknown key 'enable'"):
        InferixProfiler({"enable": True})


def test_a_config_that_is_changed_counts_from_the_next_session(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    profiler = InferixProfiler(config, device="")
    config.profile_diffusion_steps = False
    config.session_tags = {"experiment": "two"}
    with profiler.session("changed", {"seed": 3}):
        profiler.record_diffusion_step(0, 1000, 3, 5)
    record = record_of(profiler)
    assert record.steps == ()
    assert record.tags == {"experiment": "two", "seed": 3}


def test_metadata_is_told_when_it_changes(profiler: InferixProfiler) -> None:
    with profiler.session("metadata"):
        for size in (1, 1, 1, 2):
            with profiler.stage("decode", {"batch_size": size}):
                pass
    assert [event.data["batch_size"] for event in events(profiler, "stage_metadata")] == [1, 2]


@pytest.mark.parametrize("frames", [-1, 1.5, "twelve"])
def test_frames_of_a_block_are_a_whole_number(frames: Any, tmp_path: Path) -> None:
    with pytest.raises(BakeoffError) as found:
        InferixProfiler(config_in(tmp_path), frames_per_block=frames)
    assert found.value.code == "bad-option"
