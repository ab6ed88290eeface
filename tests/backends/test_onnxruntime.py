"""ONNX Runtime on a toy: correct outputs, inputs checked at bind, the cache, and int8 with its skipped nodes."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="models are exported by torch")
pytest.importorskip("onnxruntime", reason="the backend is onnxruntime's")
pytest.importorskip("onnxscript", reason="torch exports with onnxscript")

import torch
from torch import nn
from toys import LIBRARY_WARNINGS, Toy, build_toy, check_misfits

from bakeoff.backends.onnxruntime.backend import BACKEND, Options
from bakeoff.worker.failures import StageError

pytestmark = LIBRARY_WARNINGS


@pytest.fixture(autouse=True)
def _work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("onnx")


@pytest.fixture(scope="module")
def toy(folder: Path) -> Toy:
    return build_toy("world/onnxruntime/fp32", folder)


def model_of(folder: Path) -> Path:
    (made,) = (folder / "cache").glob("onnx-*")
    return made


def test_gives_what_eager_gives_and_refuses_other_inputs(toy: Toy) -> None:
    assert toy.error() < 1e-6
    check_misfits(toy)


def test_says_which_provider_and_which_nodes(toy: Toy) -> None:
    proof = toy.proof
    assert (proof.fell_back, proof.graphs) == ("", 1)
    assert proof.operators_inside["MatMul"] >= 2
    assert (proof.quantised, proof.skipped) == ({}, {})
    assert proof.facts["providers"] == "CPUExecutionProvider"
    assert proof.facts["opset"] == 20
    assert proof.artifact_bytes


class TestInt8:
    def test_counts_what_it_quantised_and_names_what_it_left(self, tmp_path: Path) -> None:
        made = build_toy("world/onnxruntime[int8]/fp32", tmp_path)
        proof = made.proof
        assert proof.operators_inside["MatMulInteger"] == len(proof.quantised) == 1
        assert set(proof.quantised.values()) == {"dynamic int8"}
        assert set(proof.skipped.values()) == {"a product of two activations"}
        assert made.built.fallback is None
        assert 1e-4 < made.error() < 3e-2
        assert sorted(file.name for file in model_of(tmp_path).iterdir())[0] == "model.onnx"

    def test_finds_nothing_in_convolutions_and_says_the_way_out(self, tmp_path: Path) -> None:
        with pytest.raises(StageError) as refused:
            build_toy("sound/onnxruntime[int8]/fp32", tmp_path)
        assert refused.value.status == "unsupported"
        assert "int8-static" in refused.value.reason

    def test_takes_weights_that_are_not_square_one_after_the_other(self, tmp_path: Path) -> None:
        """onnxruntime 1.31 fell over the shapes it had noted of them before it turned them over."""

        def change(module: nn.Module) -> None:
            torch.manual_seed(0)
            chain = nn.Sequential(nn.Linear(32, 48, bias=False), nn.Linear(48, 32, bias=False)).requires_grad_(False)
            module.chain = chain
            module._forward = lambda x, *_others: (chain(x[0]),)

        made = build_toy("world/onnxruntime[int8]/fp32", tmp_path, change=change)
        assert len(made.proof.quantised) == 2
        assert made.error() < 5e-2


def test_torchaos_weights_are_refused_since_they_would_be_stored_in_full(tmp_path: Path) -> None:
    pytest.importorskip("torchao", reason="int8 is torchao's")
    with pytest.raises(StageError) as refused:
        build_toy("world/int8[kind=weight-only,least=0]+onnxruntime/fp32", tmp_path)
    assert refused.value.status == "unsupported"
    assert "onnxruntime[int8]" in refused.value.reason


def test_an_operator_that_onnx_lacks_is_named(tmp_path: Path) -> None:
    def change(module: nn.Module) -> None:
        module._forward = lambda x, *_others: (
            torch.ops.aten._int_mm(x[0].to(torch.int8), x[0].T.to(torch.int8)).float(),
        )

    with pytest.raises(StageError) as refused:
        build_toy("world/onnxruntime/fp32", tmp_path, change=change)
    assert refused.value.status == "unsupported"
    assert "aten._int_mm" in refused.value.reason


def test_an_operator_without_a_kernel_is_named_with_its_dtype(tmp_path: Path) -> None:
    """The rows' dtype is fp32; a part of the model computes in bf16."""

    def change(module: nn.Module) -> None:
        def forward(x: torch.Tensor, *_others: object) -> tuple[torch.Tensor]:
            half = x[0].bfloat16()
            return (nn.functional.linear(half, half, half[:, 0]).float(),)

        module._forward = forward

    with pytest.raises(StageError) as refused:
        build_toy("world/onnxruntime/fp32", tmp_path, change=change)
    assert refused.value.status == "unsupported"
    assert "no kernel for Gemm of bfloat16; use another backend" in refused.value.reason


def test_a_graph_that_was_exported_wrongly_fails_with_onnxs_own_sentence(tmp_path: Path) -> None:
    """torch.onnx leaves the indices of `index_put` int32 (pytorch#113067); no kernel is missing for that."""

    def change(module: nn.Module) -> None:
        at = torch.arange(2, dtype=torch.int32)
        module._forward = lambda x, *_others: (x[0].new_zeros(x[0].shape).index_put((at,), x[0][:2], accumulate=True),)

    with pytest.raises(StageError) as refused:
        build_toy("world/onnxruntime/fp32", tmp_path, change=change)
    assert refused.value.status == "build_failed"
    assert "INVALID_GRAPH" in refused.value.reason
    assert "tensor(int32)" in refused.value.reason


def test_a_traced_build_names_the_provider_of_each_node(tmp_path: Path) -> None:
    traced = build_toy("world/onnxruntime/fp32", tmp_path, trace=True)
    trace = traced.engine.trace(traced.built.calls[0])
    assert trace.operators_inside
    assert trace.operators_outside == {}
    assert all(kernel.own and "(CPUExecutionProvider)" in kernel.name for kernel in trace.kernels)
    assert trace.kernels[0].calls == 1
    assert sum(kernel.ns for kernel in trace.kernels) <= trace.total_ns
    assert [file.name for file in tmp_path.glob("profile*")] == []


def test_without_the_gpus_package_its_provider_is_unavailable() -> None:
    try:
        version("onnxruntime-gpu")
    except PackageNotFoundError:
        said = BACKEND.unavailable(Options(), "cuda")
        assert said is not None
        assert "CUDAExecutionProvider" in said
        assert "pip uninstall onnxruntime" in said
    else:
        assert BACKEND.unavailable(Options(), "cuda") is None
