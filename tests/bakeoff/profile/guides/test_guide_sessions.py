"""`InferixProfiler`: each fault of Inferix' own profiler, and what is right instead."""

import time
import warnings
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest
from guide_runs import config_in, events, paths, profiler_in, record_of

from bakeoff.models.errors import BakeoffError
from bakeoff.profile import InferixProfiler, Settings
from bakeoff.profile.counts import StreamCount
from bakeoff.profile.session import NO_SESSION, Session
from bakeoff.record.session import SessionRecord


def test_a_second_session_holds_nothing_of_the_first(profiler: InferixProfiler) -> None:
    for place in range(2):
        with profiler.session(f"prompt {place}"):
            profiler.record_diffusion_step(place, 1000, 3, 5)
            profiler.record_block_computation(place, 3, 25, 100 + place)
            profiler.record_dropped_frames(1)
            profiler.add_event(f"event {place}")
            with profiler.stage(f"stage {place}"):
                pass
    record = record_of(profiler)
    assert (record.name, [step.index for step in record.steps]) == ("prompt 1", [1])
    assert sum(units.count for units in record.units) == 1
    assert paths(profiler) == {(), ("stage 1",)}
    assert not events(profiler, "event 0")
    assert events(profiler, "streaming_analysis")[0].data["dropped_frames"] == 1
    assert [series.count for series in record.series if series.name == "block.memory"] == [1]


def test_a_session_that_was_not_ended_is_ended_by_the_next(profiler: InferixProfiler, tmp_path: Path) -> None:
    profiler.start_session("first")
    profiler.record_diffusion_step(0, 1000, 3, 5)
    with pytest.warns(UserWarning, match="'first' had not ended when 'second' started"):
        profiler.start_session("second")
    assert profiler.end_session() == "second"
    assert profiler.end_session() is None
    records = [
        msgspec.json.decode(path.read_bytes(), type=SessionRecord)
        for path in (tmp_path / "reports").glob("*.session.json")
    ]
    assert {record.name: len(record.steps) for record in records} == {"first": 1, "second": 0}


def test_a_session_within_a_session_is_a_stage_of_it(profiler: InferixProfiler) -> None:
    with profiler.session("outer"), profiler.session("inner", {"mode": "i2v"}) as session:
        profiler.add_event("within")
        assert isinstance(session, Session)
        assert session.name == "outer"
    assert record_of(profiler).name == "outer"
    assert ("inner",) in paths(profiler)
    assert events(profiler, "session_in_session")[0].data == {"session": "inner", "mode": "i2v"}
    assert events(profiler, "within")


def fail() -> None:
    raise ValueError("no prompt")


def test_a_session_that_fails_says_so(profiler: InferixProfiler) -> None:
    with pytest.raises(ValueError, match="no prompt"), profiler.session("with"):
        fail()
    assert record_of(profiler).status == "failed: ValueError: no prompt"


def test_a_session_that_ends_in_a_finally_says_so_too(profiler: InferixProfiler) -> None:
    def generate() -> None:
        profiler.start_session("finally")
        try:
            fail()
        finally:
            profiler.end_session()

    with pytest.raises(ValueError, match="no prompt"):
        generate()
    assert record_of(profiler).status == "failed: ValueError: no prompt"


def test_a_profiler_that_is_left_with_an_exception_says_so_too(profiler: InferixProfiler) -> None:
    def generate() -> None:
        with profiler:
            profiler.start_session("left")
            fail()

    with pytest.raises(ValueError, match="no prompt"):
        generate()
    assert record_of(profiler).status == "failed: ValueError: no prompt"
    assert profiler.current_session is None


def test_an_exception_from_before_a_session_is_not_its_failure(profiler: InferixProfiler) -> None:
    try:
        fail()
    except ValueError:
        profiler.start_session("again")
        profiler.end_session()
    assert record_of(profiler).status == "ok"


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


def test_the_count_of_steps_outside_sessions_is_told_by_the_next(profiler: InferixProfiler) -> None:
    for step in range(4):
        profiler.record_diffusion_step(step, 1000, 3, 5)
    profiler.record_dropped_frames(2)
    with profiler.session("next"):
        pass
    (told,) = events(profiler, "recorded_outside_sessions")
    assert told.data == {"steps": 4, "dropped_frames": 2}
    assert record_of(profiler).steps == ()
    with profiler.session("one after"):
        pass
    assert not events(profiler, "recorded_outside_sessions")


