"""A unit of the toy loop on eager engines: what its time and its bytes are counted as, and where it starts."""

import pytest

pytest.importorskip("torch", reason="workers need it")

import torch
from eager_loops import eager_runner

from bakeoff.models.pipelines import resolve_pipeline
from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.worker.pipeline.clocks import RecordingClock, UnitClock
from bakeoff.worker.pipeline.parity import OPENED, first_units


def toy() -> Loop:
    pipeline = resolve_pipeline("toy")
    return pipeline.loop(pipeline.preset("tiny"), pipeline.options())


def test_what_a_program_is_fed_is_no_time_of_its_own() -> None:
    runner, clocks = eager_runner(toy()), []

    def recording(clock: UnitClock, segments: int) -> UnitClock:
        clocks.append(RecordingClock(clock, segments))
        return clocks[-1]

    runner.open()
    with runner.timed_by(recording):
        runner.unit()
    segments = [runner.segments()[index] for index in clocks[0].order]
    called = [place for place, segment in enumerate(segments) if segment.program]
    assert [segments[place].program for place in called] == ["world", "world", "stream"]
    assert [segments[place - 1].line for place in called] == ["copies"] * 3


def test_each_unit_starts_from_the_state_that_is_given() -> None:
    loop = toy()
    runner = eager_runner(loop)
    runner.open()
    states = [{name: torch.full_like(value, unit + 1) for name, value in runner.state().items()} for unit in range(3)]
    for unit, values in first_units(runner, loop, 3, states.__getitem__):
        if unit != OPENED:
            assert torch.equal(values["state.cache_k"][:, :-16], states[unit]["cache_k"][:, 16:]), unit
