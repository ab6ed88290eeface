"""TensorRT for RTX with its plugin: real engines for GPUs that are not here, their facts and their cache."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="models are exported by torch")
pytest.importorskip("onnxscript", reason="torch exports with onnxscript")
pytest.importorskip("onnxruntime_ep_nv_tensorrt_rtx", reason="the compiler is the provider's plugin")

import onnx
from onnx import TensorProto, helper
from rtx_engines import sizes
from toys import LIBRARY_WARNINGS, Toy, build_toy

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.tensorrt_rtx import compiler
from bakeoff.backends.tensorrt_rtx.backend import BACKEND
from bakeoff.backends.tensorrt_rtx.compiler import ABOUT, compile_model
from bakeoff.backends.tensorrt_rtx.engines import check_context
from bakeoff.backends.tensorrt_rtx.options import TARGETS, Options

GAP = BACKEND.unavailable(Options(target="sm89"), "cpu")
pytestmark = [LIBRARY_WARNINGS, pytest.mark.skipif(GAP is not None, reason=str(GAP))]
WORLD = "world/tensorrt-rtx[target=sm89]/fp16"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rtx")


@pytest.fixture(scope="module")
def toy(folder: Path) -> Toy:
    return build_toy(WORLD, folder)


def made_in(folder: Path) -> Path:
    (made,) = (folder / "cache").glob("rtx-*")
    return made


class TestToy:
    def test_its_facts(self, toy: Toy, folder: Path) -> None:
        assert toy.built.calls == ()
        proof, made = toy.proof, made_in(folder)
        assert (proof.fell_back, proof.graphs, dict(proof.operators_outside)) == ("", 1, {})
        assert proof.operators_inside["MatMul"] >= 2
        assert (proof.facts["target"], proof.facts["engines"], proof.facts["export_from_cache"]) == ("sm89", 1, False)
        assert "float16" in str(proof.facts["precisions"])
        assert proof.artifact_bytes == (made / "0.engine").stat().st_size
        assert float(proof.facts["engine_s"]) > 0
        assert int(proof.facts["engine_peak_bytes"]) > 100 << 20, "the library itself is larger"
        assert set(sizes(made)) == {"model.onnx", "0.engine", ABOUT}

    @pytest.mark.parametrize("dtype", ["fp32", "bf16"])
    def test_convolutions_for_another_target(self, dtype: str, tmp_path: Path) -> None:
        proof = build_toy(f"sound/tensorrt-rtx[target=sm120]/{dtype}", tmp_path).proof
        assert (proof.facts["target"], dict(proof.operators_outside)) == ("sm120", {})
        assert proof.facts["precisions"] == {"fp32": "float", "bf16": "bfloat16"}[dtype]

    def test_the_same_again_comes_from_the_cache_and_another_target_does_not(
        self, toy: Toy, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.chdir(tmp_path)

        def refuse(*_arguments: object) -> None:
            raise Unsupported("not now")

        monkeypatch.setattr(compiler, "compile_model", refuse)
        again = build_toy(WORLD, folder).proof
        assert again.facts["export_from_cache"] is True
        assert again.graph_hash == toy.proof.graph_hash
        with pytest.raises(Exception, match="not now"):
            build_toy(WORLD.replace("sm89", "sm86"), folder)
        assert list(tmp_path.iterdir()) == [], "the exported model went with the failure"


Models = Callable[..., Path]


@pytest.fixture
def model(tmp_path: Path) -> Models:
    """Write a model of a MatMul with a Relu, and of further nodes that read their output `b`."""

    def write(more: Sequence[Any] = (), output: str = "b", shape: Sequence[int] = (8, 8)) -> Path:
        nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]), *more]
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, size)
            for name, size in (("x", (8, 8)), (output, shape))
        ]
        weight = helper.make_tensor("w", TensorProto.FLOAT, [8, 8], [number / 64 for number in range(64)])
        graph = helper.make_graph(nodes, "small", values[:1], values[1:], [weight])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        onnx.save(made, str(tmp_path / "model.onnx"))
        return tmp_path / "model.onnx"

    return write


class TestModel:
    @pytest.mark.parametrize("target", TARGETS)
    def test_every_target_is_that_of_its_engine(self, target: str, model: Models, tmp_path: Path) -> None:
        said = compile_model(model(), tmp_path / "made", target, tmp_path)
        assert (said["engines"], said["inside"], said["outside"]) == (1, {"MatMul": 1, "Relu": 1}, {})
        engine = check_context(tmp_path / "made" / "model.onnx", sizes(tmp_path / "made"))
        assert (engine.target, engine.bytes) == (target, said["engine_bytes"])

    def test_an_operator_that_it_does_not_take_is_named(self, model: Models, tmp_path: Path) -> None:
        """Version 0.5.0 of the provider then leaves the MatMul outside too, which TensorRT takes by itself."""
        with pytest.raises(Unsupported, match="with Det;"):
            compile_model(model([helper.make_node("Det", ["b"], ["d"])], "d", ()), tmp_path / "made", "sm89", tmp_path)
