"""Counts of dispatched operators: a graph run operator by operator is reported, a fused one is not."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

from bakeoff.worker.checks.dispatch import Dispatched, dispatched, uncompiled


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.gate = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x + torch.rsqrt(self.up(x) ** 2 + 1) * nn.functional.silu(self.gate(x))
        return x.to(torch.float64).clone()


X = torch.randn(4, 8)
MODULE = Gated().requires_grad_(False)
EAGER = dispatched(lambda: MODULE(X))


def test_outermost_elementwise_operators_are_counted() -> None:
    assert EAGER.elementwise == 3 * 6  # a clone is none
    assert EAGER.operators["addmm"] == EAGER.operators["linear"] == 6
    assert EAGER.outermost == EAGER.elementwise + 6 + 2  # linear, to, clone
    assert EAGER.inductor_calls == 0


def test_what_another_thread_dispatches_is_counted() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert dispatched(lambda: pool.submit(MODULE, X).result()) == EAGER


def test_what_a_library_dispatches_within_itself_is_not() -> None:
    norm = nn.RMSNorm(8).requires_grad_(False)
    within = dispatched(lambda: norm(X))
    assert sum(within.operators.values()) > within.outermost == 1
    assert within.elementwise == 0


def test_eager_is_reported_as_eager() -> None:
    found = uncompiled(EAGER, EAGER)
    assert found is not None
    assert found.startswith(f"eager: all {sum(EAGER.operators.values())} ")


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's own, of itself
@pytest.mark.parametrize("decompose", [False, True])
def test_an_exported_graph_is_found(decompose: bool) -> None:
    program = torch.export.export(MODULE, (X,))
    run = (program.run_decompositions() if decompose else program).module()
    ran = dispatched(lambda: run(X))
    assert uncompiled(ran, EAGER)
    if decompose:
        assert "linear" not in ran.operators
        found = uncompiled(ran, EAGER)
        assert found is not None
        assert not found.startswith("eager")
        assert f" {ran.elementwise} " in found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_graph_is_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    compiled = torch.compile(MODULE, fullgraph=True)
    compiled(X)
    ran = dispatched(lambda: compiled(X))
    assert ran.inductor_calls == 1
    assert ran.elementwise == 0
    assert uncompiled(ran, EAGER) is None


def count(elementwise: int, outermost: int, **operators: int) -> Dispatched:
    return Dispatched(operators, outermost, elementwise)


@pytest.mark.parametrize(
    ("ran", "eager", "found"),
    [
        (count(60, 90), count(120, 300, linear=30), True),
        (count(59, 400), count(120, 300, linear=30), False),  # most are fused: partly a compiler's
        (count(0, 500), count(120, 300, linear=30), False),
        (count(1, 4), count(1, 6, linear=2), True),
        (count(1, 2), count(1, 6, linear=2), False),  # a stray one beside a compiled graph
        (count(6, 9), count(7, 9, linear=2), False),
        (count(0, 9), count(0, 9, linear=2), False),  # nothing could be fused
        (count(0, 0), count(5, 9, linear=2), False),
        (count(0, 0), count(0, 0), False),
    ],
)
def test_the_rule(ran: Dispatched, eager: Dispatched, found: bool) -> None:
    assert (uncompiled(ran, eager) is not None) == found
