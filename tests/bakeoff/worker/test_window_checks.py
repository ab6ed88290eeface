"""Checks within the timed window: engines that compute only when they are looked at are found, correct ones are not."""

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

pytest.importorskip("torch", reason="inputs are tensors")

import torch
from torch import Tensor

from bakeoff.backends.backend import Call, Engine, Outputs
from bakeoff.backends.port import NOTHING_CARRIED, Port, port_buffers
from bakeoff.record.policy import Policy
from bakeoff.worker.checks.fresh_inputs import ChangeableInputs, find_changeable
from bakeoff.worker.checks.outputs import same
from bakeoff.worker.checks.window import WindowChecker
from bakeoff.worker.clocks.clock import TimingConfig
from bakeoff.worker.clocks.timing import Timing, time_calls
from bakeoff.worker.reference.error import Difference, difference

Inputs = Mapping[str, Tensor]
LIMIT = 1e-4


def computed(inputs: Inputs) -> Outputs:
    """The function of every engine here."""
    return (torch.cumsum(inputs["x"], 0) + inputs["x"] ** 2,)


def drawn(seed: int) -> dict[str, Tensor]:
    return {"x": torch.randn(2000, generator=torch.Generator().manual_seed(seed))}


class References:
    """The references of three sets, two of which also have changed values; a Reference without files."""

    def __init__(self) -> None:
        self.sets = [drawn(seed) for seed in range(3)]
        self.changed = [{"x": self.sets[index]["x"] * (1 - 2**-4)} for index in range(2)]

    def differences(self, index: int, outputs: object, _when: str = "") -> list[Difference]:
        return [difference(outputs[0], computed(self.sets[index])[0], torch.float32)]  # type: ignore[index]

    def changed_differences(self, index: int, outputs: object, _when: str = "") -> list[Difference]:
        return [difference(outputs[0], computed(self.changed[index])[0], torch.float32)]  # type: ignore[index]


@dataclass
class InPlace(Engine):
    """Reads its inputs at each call."""

    compute: Callable[[Inputs], Outputs] = computed

    def bind(self, inputs: Inputs) -> Call:
        return lambda: self.compute(inputs)


class Copying(Engine):
    """Copies its inputs when they are bound, and has no port of its own."""

    def bind(self, inputs: Inputs) -> Call:
        kept = {name: tensor.clone() for name, tensor in inputs.items()}
        return lambda: computed(kept)


class CopyingWithPort(Copying):
    def port(
        self,
        inputs: Inputs,
        outputs: Sequence[str],
        carried: Mapping[str, str] = NOTHING_CARRIED,
        shared: bool = False,
    ) -> Port:
        buffers = port_buffers(inputs, shared)
        return Port(buffers, lambda: computed(buffers), outputs, carried)


@dataclass
class Checked:
    """An engine after a timed window."""

    references: References
    sets: list[dict[str, Tensor]]
    changeable: tuple[ChangeableInputs, ...]
    checker: WindowChecker
    timing: Timing
    not_finite: list[int]
    """Sets whose outputs were not finite in a timed call."""

    @property
    def error(self) -> float:
        return (
            math.inf
            if self.not_finite
            else max(entry.rel_l2 for entries in self.checker.differences for entry in entries)
        )


def run(engine: Engine, policy: Policy, seed: int = 0) -> Checked:
    references = References()
    sets = [{name: tensor.clone() for name, tensor in values.items()} for values in references.sets]
    calls = [engine.bind(inputs) for inputs in sets]
    changeable = find_changeable(engine, sets, calls, references.changed, ["y"], references, "cpu")  # type: ignore[arg-type]
    calls = [*(entry.call for entry in changeable), *calls[len(changeable) :]]
    checker = WindowChecker(references, changeable, seed)  # type: ignore[arg-type]
    inputs = tuple(tensor for values in sets for tensor in values.values())
    not_finite: list[int] = []

    def check(index: int, outputs: object) -> None:
        if not torch.isfinite(outputs[0]).all():  # type: ignore[index]
            not_finite.append(index)

    config = TimingConfig("cpu", policy, check, inputs=inputs)
    return Checked(references, sets, changeable, checker, time_calls(calls, dict, config, checker), not_finite)


