"""Calls with fresh inputs show whether an engine computes or returns stored results, however it binds inputs."""

import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("torch", reason="inputs are tensors")

import torch
from torch import Tensor

from bakeoff.backends.backend import Call, Engine, Outputs
from bakeoff.record.policy import Policy
from bakeoff.worker.checks.fresh_inputs import (
    ChangeableInputs,
    FreshInputsResult,
    HotRound,
    TimedBinding,
    call_with_fresh_inputs,
    fresh_steps,
)
from bakeoff.worker.clocks.clock import TimingConfig
from bakeoff.worker.subject import CHANGES, altered

CALL_S, RECORDING_S = 0.003, 0.2
SIZE = 1021
"""Elements of outputs that are counted."""


def computed(inputs: Mapping[str, Tensor]) -> Outputs:
    time.sleep(CALL_S)
    return (inputs["x"] * 2,)


@dataclass
class Recording(Engine):
    """Takes many calls' time to record a set of inputs, when it is bound or first called, as capturing does."""

    states_capture: bool
    in_bind: bool
    replay: Callable[[Mapping[str, Tensor]], Outputs] = computed
    recorded: list[str] = field(default_factory=list)

    def bind(self, inputs: Mapping[str, Tensor]) -> Call:
        pending = [inputs]

        def record() -> None:
            time.sleep(RECORDING_S)
            self.recorded.append("in bind" if self.in_bind else "at the first call")
            pending.clear()

        def call() -> Outputs:
            if pending:
                record()
            return self.replay(inputs)

        if self.in_bind:
            record()
        return call

    def captures(self) -> bool:
        return self.states_capture


def tried(engine: Engine) -> FreshInputsResult:
    sets = [{"x": torch.full((4,), float(number))} for number in (1, 2)]
    return call_with_fresh_inputs(engine, sets, TimingConfig("cpu", Policy(), lambda _index, _outputs: None), 0)


@pytest.mark.parametrize("in_bind", [True, False])
def test_an_engine_that_records_is_bound_once_and_timed_by_replays(in_bind: bool) -> None:
    engine = Recording(states_capture=True, in_bind=in_bind)
    result = tried(engine)
    assert result.problem is None
    assert result.alarms() == []
    assert engine.recorded == ["in bind" if in_bind else "at the first call"]
    assert torch.equal(result.outputs[0], torch.full((4,), 4.0))
    assert not any(entry.repeats for entry in result.fresh)
    assert all(entry.repeats for entry in result.known)


@pytest.mark.parametrize(("in_bind", "fact"), [(True, "bind"), (False, "the first call")])
def test_an_engine_that_does_not_state_its_capture_is_bound_again_and_reported(in_bind: bool, fact: str) -> None:
    engine = Recording(states_capture=False, in_bind=in_bind)
    (alarm,) = tried(engine).alarms()
    assert alarm.code == "memoised"
    assert fact in alarm.text
    assert len(engine.recorded) == 2 * 9, "it is tried once more before it is reported"


def test_an_engine_that_records_and_stores_results_is_reported() -> None:
    kept: list[Tensor] = []

    def replay(inputs: Mapping[str, Tensor]) -> Outputs:
        if not kept and float(inputs["x"][0]) == 2.0:
            kept.append(inputs["x"] * 2)
        return (kept[0] if kept else inputs["x"] * 2,)

    (alarm,) = tried(Recording(states_capture=True, in_bind=True, replay=replay)).alarms()
    assert alarm.code == "memoised"
    assert "identical outputs" in alarm.text


def tried_hot(compute: Callable[[Mapping[str, Tensor]], Outputs]) -> FreshInputsResult:
    """With changed values for the first set, so that they are tried on a hot binding too."""

    @dataclass
    class InPlace(Engine):
        def bind(self, inputs: Mapping[str, Tensor]) -> Call:
            return lambda: compute(inputs)

    sets = [{"x": torch.full((4,), float(number))} for number in (1, 2)]
    engine = InPlace()
    changed = ChangeableInputs(0, engine.bind(sets[0]), sets[0], {"x": torch.full((4,), 7.0)})
    config = TimingConfig("cpu", Policy(), lambda _index, _outputs: None)
    return call_with_fresh_inputs(engine, sets, config, 0, [changed])


