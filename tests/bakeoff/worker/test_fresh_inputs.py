"""Whether an engine computes is told from calls on inputs that it has not seen, however it takes them in."""

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
from bakeoff.worker.clocks.timing import TimingConfig

CALL_S, RECORDING_S = 0.003, 0.03


def computed(inputs: Mapping[str, Tensor]) -> Outputs:
    time.sleep(CALL_S)
    return (inputs["x"] * 2,)


@dataclass
class Recording(Engine):
    """Takes ten calls' time to record a set of inputs, when it is bound or first called, as capturing does."""

    says: bool
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
        return self.says


def tried(engine: Engine) -> FreshInputsResult:
    sets = [{"x": torch.full((4,), float(number))} for number in (1, 2)]
    return call_with_fresh_inputs(engine, sets, TimingConfig("cpu", Policy(), lambda _index, _outputs: None))


@pytest.mark.parametrize("in_bind", [True, False])
def test_an_engine_that_records_is_bound_once_and_timed_by_replays(in_bind: bool) -> None:
    engine = Recording(says=True, in_bind=in_bind)
    unseen = tried(engine)
    assert unseen.alarm == ""
    assert engine.recorded == ["in bind" if in_bind else "at the first call"]
    assert torch.equal(unseen.outputs[0], torch.full((4,), 4.0))
    assert len({float(entry.outputs[0][0]) for entry in unseen.fresh}) == len(unseen.fresh)


@pytest.mark.parametrize(("in_bind", "alarm"), [(True, "it computes in bind"), (False, "it remembers")])
def test_one_that_says_nothing_of_it_is_bound_anew_and_found_out(in_bind: bool, alarm: str) -> None:
    engine = Recording(says=False, in_bind=in_bind)
    assert tried(engine).alarm.endswith(alarm)
    assert len(engine.recorded) == 9


def test_recording_is_no_excuse_for_remembering() -> None:
    kept: list[Tensor] = []

    def replay(inputs: Mapping[str, Tensor]) -> Outputs:
        if not kept and float(inputs["x"][0]) == 2.0:
            kept.append(inputs["x"] * 2)
        return (kept[0] if kept else inputs["x"] * 2,)

    assert tried(Recording(says=True, in_bind=True, replay=replay)).alarm.endswith("it returns what it remembers")