@pytest.mark.parametrize("engine", [InPlace(), Copying(), CopyingWithPort()], ids=["in place", "copies", "port"])
def test_a_correct_engine_is_left_alone_however_it_reads_its_inputs(engine: Engine, fast: Policy) -> None:
    checked = run(engine, fast, seed=3)
    assert checked.error < LIMIT
    assert checked.checker.problem is None
    made = checked.checker.record
    assert made.changed >= 2
    assert made.compared >= made.changed, "the call after each change is compared too"
    assert made.seed == 3
    assert 0 < made.seconds < 10
    for values, original in zip(checked.sets, checked.references.sets, strict=True):
        assert torch.equal(values["x"], original["x"]), "values are written back"


def test_how_inputs_are_changed_follows_from_what_the_engine_reads(fast: Policy) -> None:
    ways = [run(engine, fast).changeable[0] for engine in (InPlace(), Copying(), CopyingWithPort())]
    assert [entry.rebind is None for entry in ways] == [True, False, True]
    references = References()
    sets = [drawn(seed) for seed in range(3)]
    for engine, own in ((InPlace(), True), (CopyingWithPort(), False)):
        calls = [engine.bind(inputs) for inputs in sets]
        found = find_changeable(engine, sets, calls, references.changed, ["y"], references, "cpu")  # type: ignore[arg-type]
        assert [entry.tensors is sets[entry.index] for entry in found] == [own, own]
        assert [entry.call is calls[entry.index] for entry in found] == [own, own]


def idle_for(gap_s: float) -> Callable[[], bool]:
    ended = [0.0]

    def long() -> bool:
        now = time.perf_counter()
        gap, ended[0] = now - ended[0], now
        return gap > gap_s

    return long


def stale_when_hot() -> Engine:
    """Computes after an idle gap and in the first calls; then it returns what it has stored for the tensors."""
    stored: dict[int, Outputs] = {}
    made: dict[int, int] = {}
    long = idle_for(0.01)

    def compute(inputs: Inputs) -> Outputs:
        key = id(inputs["x"])
        made[key] = made.get(key, 0) + 1
        if long() or made[key] <= 4:
            stored[key] = computed(inputs)
        return (stored[key][0].clone(),)

    return InPlace(compute)


def rough_when_hot() -> Engine:
    long, made = idle_for(0.01), [0]

    def compute(inputs: Inputs) -> Outputs:
        made[0] += 1
        right = computed(inputs)
        return right if long() or made[0] <= 20 else (right[0].bfloat16().float(),)

    return InPlace(compute)


def reuses_every_third() -> Engine:
    stored: dict[int, Outputs] = {}
    made = [0]

    def compute(inputs: Inputs) -> Outputs:
        made[0] += 1
        key = id(inputs["x"])
        if made[0] % 3 or key not in stored:
            stored[key] = computed(inputs)
        return (stored[key][0].clone(),)

    return InPlace(compute)


def returns_one_tensor() -> Engine:
    """Writes its outputs only when an input has a new version, and returns the same tensor again."""
    stored: dict[int, tuple[int, Outputs]] = {}

    def compute(inputs: Inputs) -> Outputs:
        key, version = id(inputs["x"]), inputs["x"]._version
        if key not in stored or stored[key][0] != version:
            stored[key] = version, computed(inputs)
        return stored[key][1]

    return InPlace(compute)


@pytest.mark.parametrize("make", [stale_when_hot, rough_when_hot, reuses_every_third, returns_one_tensor])
@pytest.mark.parametrize("seed", range(4))
def test_an_engine_that_does_less_when_hot_is_found(make: Callable[[], Engine], seed: int, fast: Policy) -> None:
    assert run(make(), fast, seed).error > LIMIT


def test_identical_outputs_for_changed_inputs_are_found_where_the_limit_is_loose(fast: Policy) -> None:
    checked = run(stale_when_hot(), fast)
    assert checked.checker.problem is not None
    assert "identical" in checked.checker.problem


