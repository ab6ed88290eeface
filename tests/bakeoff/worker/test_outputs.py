"""Checks of outputs: large errors are reported at once, outputs within their limit never."""

import math
import threading

import pytest
import torch
from torch import Tensor

from bakeoff.models.component import TensorSpec
from bakeoff.worker.checks import outputs
from bakeoff.worker.checks.outputs import OutputWatch, call_twice, copied, digest, overwrite

LIMIT = 1e-3
SPEC = TensorSpec("y", (3, 50))


def reference(seed: int) -> Tensor:
    return torch.randn(3, 50, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def watch() -> OutputWatch:
    return OutputWatch([SPEC], [{"y": reference(seed)} for seed in range(2)], {"y": LIMIT})


def test_correct_outputs_are_not_reported() -> None:
    seen = watch()
    noise = torch.randn(3, 50, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    for index in range(2):
        wanted = reference(index)
        wrong_by_less = wanted + 0.99 * LIMIT * noise / noise.norm() * wanted.norm()
        for output in (wanted, wanted.float(), wrong_by_less):
            seen.check(index, (output,))
    assert seen.problem is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_not_finite_is_reported(bad: float) -> None:
    seen = watch()
    output = reference(0).float()
    output[2, 49] = bad
    seen.check(0, (output,))
    assert seen.problem is not None
    assert seen.problem.startswith("y: ")
    assert "inputs 0" in seen.problem


def test_another_sets_output_is_reported_whatever_its_norm() -> None:
    seen = watch()
    other = reference(1) * reference(0).norm() / reference(1).norm()
    seen.check(0, (other.float(),))
    assert seen.problem is not None
    assert "inputs 0" in seen.problem


@pytest.mark.parametrize("wrong", [0, 1])
def test_each_of_several_outputs_is_looked_at(wrong: int) -> None:
    wanted = {name: reference(seed) for seed, name in enumerate("yz")}
    specs = [TensorSpec(name, (3, 50)) for name in wanted]
    seen = OutputWatch(specs, [wanted], dict.fromkeys(wanted, LIMIT))
    seen.check(0, tuple(wanted.values()))
    assert seen.problem is None
    seen.check(0, tuple(2 * tensor if index == wrong else tensor for index, tensor in enumerate(wanted.values())))
    assert seen.problem is not None
    assert seen.problem.startswith(f"{'yz'[wrong]}: ")


def test_the_first_problem_is_kept_and_its_call_is_counted() -> None:
    seen = watch()
    for output in (reference(0), 2 * reference(0), 3 * reference(0)):
        seen.check(0, (output,))
    assert seen.problem is not None
    assert "call 2 " in seen.problem


@pytest.mark.parametrize("outputs", [(), None, (1,), (torch.ones(3, 50), torch.ones(1)), torch.ones(3, 50)])
def test_a_wrong_number_or_type_is_left_to_the_full_comparison(outputs: object) -> None:
    seen = watch()
    seen.check(0, outputs)
    assert seen.problem is None


def test_what_a_call_returned_is_overwritten_and_nothing_else() -> None:
    kept = torch.ones(4)
    arena = torch.zeros(10)
    spread = torch.ones(1).expand(3)
    with torch.inference_mode():
        inferred = torch.ones(2)
    overwrite((arena[2:5], kept.view(2, 2), spread, inferred, 7, torch.ones(2, dtype=torch.int64)), [kept])
    assert arena.isnan().tolist() == [False] * 2 + [True] * 3 + [False] * 5
    assert not kept.isnan().any()
    assert not spread.isnan().any()
    assert inferred.isnan().all()
    overwrite("no outputs at all")


def test_copies_are_of_plain_tensors() -> None:
    class Odd(Tensor):
        pass

    plain, odd = torch.ones(2), torch.ones(2).as_subclass(Odd)
    first, second, third = copied((plain, odd, 3))
    assert first is not plain
    assert torch.equal(first, plain)
    assert second is odd
    assert third == 3
    assert copied("text") == "text"


def nothing_to_wait_for() -> None:
    pass


def test_two_calls_that_do_not_touch_earlier_outputs() -> None:
    source = torch.arange(3.0)
    first, changed, second = call_twice(lambda: (source * 2,), nothing_to_wait_for, [source])
    assert not changed
    assert torch.equal(first[0], source * 2)  # type: ignore[index]
    assert torch.equal(second[0], source * 2)  # type: ignore[index]
    assert torch.equal(source, torch.arange(3.0))


def test_outputs_that_change_after_the_call_returned_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    static = torch.zeros(3)
    threads: list[threading.Thread] = []
    returned = threading.Event()

    def write() -> None:
        returned.wait()
        static.add_(1)

    def late() -> tuple[Tensor]:
        threads.append(threading.Thread(target=write))
        threads[-1].start()
        return (static,)

    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        returned.set()  # not by the clock: on a busy machine a timer may be over before the outputs are copied
        threads[-1].join()

    monkeypatch.setattr(outputs.time, "sleep", sleep)
    _, changed, _ = call_twice(late, nothing_to_wait_for, [])
    for thread in threads:
        thread.join()
    assert changed
    assert min(waited) >= 0.01


def test_a_second_call_that_returns_the_first_outputs_gives_what_the_caller_wrote() -> None:
    static = torch.ones(3)
    first, changed, second = call_twice(lambda: (static,), nothing_to_wait_for, [])
    assert not changed
    assert torch.equal(first[0], torch.ones(3))  # type: ignore[index]
    assert bool(second[0].isnan().all())  # type: ignore[index]


@pytest.mark.parametrize(
    "odd",
    [
        torch.arange(8.0)[::2],
        torch.randn(3, 4).T,
        torch.randn(4, dtype=torch.complex64).conj(),
        torch.randn(4, dtype=torch.complex64).conj().imag,
        torch.ones(1).expand(5),
        torch.zeros(0, 3),
        torch.tensor(2.5),
    ],
    ids=["every second", "transposed", "conjugated", "negated", "expanded", "empty", "scalar"],
)
def test_the_digest_is_of_values_and_not_of_strides(odd: torch.Tensor) -> None:
    dense = torch.empty(odd.shape, dtype=odd.dtype).copy_(odd)
    assert digest(odd) == digest(dense)
    assert not odd.numel() or digest(odd) != digest(dense + 1)