def test_parameters_do_not_add_up_over_prompts(profiler: InferixProfiler) -> None:
    """Inferix: three prompts, three times the parameters."""
    for _ in range(3):
        with profiler.session("prompt"):
            profiler.record_model_parameters("wm", 1_300_000_000, "diffusion")
    with profiler.session("last"):
        pass
    assert [(model.name, model.count) for model in record_of(profiler).parameters] == [("wm", 1_300_000_000)]
    found = profiler.diffusion_analyzer.get_model_analysis()
    assert found is not None
    assert found["total_parameters"] == 1_300_000_000


@pytest.mark.parametrize("batches", [2, 10])
def test_a_stream_of_24_frames_a_second_is_one(batches: int, tmp_path: Path) -> None:
    """Inferix counts N batches over N - 1 gaps: 48 with two, 26.7 with ten."""
    profiler, now = profiler_in(tmp_path), [10**9]
    profiler.clock = lambda: now[0]
    with profiler.session("stream"):
        for _ in range(batches):
            now[0] += round(1e9 / 24)
            profiler.record_streaming_event(1, 3.0, 20.0, 50.0)
        profiler.record_dropped_frames(batches)
    (told,) = events(profiler, "streaming_analysis")
    assert told.data["fps"] == pytest.approx(24, rel=1e-6)
    assert (told.data["frames"], told.data["drop_share"]) == (batches, 0.5)
    assert {(each.name, each.unit, each.count) for each in record_of(profiler).series} == {
        ("stream.encoding", "ms", batches),
        ("stream.network", "ms", batches),
        ("stream.buffer", "%", batches),
    }


def test_a_latency_that_is_not_given_is_not_zero(profiler: InferixProfiler) -> None:
    with profiler.session("stream"):
        profiler.record_streaming_event(1, 3.0)
    assert {each.name for each in record_of(profiler).series} == {"stream.encoding"}


def test_a_peak_is_not_lost_among_many_samples(tmp_path: Path) -> None:
    """Inferix drops the oldest samples: a peak of 9,000 becomes 1,000."""
    profiler = profiler_in(tmp_path, max_data_points=5)
    with profiler.session("peak"):
        for place in range(5_000):
            profiler.record_block_computation(place, 3, 25, 9_000 if place == 2 else 1_000)
    (series,) = [each for each in record_of(profiler).series if each.name == "block.memory"]
    assert (series.greatest, series.least, series.count) == (9_000, 1_000, 5_000)
    assert len(series.points) <= 5
    found = profiler.diffusion_analyzer.get_block_analysis()
    assert found is not None
    assert found["peak_memory_usage_mb"] == 9_000


@pytest.mark.parametrize(
    ("name", "call", "said"),
    [
        ("diffusion_step", lambda it: it.record_diffusion_step(-1, 1000, 3, 5), "step is -1"),
        ("diffusion_step", lambda it: it.record_diffusion_step(0, 1000, 3, None), "computation_time_ms is None"),
        (
            "block_computation",
            lambda it: it.record_block_computation(0, 3, float("nan"), 1),
            "computation_time_ms is nan",
        ),
        ("block_computation", lambda it: it.record_block_computation(0, 3, 25, "much"), "memory_usage_mb is much"),
        ("block_computation", lambda it: it.record_block_computation(0, 3, 1e18, 1), "computation_time_ms is 1e+18"),
        (
            "block_computation",
            lambda it: it.record_block_computation(0, 10**18, 25, 1),
            "block_size is 1000000000000000000",
        ),
        ("model_parameters", lambda it: it.record_model_parameters("wm", -5, ""), "parameters_count is -5"),
        ("streaming_event", lambda it: it.record_streaming_event(None, 1), "batch_size is None"),
        ("dropped_frames", lambda it: it.record_dropped_frames(-1), "count is -1"),
    ],
)
def test_a_wrong_value_is_an_event_and_raises_nothing(
    name: str, call: Any, said: str, profiler: InferixProfiler
) -> None:
    with profiler.session("wrong"):
        call(profiler)
    (told,) = events(profiler, name)
    assert told.failed
    assert said in str(told.data["error"])


class OnDevice:
    """A timestep on a GPU: reading it would wait for the device."""

    device = "cuda:0"
    shape = ()
    dtype = "torch.int64"

    def __float__(self) -> float:
        raise AssertionError("the device was waited for")

    __index__ = __float__