def test_the_calls_of_checks_are_in_no_sample(fast: Policy) -> None:
    """Each changed value makes a call slow; the writing back does not."""
    references = References()
    levels = {float(values["x"][0]) for values in references.changed}

    def compute(inputs: Inputs) -> Outputs:
        if float(inputs["x"][0]) in levels:
            time.sleep(0.02)
        return computed(inputs)

    checked = run(InPlace(compute), replace(fast, min_s=0.2))
    assert checked.checker.record.changed >= 2
    for clock in (checked.timing.latency, checked.timing.throughput):
        assert sorted(clock.samples_ns)[len(clock.samples_ns) // 2] < 0.01e9
    assert checked.timing.calls > checked.timing.latency.calls + checked.timing.throughput.calls


def test_slow_calls_are_checked_a_few_times(fast: Policy) -> None:
    def compute(inputs: Inputs) -> Outputs:
        time.sleep(0.12)
        return computed(inputs)

    checked = run(InPlace(compute), replace(fast, warmup_s=0.0, min_s=0.1, cap_s=0.1, throughput_s=0.1))
    assert checked.checker.record.changed >= 2
    assert checked.checker.record.compared + checked.checker.record.changed <= 10


def test_moments_follow_from_the_seed_alone(fast: Policy) -> None:
    policy = replace(fast, min_s=0.3, cap_s=0.5, throughput_s=0.2)

    def moments(seed: int) -> list[bool]:
        checker = WindowChecker(References(), (), seed)  # type: ignore[arg-type]
        checker.begin(policy, 1e6, 50)
        return [checker.due() for _ in range(500)]

    assert moments(1) == moments(1)
    assert moments(1) != moments(2)
    assert 5 < sum(moments(1)) < 60


def test_outputs_are_the_same_only_bit_for_bit() -> None:
    one = torch.randn(5, generator=torch.Generator().manual_seed(random.Random(0).randrange(100)))
    assert same((one,), (one.clone(),))
    assert not same((one,), (torch.nextafter(one, torch.tensor(math.inf)),))
    assert not same((one, one), (one, one + 1))
    assert not same((None,), (None,))


class TestTimesOfCallsOnNewValues:
    """`complete` compares them with the timed calls, and with calls in turn at the same moments."""

    @staticmethod
    def problem(compute: Callable[[Inputs], Outputs], timed_ns: Sequence[int]) -> str | None:
        references = References()
        engine, sets = InPlace(compute), [dict(values) for values in references.sets]
        calls = [engine.bind(inputs) for inputs in sets]
        changeable = tuple(
            ChangeableInputs(index, calls[index], sets[index], changed)
            for index, changed in enumerate(references.changed)
        )
        checker = WindowChecker(references, changeable, 3)  # type: ignore[arg-type]
        checker.begin_blocks(1e5)
        checker.complete(calls, timed_ns, TimingConfig("cpu", Policy(), lambda _index, _outputs: None))
        return checker.problem

    @staticmethod
    def waiting(inputs: Inputs, wait_ms: float) -> Outputs:
        until = time.perf_counter() + wait_ms / 1e3
        outputs = computed(inputs)
        while time.perf_counter() < until:
            pass
        return outputs

    def test_results_that_are_stored_by_content_are_found(self) -> None:
        stored: dict[float, Outputs] = {}

        def compute(inputs: Inputs) -> Outputs:
            key = float(inputs["x"].sum())
            if key not in stored:
                stored[key] = self.waiting(inputs, 5)
            return (stored[key][0].clone(),)

        for values in References().sets:
            compute(values)
        found = self.problem(compute, [100_000] * 50)
        assert found is not None
        assert "calls on new inputs take" in found

    def test_a_machine_that_has_become_slow_accuses_nobody(self) -> None:
        assert self.problem(lambda inputs: self.waiting(inputs, 5), [100_000] * 50) is None
        assert self.problem(lambda inputs: self.waiting(inputs, 5), [100_000] * 40 + [50_000_000] * 10) is None

    def test_one_call_that_computes_for_all_sets_is_found(self) -> None:
        last: list[int] = []

        def compute(inputs: Inputs) -> Outputs:
            known = inputs["x"].data_ptr() not in last
            last.append(inputs["x"].data_ptr())
            if known and len(last) <= 3:
                return computed(inputs)
            last[:] = last[-1:]
            return self.waiting(inputs, 5)

        found = self.problem(compute, [100_000, 100_000, 5_000_000] * 20)
        assert found is not None
