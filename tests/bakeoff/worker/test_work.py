"""Models that call functions of their own from operators, or compute gradients: what counts and watches must not break
them, and must see what they call."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import flex_attention

from bakeoff.worker.checks.dispatch import dispatched_by_eager
from bakeoff.worker.reference.precision import Widened
from bakeoff.worker.work import count

PRODUCT = 2 * 4 * 4 * 4


def chooses(x: Tensor) -> Tensor:
    return torch.cond(x.sum() > 1e6, lambda x: x @ x @ x, lambda x: x @ x, (x,))


def repeats(x: Tensor) -> Tensor:
    return while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x @ x), (torch.tensor(0), x))[1]


def adds_up(x: Tensor) -> Tensor:
    return scan(lambda carry, row: (carry + row, carry * row), x[0], x)[1]


def maps(x: Tensor) -> Tensor:
    return map_rows(lambda row: (row[None] @ row[:, None]).sum() * row, x)


def attends(x: Tensor) -> Tensor:
    return flex_attention(x[None, None], x[None, None], x[None, None], lambda score, *_: score * 2)[0, 0]


def derives(x: Tensor) -> Tensor:
    with torch.enable_grad():
        layer = nn.Linear(4, 4).requires_grad_(False)
        x = x.clone().requires_grad_()
        return torch.autograd.grad(layer(x).sum(), x)[0]


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.function(x),)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize(
    ("function", "flops", "noted"),
    [
        (chooses, PRODUCT, ""),
        (repeats, 3 * PRODUCT, ""),
        (adds_up, 0, ""),
        (maps, 4 * 2 * 4, ""),
        (attends, 0, "flex_attention"),  # a mask may leave out parts of its products
        (derives, 2 * PRODUCT, ""),
    ],
)
def test_what_watches_a_call_sees_functions_that_operators_call(
    function: Callable[[Tensor], Tensor], flops: int, noted: str
) -> None:
    x = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))
    module = Calls(function)
    with torch.no_grad():
        expected = module(x)[0] if function is not derives else None
        (output,), counted = count(module, (x,))
        assert expected is None or torch.equal(output, expected)
        assert counted.flops == flops
        assert [noted in note for note in counted.notes] == ([True] if noted else [])
        assert dispatched_by_eager(lambda: module(x)).operators


def test_operators_in_functions_are_widened_and_known_to_the_dispatch_check() -> None:
    def rounds(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.to(torch.float32).sort().values, lambda x: x.to(torch.float32), (x,))

    x = torch.rand(4, 4, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(Widened(Calls(rounds), "fp64")(x)[0], x.sort().values)
        assert "sort" not in dispatched_by_eager(lambda: rounds(x)).composite
