"""Decorators with Inferix' names: where they find a profiler, what they wrap, and what becomes of errors."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from answers import present
from guide_runs import events, paths, profiler_in, record_of

from bakeoff.models.errors import BakeoffError
from bakeoff.profile import (
    InferixProfiler,
    add_profiling_event,
    profile_block_computation,
    profile_diffusion_step,
    profile_method,
    profile_model_parameters,
    profile_session,
)
from bakeoff.profile.session import Session, current


class Pipeline:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    @profile_session("run", {"mode": "t2v"})
    def run(self, blocks: int = 1) -> int:
        for _ in range(blocks):
            self.decode()
        return blocks

    @profile_method()
    def decode(self) -> bool:
        return current().is_open


@pytest.mark.parametrize("name", ["profiler", "_profiler"])
def test_the_profiler_of_self_is_found(name: str, profiler: InferixProfiler) -> None:
    assert Pipeline(**{name: profiler}).run(2) == 2
    (decoded,) = [each for each in record_of(profiler).ranges if each.path == ("decode",)]
    assert decoded.calls == 2


def test_a_pipeline_that_is_disabled_records_nothing(profiler: InferixProfiler) -> None:
    profiler.install()
    assert Pipeline(_profiler=profiler, _profiling_enabled=False).run() == 1
    assert profiler.last_session is None


def test_a_callback_that_raises_becomes_an_event(profiler: InferixProfiler) -> None:
    class Wrong:
        _profiler = profiler

        @add_profiling_event("event", lambda result: {"shape": result.shape})
        def method(self) -> int:
            return 1

        @profile_diffusion_step(lambda args, _kwargs: {"step": args[0]})
        def step(self, step: int) -> int:
            return step

        @profile_diffusion_step(lambda _args, _kwargs: {"timestep": 3})
        def without(self) -> int:
            return 2

        @profile_block_computation(lambda args, _kwargs: {"block_index": args[5]})
        def block(self) -> int:
            return 3

        @profile_model_parameters()
        def model(self) -> int:
            return 4

    wrong = Wrong()
    with profiler.session("wrong"):
        assert [wrong.method(), wrong.step(step=7), wrong.without(), wrong.block(), wrong.model()] == [1, 7, 2, 3, 4]
    assert all(event.failed for event in record_of(profiler).events)
    assert "AttributeError" in str(events(profiler, "event")[0].data["error"])
    assert ["IndexError" in str(event.data["error"]) for event in events(profiler, "diffusion_step")] == [True, False]
    assert "'step'" in str(events(profiler, "diffusion_step")[1].data["error"])
    assert "IndexError" in str(events(profiler, "block_computation")[0].data["error"])
    assert "'parameters_count'" in str(events(profiler, "model_parameters")[0].data["error"])
    assert {("step",), ("without",), ("block",)} <= paths(profiler)


def test_steps_are_measured(profiler: InferixProfiler) -> None:
    @profile_diffusion_step(
        lambda args, _kwargs: {"step": args[0], "timestep": 500, "block_size": 3, "guidance_scale": 6}
    )
    def step(_index: int) -> None:
        time.sleep(0.005)

    profiler.install()
    with profiler.session("steps"):
        for _ in range(2):
            for index in range(3):
                step(index)
    record = record_of(profiler)
    assert [(each.index, each.timestep, each.calls) for each in record.steps] == [(0, 500, 2), (1, 500, 2), (2, 500, 2)]
    assert sum(each.ns for each in record.steps) >= 6 * 4_900_000
    found = present(profiler.diffusion_analyzer.get_diffusion_analysis())
    assert (found["total_steps"], found["total_blocks"], found["total_latent_frames"]) == (6, 2, 6)
    assert found["total_computation_time_ms"] == pytest.approx(sum(each.ns for each in record.steps) / 1e6)
    assert [each.greatest for each in record.series if each.name == "guidance_scale"] == [6]


class FakeDevice:
    """A clock of a device whose times are read at the end."""

    error, unread = "", 0

    def mark(self) -> object:
        return object()

    def took(self, stage: Any, begin: object, end: object) -> None:
        del begin, end
        stage.device_ns = (stage.device_ns or 0) + 7

    def read(self, wait: bool = False) -> None:
        del wait


def test_launch_times_are_not_given_as_times_of_a_device(
    profiler: InferixProfiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "_device_clock", lambda _self: FakeDevice())

    @profile_diffusion_step(lambda args, _kwargs: {"step": args[0], "block_size": 3})
    def step(_index: int) -> None:
        return None

    profiler.install()
    with profiler.session("device"):
        step(0)
        step(1)
    told = present(profiler.diffusion_analyzer.get_diffusion_analysis())
    assert (told["total_steps"], told["total_computation_time_ms"], told["rate"]) == (2, None, None)
    (found,) = [each for each in record_of(profiler).ranges if each.kind == "step"]
    assert (found.calls, found.device_ns) == (2, 14)


def test_a_block_without_a_time_of_the_caller_is_measured(tmp_path: Path) -> None:
    profiler = profiler_in(tmp_path, frames_per_block=12)

    class Blocks:
        _profiler = profiler

        @profile_block_computation(lambda args, _kwargs: {"block_index": args[0], "block_size": 3})
        def block(self, _index: int) -> None:
            time.sleep(0.005)

    with profiler.session("blocks"):
        for index in range(4):
            Blocks().block(index)
    (units,) = record_of(profiler).units
    assert (units.count, units.frames, units.latents) == (4, 48, 12)
    assert units.least_ns >= 4_900_000
    found = present(profiler.diffusion_analyzer.get_block_analysis())
    assert found["total_computation_time_ms"] == pytest.approx(units.wall_ns / 1e6)
    assert found["total_frames"] == 48


def test_arguments_reach_a_callback_by_position_or_by_name(profiler: InferixProfiler) -> None:
    class Loads:
        _profiler = profiler

        @add_profiling_event("by position", lambda _result, path: {"path": path})
        def one(self, path: str) -> None: ...

        @add_profiling_event("by name", lambda _result, **named: {"path": named["path"], "strict": named["strict"]})
        def two(self, path: str, *, strict: bool) -> None: ...

    with profiler.session("loads"):
        Loads().one("a.pt")
        Loads().two("b.pt", strict=True)
    assert events(profiler, "by position")[0].data == {"path": "a.pt"}
    assert events(profiler, "by name")[0].data == {"path": "b.pt", "strict": True}


def frames() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: profile_method(frames),  # type: ignore[arg-type]
        lambda: profile_session(""),
        lambda: add_profiling_event("event", {"not": "callable"}),  # type: ignore[arg-type]
        lambda: profile_diffusion_step("step"),  # type: ignore[arg-type]
        lambda: profile_method("name")(3),  # type: ignore[type-var]
        lambda: profile_session("name")(property(frames)),  # type: ignore[type-var]
        lambda: profile_diffusion_step()(frames),
        lambda: profile_block_computation()(frames),
    ],
)
def test_wrong_use_is_refused_where_a_decorator_is_applied(wrong: Any) -> None:
    with pytest.raises(BakeoffError) as found:
        wrong()
    assert found.value.code == "bad-option"
