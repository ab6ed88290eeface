"""Calls with fresh inputs show whether an engine computes or returns stored results, however it binds inputs."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

pytest.importorskip("torch", reason="inputs are tensors")

import torch
from torch import Tensor

from bakeoff.backends.backend import Call, Engine, Outputs
from bakeoff.record.policy import Policy
from bakeoff.worker.checks.fresh_inputs import FreshInputsResult, call_with_fresh_inputs
from bakeoff.worker.clocks.clock import TimingConfig

CALL_S, RECORDING_S = 0.003, 0.03


def computed(inputs: Mapping[str, Tensor]) -> Outputs:
    time.sleep(CALL_S)
    return (inputs["x"] * 2,)


@dataclass
class Recording(Engine):
    """Takes ten calls' time to record a set of inputs, when it is bound or first called, as capturing does."""

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
    return call_with_fresh_inputs(engine, sets, TimingConfig("cpu", Policy(), lambda _index, _outputs: None))


@pytest.mark.parametrize("in_bind", [True, False])
def test_an_engine_that_records_is_bound_once_and_timed_by_replays(in_bind: bool) -> None:
    engine = Recording(states_capture=True, in_bind=in_bind)
    result = tried(engine)
    assert result.problem is None
    assert result.alarms() == []
    assert engine.recorded == ["in bind" if in_bind else "at the first call"]
    assert torch.equal(result.outputs[0], torch.full((4,), 4.0))
    assert len({float(entry.outputs[0][0]) for entry in result.fresh}) == len(result.fresh)


@pytest.mark.parametrize(("in_bind", "fact"), [(True, "bind"), (False, "the first call")])
def test_an_engine_that_does_not_state_its_capture_is_bound_again_and_reported(in_bind: bool, fact: str) -> None:
    engine = Recording(states_capture=False, in_bind=in_bind)
    (alarm,) = tried(engine).alarms()
    assert alarm.code == "unseen"
    assert fact in alarm.text
    assert len(engine.recorded) == 9


def test_an_engine_that_records_and_stores_results_is_reported() -> None:
    kept: list[Tensor] = []

    def replay(inputs: Mapping[str, Tensor]) -> Outputs:
        if not kept and float(inputs["x"][0]) == 2.0:
            kept.append(inputs["x"] * 2)
        return (kept[0] if kept else inputs["x"] * 2,)

    (alarm,) = tried(Recording(states_capture=True, in_bind=True, replay=replay)).alarms()
    assert alarm.code == "unseen"
    assert "identical outputs" in alarm.text