def test_a_hot_binding_that_computes_is_left_alone_and_ends_with_the_changed_values() -> None:
    calls = [0]

    def compute(inputs: Mapping[str, Tensor]) -> Outputs:
        calls[0] += 1
        return computed(inputs)

    result = tried_hot(compute)
    assert result.problem is None
    assert result.hot_outputs is not None
    assert torch.equal(result.hot_outputs[0], torch.full((4,), 14.0))
    assert calls[0] > 4 * 20


def test_results_stored_for_unmoved_versions_are_found_when_hot() -> None:
    """After eight calls on one version every output is still right, but not computed."""
    state: list[object] = [None, 0, ()]

    def compute(inputs: Mapping[str, Tensor]) -> Outputs:
        version = (id(inputs["x"]), inputs["x"]._version)
        state[:2] = [version, int(str(state[1])) + 1 if version == state[0] else 1]
        if int(str(state[1])) <= 8:
            state[2] = computed(inputs)
        return tuple(output.clone() for output in state[2])  # type: ignore[attr-defined]

    (alarm,) = tried_hot(compute).alarms()
    assert alarm.code == "memoised"
    assert "after many calls" in alarm.text


def test_outputs_that_stay_when_inputs_change_on_a_hot_binding_are_found() -> None:
    made: dict[float, int] = {}
    stored: list[Tensor] = []

    def compute(inputs: Mapping[str, Tensor]) -> Outputs:
        """Computes as long as no values were seen more than 15 times."""
        made[float(inputs["x"][0])] = made.get(float(inputs["x"][0]), 0) + 1
        if max(made.values()) <= 15 or not stored:
            stored[:] = [inputs["x"] * 2]
        return (stored[0].clone(),)

    (alarm,) = tried_hot(compute).alarms()
    assert alarm.code == "memoised"
    assert "identical outputs" in alarm.text


def timed(binding_ms: float, hot_ms: float, changed_ms: float) -> FreshInputsResult:
    """Calls on eight bindings, and in four rounds on a hot one."""
    first, again, typical, changed = (round(1e6 * ms) for ms in (binding_ms, binding_ms, hot_ms, changed_ms))
    bindings = (TimedBinding(1000, first, again, repeats=False),) * 8
    hot = (HotRound(typical, typical, changed, repeats=False),) * 2  # too few to compare known with new values
    return FreshInputsResult((), bindings[:4], bindings[4:], hot)


def test_threads_that_wake_late_after_a_pause_are_no_stored_results() -> None:
    assert timed(binding_ms=64, hot_ms=0.1, changed_ms=0.12).problem is None


def test_calls_that_are_fast_on_unchanged_values_only_are_found() -> None:
    assert "repeated ones" in str(timed(binding_ms=64, hot_ms=0.1, changed_ms=60).problem)


def hot_rounds(*calls_us: tuple[int, int]) -> FreshInputsResult:
    """Rounds on a hot binding, each with a call on known and one on new values."""
    bindings = (TimedBinding(1000, 100_000, 100_000, repeats=False),) * 8
    rounds = ((90_000, 1000 * known, 1000 * changed) for known, changed in (*calls_us, (100, 100)))
    hot = tuple(HotRound(*times, repeats=False) for times in rounds)
    return FreshInputsResult((), bindings[:4], bindings[4:], hot)


def test_a_machine_that_changes_its_speed_makes_no_stored_results() -> None:
    """As a restless machine timed them: two of seven known calls fell into its fast moments, and no new one did."""
    calls = ((117, 94), (65, 92), (118, 95), (117, 93), (66, 94), (119, 96), (121, 92))
    assert hot_rounds(*calls).problem is None


def test_new_values_that_take_longer_in_most_rounds_are_found() -> None:
    calls = ((65, 94), (65, 92), (180, 95), (66, 93), (170, 94), (64, 96), (65, 92))
    assert "after many calls" in str(hot_rounds(*calls).problem)


