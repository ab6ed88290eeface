"""A unit of the toy loop on eager engines: what its time and its bytes are counted as, and where it starts."""

import pytest

pytest.importorskip("torch", reason="workers need it")

from dataclasses import replace
from typing import Any

import eager_loops
import torch
import toy_loops as toy
from eager_loops import eager_runner, module
from mixes import loop_of
from wrong_loops import Wrapped

from bakeoff import profile
from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import OPENING, Key
from bakeoff.models.signature import Constant, Entries, Signature, TensorLeaf
from bakeoff.process.jobs import DescribeLoopJob
from bakeoff.worker.pipeline import clocks
from bakeoff.worker.pipeline.clocks import ToldClock
from bakeoff.worker.pipeline.describe import describe_loop
from bakeoff.worker.pipeline.parity import first_units


def test_what_a_program_is_fed_is_no_time_of_its_own() -> None:
    runner, order = eager_runner("toy_loops:Toy", loop_of("toy_loops:Toy")), list[int]()
    runner.open()
    with runner.account.timed_by(lambda clock, _segments: ToldClock(clock, tuple, order.append, tuple)):
        runner.unit()
    known = list(runner.account.segments)
    segments = [known[index] for index in order]
    called = [place for place, segment in enumerate(segments) if segment.program]
    assert [segments[place].program for place in called] == ["world", "world", "stream"]
    assert [segments[place - 1].line for place in called] == ["copies"] * 3


class ByRanges(Wrapped):
    """Phases are marked by code that knows no loop."""

    def phase(self, name: str, **about: Any) -> Any:  # noqa: ARG002  # as a run's
        return profile.phase(name)


def test_ranges_of_sessions_are_lines_of_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, right, inside = eager_runner("toy_loops:Toy", loop_of("toy_loops:Toy")), toy.Toy.step, list[object]()
    world = module("toy", "tiny", "world")
    monkeypatch.setattr(type(world), "forward", seen(type(world).forward, inside))
    runner.open()
    expected = runner.unit()
    monkeypatch.setattr(toy.Toy, "step", lambda self, *of: right(self, *of[:2], ByRanges(of[2], {})))
    found = runner.unit()
    assert {one for one, ns in found.segments.items() if ns} == {one for one, ns in expected.segments.items() if ns}
    assert sum(found.segments.values()) == found.wall_ns
    assert set(inside) == {profile.NO_SESSION}


def seen(function: Any, sessions: list[object]) -> Any:
    """The function, which notes the session that it is called in."""

    def noted(*args: Any, **kwargs: Any) -> Any:
        sessions.append(profile.current())
        return function(*args, **kwargs)

    return noted


def test_each_unit_starts_from_the_state_that_is_given() -> None:
    runner = eager_runner("toy_loops:Toy", loop_of("toy_loops:Toy"))
    runner.open()
    states = [{name: torch.full_like(value, unit + 1) for name, value in runner.state().items()} for unit in range(3)]
    for unit, values in first_units(runner, 3, states.__getitem__):
        if unit != OPENING:
            assert torch.equal(values["state.cache_k"][:, :-16], states[unit]["cache_k"][:, 16:]), unit


def test_a_value_that_a_program_was_given_long_before_is_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place was taken by an output of the program in between."""
    right, zeros = toy.Toy.step, torch.zeros(1, 32, 2, 16, 16)
    caches = iter((zeros, None, zeros))

    def step(self: toy.Toy, state: dict[str, Any], *more: Any) -> Any:
        cache = next(caches)
        return right(self, state if cache is None else {**state, "cache": cache}, *more)

    runner = eager_runner("toy_loops:Toy", loop_of("toy_loops:Toy"))
    monkeypatch.setattr(toy.Toy, "step", step)
    runner.open()
    for _ in range(3):
        runner.unit()
    found = runner.outputs
    video, _ = module("toy", "tiny", "stream")(toy._latent(found["x"]), zeros)
    torch.testing.assert_close(found["video"], video)


def test_an_engine_whose_output_is_memory_of_its_input_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager_loops, "Reusing", lambda _built: lambda *inputs: (inputs[0].view(inputs[0].shape),))
    runner = eager_runner("toy_loops:Toy", loop_of("toy_loops:Toy"))
    runner.open()
    with pytest.raises(BakeoffError, match=r"world\.world: the output velocity is memory of the input x"):
        runner.unit()


def test_a_phase_within_another_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0

    def spend(milliseconds: int) -> None:
        nonlocal now
        now += milliseconds

    def step(_self: toy.Toy, state: Any, _given: Any, run: Any) -> Any:
        with run.phase("outer"):
            spend(1)
            with run.phase("inner"):
                spend(2)
            spend(4)
        spend(8)
        return state, {}

    monkeypatch.setattr(toy.Toy, "step", step)
    monkeypatch.setattr(clocks, "now_ns", lambda: now)
    job = DescribeLoopJob("toy_loops:Toy", "spin", {}, "cpu", 1, 0, "")
    runner = eager_runner("toy_loops:Toy", describe_loop(job, lambda *_: None))
    runner.open()
    segments = runner.unit().segments
    assert {one.line: ns for one, ns in segments.items() if ns} == {"outer": 5, "inner": 2, "glue": 8}


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("other", "phase 'other': the first units have none of that name"),
        ("denoise", "stream.stream is called in phase 'denoise', which the first units did not do"),
    ],
)
def test_what_the_first_units_did_not_do_is_refused(phase: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(_self: toy.Toy, state: Any, _given: Any, run: Any) -> Any:
        with run.phase(phase):
            return state, run.stream.stream(torch.zeros(1, 1, 32, 16, 16), state["cache"])

    runner = eager_runner("toy_loops:Toy", loop_of("toy_loops:Toy"))
    monkeypatch.setattr(toy.Toy, "step", step)
    with pytest.raises(BakeoffError, match="no session is open"):
        runner.unit()
    runner.open()
    with pytest.raises(BakeoffError, match=f"unit 0 of session 0: {said}"):
        runner.unit()


def test_a_plain_value_that_first_occurs_late_is_named_with_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = eager_runner("toy_loops:Toy", loop_of("toy_loops:Toy"))
    bound = runner._feeder.programs[Key("stream", "stream")]
    recorded = Signature(tuple(map(TensorLeaf, bound.port.inputs)), {"quick": Constant(False)})
    result = Entries({name: TensorLeaf(name) for name in bound.built.outputs})
    bound.built = replace(bound.built, call=(recorded, result))

    def step(_self: toy.Toy, state: Any, _given: Any, run: Any) -> Any:
        inputs = [torch.zeros(shape) for shape in bound.shapes]
        with run.phase("decode"):
            return state, {"video": run.stream(*inputs, quick=run.next_unit == 20)["video"]}

    monkeypatch.setattr(toy.Toy, "step", step)
    runner.open()
    for _ in range(20):
        runner.unit()
    with pytest.raises(BakeoffError, match=r"unit 20 of session 0: slot stream .* now with \[1, .*\], True; let every"):
        runner.unit()
