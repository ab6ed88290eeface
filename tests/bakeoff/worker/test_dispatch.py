"""Counts of dispatched operators: a graph run operator by operator is reported, a fused one is not."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bakeoff.backends.torch_internals import compile_package, load_package
from bakeoff.worker.checks.dispatch import CallOperators, dispatched, dispatched_by_eager, left_to_aten, uncompiled


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
EAGER = dispatched_by_eager(lambda: MODULE(X))


def test_outermost_elementwise_operators_are_counted() -> None:
    assert EAGER.elementwise == 3 * 6  # a clone is none
    assert EAGER.operators["addmm"] == EAGER.operators["linear"] == 6
    assert sum(EAGER.outermost.values()) == EAGER.elementwise + 6 + 2  # linear, to, clone
    assert EAGER.inductor_calls == 0


def test_what_another_thread_dispatches_is_counted() -> None:
    with ThreadPoolExecutor(1) as pool:
        ran = dispatched(lambda: pool.submit(MODULE, X).result())
    assert (ran.operators, ran.outermost) == (EAGER.operators, EAGER.outermost)


def test_what_a_library_dispatches_within_itself_is_not() -> None:
    norm = nn.RMSNorm(8).requires_grad_(False)
    within = dispatched(lambda: norm(X))
    assert sum(within.operators.values()) > sum(within.outermost.values()) == 1
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


class Waves(nn.Module):
    """Complex numbers and a Fourier transform between real elementwise work."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turn", torch.polar(torch.ones(64, 32), torch.randn(64, 32)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pairs = torch.view_as_complex(torch.sin(x).unflatten(-1, (-1, 2)))
        spectrum = torch.fft.rfft(torch.view_as_real(pairs * self.turn).flatten(-2))
        return x * torch.sigmoid(x) + torch.fft.irfft(spectrum)


class Memory(nn.Module):
    """An LSTM, which adds its biases by itself, and one addition."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(64, 64, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x)[0] + x


class Turned(Waves):
    """Complex numbers alone: all operators are those that inductor leaves to ATen."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.view_as_complex(x) * self.turn)


WIDE = torch.randn(8, 64, 64)


def run_inductor(module: nn.Module, x: torch.Tensor, _path: Path) -> Callable[[], object]:
    compiled = torch.compile(module, fullgraph=True)
    return lambda: compiled(x)


def run_aoti(module: nn.Module, x: torch.Tensor, path: Path) -> Callable[[], object]:
    program = torch.export.export(module, (x,))
    compile_package(program, path / "net.pt2", {"cpp.enable_kernel_profile": True})
    package = load_package(path / "net.pt2")
    return lambda: package.run([x])


@pytest.mark.filterwarnings("ignore")  # torch's own, of itself
@pytest.mark.parametrize(
    ("module", "x", "compiler", "named"),
    [
        (Waves(), WIDE, run_inductor, "_fft_r2c"),
        (Memory(), WIDE, run_aoti, "mkldnn_rnn_layer"),
        (Turned(), torch.randn(8, 64, 32, 2), run_inductor, "mul"),
    ],
)
def test_what_a_compiler_leaves_by_design_is_no_fallback(
    module: nn.Module,
    x: torch.Tensor,
    compiler: Callable[[nn.Module, torch.Tensor, Path], Callable[[], object]],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    module.eval().requires_grad_(False)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        eager = dispatched_by_eager(lambda: module(x))
        call = compiler(module, x, tmp_path)
        call()
        ran = dispatched(call)
    assert uncompiled(ran, eager) is None
    assert named in left_to_aten(ran, sum(ran.kernels_us.values()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize(("module", "x"), [(Waves(), WIDE), (Memory(), WIDE)])
def test_an_operator_that_compilers_leave_hides_no_fallback(
    module: nn.Module, x: torch.Tensor, decompose: bool
) -> None:

    module.eval().requires_grad_(False)
    with torch.no_grad():
        eager = dispatched_by_eager(lambda: module(x))
        program = torch.export.export(module, (x,))
        run = (program.run_decompositions() if decompose else program).module()
        assert uncompiled(dispatched(lambda: run(x)), eager)


@pytest.mark.filterwarnings("ignore")
def test_complex_work_is_known_from_eager_alone() -> None:
    """A call that does real work in complex numbers is not excused."""
    module = Gated().requires_grad_(False)
    eager = dispatched_by_eager(lambda: module(X))
    assert eager.complex == {}

    class Disguised(torch.fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is not torch.ops.aten.mul.Tensor:
                return super().call_function(target, args, kwargs)
            return target(*(torch.complex(one, torch.zeros_like(one)) for one in args)).real

    run = Disguised(torch.export.export(module, (X,)).run_decompositions().module())
    assert uncompiled(dispatched(lambda: run.run(X)), eager)


def counts(**outermost: int) -> CallOperators:
    """A call of outermost operators, of which each takes 1 us, but a lstm 100, mm and linear 10."""
    times_us = {name: {"lstm": 100.0, "mm": 10.0, "linear": 10.0}.get(name, 1.0) for name in outermost}
    return CallOperators(outermost, outermost, times_us, composite=("linear",) if "linear" in outermost else ())


@pytest.mark.parametrize(
    ("ran", "eager", "found"),
    [
        (counts(add=60, mm=30), counts(add=80, mul=40, linear=30), True),
        (counts(add=59, mm=40), counts(add=80, mul=40, linear=30), False),  # most are fused: partly a compiler's
        (counts(mm=50), counts(add=120, linear=30), False),
        (counts(add=1, mm=2), counts(add=1, linear=2), True),
        (counts(add=1), counts(add=1, lstm=1), False),  # a stray one beside kernels of its own
        (counts(add=1, lstm=1), counts(add=1, lstm=1), True),
        (counts(mm=2), counts(linear=2), False),  # nothing could be fused
        (counts(linear=2), counts(linear=2), True),
        (counts(mm=2), counts(mm=2), False),  # a compiler leaves a product to the same kernel
        (counts(), counts(add=5, linear=2), False),
        (counts(), counts(), False),
    ],
)
def test_the_rule(ran: CallOperators, eager: CallOperators, found: bool) -> None:
    assert (uncompiled(ran, eager) is not None) == found


def test_operators_of_eager_in_complex_numbers_or_within_others_are_excused_up_to_their_count() -> None:
    eager = CallOperators({"mul": 4, "lstm": 1}, {"mul": 3, "lstm": 1}, {"mul": 1.0, "lstm": 2.0}, complex={"mul": 1})
    assert uncompiled(CallOperators({"mul": 2, "lstm": 1}, {"mul": 2, "lstm": 1}, {"mul": 1.0}), eager) is None
    assert uncompiled(CallOperators({"mul": 3, "lstm": 1}, {"mul": 3, "lstm": 1}, {"mul": 1.0}), eager)


def test_only_notable_shares_are_named() -> None:
    ran = CallOperators(kernels_us={"add": 4.0, "sort": 50.0, "cumsum": 5.0})
    assert list(left_to_aten(ran, 100.0).items()) == [("sort", 0.5), ("cumsum", 0.05)]