KNOWN, NEW = (50, 60, 100, 150), (110, 180, 180, 190)
"""Microseconds of calls in turn."""


def test_a_problem_tells_the_times_that_decided() -> None:
    """Not the medians, which are 80 and 180 us here, and 65 and 94 when hot."""
    known, new = ([TimedBinding(1000, us * 1000, 10**5, repeats=False) for us in all_us] for all_us in (KNOWN, NEW))
    text = str(FreshInputsResult((), tuple(known), tuple(new)).problem)
    assert "0.0600 ms" in text
    assert "0.1100 ms" in text
    pairs = ((65, 94), (65, 92), (180, 95), (66, 93), (170, 94), (64, 96), (65, 98))
    hot = str(hot_rounds(*pairs).problem)
    assert "0.0650 ms" in hot
    assert "0.0920 ms" in hot


@pytest.mark.parametrize("passing", [True, False])
def test_times_alone_are_tried_twice_before_they_are_reported(passing: bool) -> None:
    """New values take longer in the first attempt only, which has 13 different ones, or for good."""
    seen: set[float] = set()

    def compute(inputs: Mapping[str, Tensor]) -> Outputs:
        value = float(inputs["x"].sum())
        if value not in seen and not (passing and len(seen) >= 13):
            time.sleep(CALL_S)
        seen.add(value)
        return (inputs["x"] * 2,)

    assert (tried_hot(compute).problem is None) == passing


def test_steps_of_new_values_follow_from_the_seed_and_differ_in_bf16() -> None:
    drawn = {seed: [*fresh_steps(seed, 0), *fresh_steps(seed, 1)] for seed in range(50)}
    for seed, steps in drawn.items():
        assert [*fresh_steps(seed, 0), *fresh_steps(seed, 1)] == steps
        assert len(steps) == 2 * 8
        ordered = sorted(steps)
        assert ordered[0] >= 2.5 / 128
        assert ordered[-1] <= 33.5 / 128
        assert min(after - before for before, after in pairwise(ordered)) >= 1 / 128
        assert min(abs(1 - step - change) for step in steps for change in CHANGES) >= 1 / 256
    every = [step for steps in drawn.values() for step in steps]
    assert len(set(every)) == len(every), "no value of one seed is one of another's"


def test_integers_change_to_other_ones_with_each_step() -> None:
    """By a draw for each, not by one of the few that its size in 128ths would give."""
    ids = torch.arange(1000)
    scales = [1 + sign * step for seed in range(5) for step in fresh_steps(seed, 0) for sign in (-1, 1)]
    changed = [altered({"ids": ids}, scale)["ids"] for scale in scales]
    assert len({tuple(one.tolist()) for one in changed}) >= 0.9 * len(scales)
    assert all(torch.equal(one[1::2], ids[1::2]) and set(one.tolist()) <= set(ids.tolist()) for one in changed)
    assert torch.equal(altered({"ids": ids}, scales[0])["ids"], changed[0]), "the same in each process"
    assert torch.equal(altered({"one": ids[:1]}, scales[0])["one"], ids[:1])
    for period in (2, 3):
        assert all(not torch.equal(altered({"ids": ids % period}, scale)["ids"], ids % period) for scale in scales)


def test_few_copies_of_outputs_are_held_at_a_time() -> None:
    """The first one, to compare others with, and those of two calls; each is counted while a call runs."""
    alive: list[weakref.ref[Tensor]] = []
    most = [0]
    clone = Tensor.clone

    def counted(tensor: Tensor, **options: Any) -> Tensor:
        made = clone(tensor, **options)
        if made.numel() == SIZE:
            alive.append(weakref.ref(made))
            most[0] = max(most[0], sum(entry() is not None for entry in alive))
        return made

    def compute(inputs: Mapping[str, Tensor]) -> Outputs:
        return (torch.full((SIZE,), float(inputs["x"].sum())),)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "clone", counted)
        result = tried_hot(compute)
    assert result.problem is None
    assert len(alive) > 9
    assert most[0] <= 3
