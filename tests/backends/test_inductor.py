"""Inductor on a toy: one graph, its operators and library calls by name, and kernels that a profiler can name."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="inductor is a part of torch")

import torch
from shared_headers import shared_headers
from torch import Tensor, nn
from torch.nn import functional
from toys import LIBRARY_WARNINGS, NEEDS_COMPILER, Toy, build_toy

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import Backend, BuildContext, Unsupported, make_alone
from bakeoff.backends.inductor import BACKEND, Options, _Compiler, _settings
from bakeoff.backends.torch_internals import CompileActivity
from bakeoff.models.options import options_of

pytestmark = [
    LIBRARY_WARNINGS,
    NEEDS_COMPILER,
]

_AUTOTUNED = ("max-autotune", "max-autotune-no-cudagraphs")


def build(folder: Path, trace: bool = False) -> Toy:
    torch._dynamo.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
        return build_toy("world/inductor/fp32", folder, trace)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    made = build(tmp_path_factory.mktemp("inductor"))
    made.engine.prove()
    return made


def test_gives_what_eager_gives(toy: Toy) -> None:
    assert toy.error() < 1e-6


def test_the_timed_build_names_its_kernels(toy: Toy) -> None:
    operators, calls = toy.proof.operators_inside, toy.proof.operators_outside
    assert operators["scaled_dot_product_attention"] == operators["linear"] == 1
    assert calls["mm"] == calls["aten._scaled_dot_product_flash_attention_for_cpu"] == 1
    assert (toy.proof.fell_back, toy.proof.graphs, toy.proof.graph_breaks) == ("", 1, 0)
    with torch.no_grad():
        trace = toy.engine.trace(toy.built.calls[0])
    assert any(kernel.own and kernel.name.startswith(("cpp_", "graph_", "kernel_")) for kernel in trace.kernels)


def test_a_traced_build_loads_what_was_compiled_for_the_clocks(tmp_path: Path) -> None:
    timed, traced = build(tmp_path), build(tmp_path, trace=True)
    assert [toy.proof.facts["graph_cache_hits"] for toy in (timed, traced)] == [0, 1]
    assert traced.proof.graph_hash == timed.proof.graph_hash


@pytest.mark.parametrize(("in_functions", "skips", "captured"), [(True, 0, True), (True, 1, False), (False, 0, False)])
def test_cuda_graphs_that_capture_nothing_are_falling_back(
    in_functions: bool, skips: int, captured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU's operators stay outside the functions that inductor captures, as a GPU's that no CUDA graph can hold do;
    for the opposite, the scheduler takes them for a GPU's. `skips` is inductor's own count, which a CPU makes 1."""
    from torch._inductor.scheduler import Scheduler

    if in_functions:
        monkeypatch.setattr(Scheduler, "should_partition", lambda _self, _node: None)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    context: Any = SimpleNamespace(device="cuda", trace=False)
    compiler = _Compiler(_settings(Options("reduce-overhead"), context), captures=True)
    with torch.no_grad():
        torch.compile(lambda x: x.sin() + 1, backend=compiler, fullgraph=True)(torch.ones(4))
    assert compiler.log.activity.not_captured == 1
    compiler.log.activity = CompileActivity(compiled=1, not_captured=skips)
    proof = compiler.prove()
    assert proof.facts["cuda_graphs"] == int(in_functions)
    assert ("without CUDA graphs" in proof.fell_back) is not captured


def test_exact_rounds_where_eager_does_and_plain_code_does_not(tmp_path: Path) -> None:
    torch._dynamo.reset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
        exact, plain = (build_toy(f"world/{name}/bf16", tmp_path) for name in ("inductor[exact]", "inductor"))
        assert exact.error() == 0.0
        assert plain.error() > 1e-4


