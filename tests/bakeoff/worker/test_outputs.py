"""What is seen of outputs between calls: gross errors at once, and nothing of what is within its limit."""

import math

import pytest
import torch
from torch import Tensor

from bakeoff.models.component import TensorSpec
from bakeoff.worker.checks.outputs import OutputWatch, copied, overwrite

LIMIT = 1e-3
SPEC = TensorSpec("y", (3, 50))


def reference(seed: int) -> Tensor:
    return torch.randn(3, 50, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def watch() -> OutputWatch:
    return OutputWatch([SPEC], [{"y": reference(seed)} for seed in range(2)], {"y": LIMIT})


def test_right_outputs_are_left_in_peace() -> None:
    seen = watch()
    noise = torch.randn(3, 50, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    for index in range(2):
        wanted = reference(index)
        wrong_by_less = wanted + 0.99 * LIMIT * noise / noise.norm() * wanted.norm()
        for output in (wanted, wanted.float(), wrong_by_less):
            seen.check(index, (output,))
    assert seen.problem == ""


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_no_number_is_seen(bad: float) -> None:
    seen = watch()
    output = reference(0).float()
    output[2, 49] = bad
    seen.check(0, (output,))
    assert seen.problem.startswith("y was wrong in call 1 of those looked at while timing (inputs 0)")


def test_another_sets_output_is_seen_whatever_its_norm() -> None:
    seen = watch()
    other = reference(1) * reference(0).norm() / reference(1).norm()
    seen.check(0, (other.float(),))
    assert "inputs 0" in seen.problem


def test_the_first_problem_is_kept_and_its_call_is_counted() -> None:
    seen = watch()
    for output in (reference(0), 2 * reference(0), 3 * reference(0)):
        seen.check(0, (output,))
    assert "in call 2 " in seen.problem


@pytest.mark.parametrize("outputs", [(), None, (1,), (torch.ones(3, 50), torch.ones(1)), torch.ones(3, 50)])
def test_a_wrong_form_is_left_to_the_full_comparison(outputs: object) -> None:
    seen = watch()
    seen.check(0, outputs)
    assert seen.problem == ""


def test_poison_overwrites_what_a_call_gave_and_nothing_else() -> None:
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