def test_a_timestep_on_a_device_is_not_waited_for(profiler: InferixProfiler) -> None:
    timestep: Any = OnDevice()
    with profiler.session("device"):
        profiler.record_diffusion_step(0, timestep, 3, 5)
    record = record_of(profiler)
    assert [(step.index, step.timestep, step.calls) for step in record.steps] == [(0, None, 1)]
    assert "misused" in {finding.code for finding in record.findings}


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


def test_a_profiler_that_is_off_records_nothing(tmp_path: Path) -> None:
    profiler = InferixProfiler()
    assert profiler.start_session("off") == "off"
    with profiler.stage("stage", {"a": 1}):
        profiler.add_event("event")
        profiler.record_diffusion_step(0, 1000, 3, 5)
        profiler.record_streaming_event(1, 1)
    assert profiler.get_current_metrics() == {}
    profiler.end_session()
    with profiler.session("off") as session:
        assert session is NO_SESSION
    assert profiler.last_session is None
    assert list(tmp_path.iterdir()) == []


def test_a_config_that_is_changed_counts_from_the_next_session(tmp_path: Path) -> None:
    config = config_in(tmp_path)
    profiler = InferixProfiler(config, device="")
    config.profile_diffusion_steps = False
    config.session_tags = {"experiment": "two"}
    profiler.start_session("changed", {"seed": 3, "size": [480, 832]})
    profiler.record_diffusion_step(0, 1000, 3, 5)
    profiler.end_session()
    record = record_of(profiler)
    assert record.steps == ()
    assert record.tags == {"experiment": "two", "seed": 3, "size": "[480, 832]"}


def test_metadata_is_told_when_it_changes(profiler: InferixProfiler) -> None:
    with profiler.session("metadata"):
        for size in (1, 1, 1, 2):
            with profiler.stage("decode", {"batch_size": size}):
                pass
    assert [event.data["batch_size"] for event in events(profiler, "stage_metadata")] == [1, 2]


def test_metrics_are_those_of_the_monitor(profiler: InferixProfiler, monkeypatch: pytest.MonkeyPatch) -> None:
    latest = {"gpu.memory": 8_420.0, "gpu.busy": 85.0, "gpu.memory@GPU-2": 100.0, "cpu.load": 1.5}
    monkeypatch.setattr(Session, "_latest", lambda _self: latest)
    with profiler.session("metrics"):
        profiler.record_block_computation(0, 3, 25, None)
        found = profiler.get_current_metrics()
    assert found.pop("timestamp") == pytest.approx(time.time(), abs=60)
    assert found == {
        "gpu": {"memory_used_mb": 8_420.0, "utilization_percent": 85.0},
        "gpus": {"GPU-2": {"memory_used_mb": 100.0}},
        "cpu": {"load_average_1min": 1.5},
        "rates": {"bps": 40.0},
    }


@pytest.mark.parametrize("frames", [-1, 1.5, "twelve"])
def test_frames_of_a_block_are_a_whole_number(frames: Any, tmp_path: Path) -> None:
    with pytest.raises(BakeoffError) as found:
        InferixProfiler(config_in(tmp_path), frames_per_block=frames)
    assert found.value.code == "bad-option"


def test_no_warning_comes_from_ordinary_use(profiler: InferixProfiler) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        profiler.start_session("one")
        profiler.end_session()
        profiler.start_session("two")
        profiler.cleanup()
    assert record_of(profiler).name == "two"


def test_threads_lose_no_count(profiler: InferixProfiler) -> None:
    def record() -> None:
        for place in range(500):
            profiler.record_dropped_frames()
            profiler.record_block_computation(place, 3, 25, 100)

    profiler.install()
    with profiler.session("threads"):
        threads = [Thread(target=record) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert events(profiler, "streaming_analysis")[0].data["dropped_frames"] == 2_000
    assert sum(units.count for units in record_of(profiler).units) == 2_000
    assert events(profiler, "block_analysis")[0].data["total_blocks"] == 2_000


def test_the_first_batch_was_made_before_the_first_gap() -> None:
    stream = StreamCount()
    for at_s, frames in ((0, 9), (1, 12), (2, 12)):
        stream.deliver(frames, at_s * 10**9)
    assert stream.frames == 33
    assert stream.fps == 12


def test_one_batch_has_no_rate() -> None:
    stream = StreamCount()
    assert (stream.fps, stream.figures()["drop_share"]) == (None, None)
    stream.deliver(12, 1)
    assert stream.fps is None