@pytest.mark.parametrize("backend", [BACKEND, resolve_backend("aoti")])
def test_exact_is_refused_where_it_changes_no_code(backend: Backend) -> None:
    options = options_of(backend, {"exact": True})
    assert "exact keeps eager's roundings" in (backend.unsupported(options, "cpu", "fp32") or "")
    for device, dtype in (("cpu", "bf16"), ("cpu", "fp16"), ("cuda", "fp32"), ("cuda", "bf16")):
        assert backend.unsupported(options, device, dtype) is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "options", [Options(), Options("max-autotune"), Options("max-autotune-no-cudagraphs"), Options(freezing=True)]
)
def test_a_traced_build_has_the_settings_of_the_timed_one(options: Options, device: str) -> None:
    contexts: Any = [SimpleNamespace(device=device, trace=trace) for trace in (False, True)]
    timed, traced = (_settings(options, context) for context in contexts)
    assert timed == traced
    assert device in BACKEND.same_when_traced


def test_autotuning_without_cuda_graphs_captures_nothing() -> None:
    context: Any = SimpleNamespace(device="cuda", trace=False)
    captured = {"triton.cudagraphs", "graph_partition"}
    with_graphs, without = (_settings(Options(mode), context) for mode in _AUTOTUNED)
    assert with_graphs["triton.cudagraphs"]
    assert without == {name: value for name, value in with_graphs.items() if name not in captured}


@pytest.mark.parametrize(
    ("device", "options", "hashed"),
    [
        *(("cuda", Options(mode, freezing=True), True) for mode in ("default", "reduce-overhead", *_AUTOTUNED)),
        ("cuda", Options(), False),
        ("cpu", Options(freezing=True), True),
        ("cpu", Options("max-autotune", freezing=True), False),
    ],
)
def test_frozen_weights_are_a_part_of_the_cache_key_where_all_are_known_before(
    device: str, options: Options, hashed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only autotuning on a CPU packs weights while it makes the code; on CUDA nothing is packed."""
    from bakeoff.backends import inductor

    keys: list[str] = []
    monkeypatch.setattr(inductor, "frozen_graphs_cached", lambda values: keys.append(values) or nullcontext())
    monkeypatch.setattr(inductor, "compile_with_inductor", lambda graph, _inputs, _settings: graph.forward)
    torch._dynamo.reset()
    context: Any = SimpleNamespace(device=device, share=make_alone, sizes=(), untimed=nullcontext, opens=False)
    module, x = torch.nn.Linear(3, 3), torch.zeros(2, 3)
    assert BACKEND.build is not None
    with torch.no_grad():
        BACKEND.build(module, {"x": x}, options, context).bind({"x": x})()
    assert bool(keys) is hashed


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("freezing", [False, True])
def test_freezing_on_a_gpu_stores_weights_of_convolutions_in_their_layout(
    freezing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it a kernel of each call lays out the weights of a convolution again."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    module = torch.nn.Sequential(*(torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(3))).to("cuda", torch.bfloat16)
    inputs = {"x": torch.randn(1, 64, 32, 32, device="cuda", dtype=torch.bfloat16)}
    context: Any = SimpleNamespace(
        device="cuda", trace=True, share=make_alone, sizes=(), untimed=nullcontext, opens=False
    )
    assert BACKEND.build is not None
    with torch.no_grad():
        engine = BACKEND.build(module, inputs, Options(freezing=freezing), context)
        call = engine.bind(inputs)
        torch.testing.assert_close(call()[0], module(inputs["x"])[0], rtol=2e-2, atol=2e-2)
        own = [kernel for kernel in engine.trace(call).kernels if kernel.own]
    assert engine.prove().fell_back == ""
    assert (sum(kernel.calls for kernel in own) <= 4) is freezing, [(kernel.name, kernel.calls) for kernel in own]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_real_cuda_graph_is_proved_and_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    context: Any = SimpleNamespace(
        device="cuda", trace=True, share=make_alone, sizes=(), untimed=nullcontext, opens=False
    )
    engine = BACKEND.build(lambda x: ((x @ x).sin() + 1,), {}, Options("reduce-overhead"), context)  # type: ignore[misc]
    with torch.no_grad():
        call = engine.bind({"x": torch.ones(2048, 2048, device="cuda")})
        call()
        trace = engine.trace(call)
    proof = engine.prove()
    assert (proof.fell_back, proof.facts["cuda_graphs"], proof.operators_outside) == ("", 1, {"mm": 1})
    assert any(kernel.own and kernel.name.startswith("triton_") for kernel in trace.kernels)
    assert trace.device
    assert trace.device.named_ns >= 0.8 * trace.total_ns


def test_tuned_compiles_with_the_settings_that_torchao_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from bakeoff.backends import inductor
    from bakeoff.backends.torch_internals import TUNED

    given: list[dict[str, object]] = []

    def compile_nothing(graph: Any, _inputs: Any, settings: Any) -> Any:
        given.append(dict(settings))
        return graph.forward

    monkeypatch.setattr(inductor, "compile_with_inductor", compile_nothing)
    module, x = torch.nn.Linear(3, 3), torch.zeros(2, 3)
    for tuned in (True, False):
        torch._dynamo.reset()
        context = BuildContext("", "cpu", "fp32", 1, tmp_path, tmp_path, lambda _seed: {"x": x})
        assert inductor.BACKEND.build is not None
        inductor.BACKEND.build(module, {"x": x}, Options(tuned=tuned), context).bind({"x": x})()
    assert given == [dict(TUNED) | {"cpp.enable_kernel_profile": True}, {"cpp.enable_kernel_profile": True}]


@pytest.mark.parametrize(
    ("mode", "device", "copies"),
    [
        ("default", "cuda", False),
        ("reduce-overhead", "cuda", True),
        ("max-autotune", "cuda", True),
        ("max-autotune", "cpu", False),
    ],
)
def test_modes_with_graphs_state_that_their_calls_copy_the_inputs(
    mode: Any, device: Any, copies: bool, tmp_path: Path
) -> None:
    context = BuildContext("", device, "fp32", 1, tmp_path, tmp_path, lambda _seed: {})
    assert BACKEND.build is not None
    engine = BACKEND.build(torch.nn.Linear(3, 3), {}, Options(mode), context)
    assert (engine.copies_inputs(), engine.captures()) == (copies, False)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(width),
            nn.Linear(width, 2 * width),
            nn.Linear(2 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(functional.gelu(self.wide(self.norm(x))))


class Stack(nn.Module):
    def __init__(self, count: int = 6) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(16) for _ in range(count)])

    def forward(self, x: Tensor) -> tuple[Tensor]:
        for block in self.blocks:
            x = block(x)
        return (x,)


def test_the_code_of_equal_blocks_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    inputs, kernels = {"x": torch.randn(8, 16)}, []
    context = BuildContext("", "cpu", "fp32", 1, tmp_path, tmp_path, lambda _seed: {}, share=shared_headers())
    module = Stack().eval()
    (wanted,) = module(inputs["x"])
    assert BACKEND.build is not None
    with torch.no_grad():
        for options in (Options(), Options(regional=True)):
            torch._dynamo.reset()
            engine = BACKEND.build(module, inputs, options, context)
            (found,) = engine.bind(inputs)()
            torch.testing.assert_close(found, wanted)
            proof = engine.prove()
            assert (proof.fell_back, proof.graphs, proof.graph_breaks) == ("", 1, 0)
            kernels.append(proof.facts["kernels_generated"])
    assert kernels[1] <= kernels[0] / 3, "of six blocks"


@pytest.mark.parametrize("module", [nn.Identity(), Stack(1)])
def test_a_module_without_several_equal_blocks_is_refused(module: nn.Module, tmp_path: Path) -> None:
    context = BuildContext("", "cpu", "fp32", 1, tmp_path, tmp_path, lambda _seed: {})
    assert BACKEND.build is not None
    with pytest.raises(Unsupported, match="of several blocks of one class"):
        BACKEND.build(module, {"x": torch.ones(2, 16)}, Options(regional=True), context)
