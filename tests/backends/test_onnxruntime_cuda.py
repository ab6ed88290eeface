"""ONNX Runtime's GPU providers: what is asked of them, and what is said where they or their kernels are missing."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="models are exported by torch")
pytest.importorskip("onnxruntime", reason="the backend is onnxruntime's")
pytest.importorskip("onnxscript", reason="torch exports with onnxscript")

import fake_onnxruntime as fake
import onnx
import onnxruntime
import torch
from fake_onnxruntime import CPU, CUDA, TENSORRT, Library
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as errors
from torch import nn
from toys import LIBRARY_WARNINGS

from bakeoff.backends.backend import BuildContext, Engine, Unavailable, Unsupported
from bakeoff.backends.onnxruntime import backend, session
from bakeoff.backends.onnxruntime.backend import BACKEND, Options
from bakeoff.backends.onnxruntime.placement import read_placement
from bakeoff.worker.failures import status_of

pytestmark = LIBRARY_WARNINGS


class Small(nn.Module):
    """One product and one sine."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.sin(self.linear(x)),)


def build(
    library: Library,
    folder: Path,
    options: Options | None = None,
    module: nn.Module | None = None,
    trace: bool = False,
    dtype: str = "fp32",
) -> Engine:
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    context = BuildContext("small", "cuda", dtype, 1, folder, library.cache, lambda _seed: {}, trace)
    torch.manual_seed(0)
    made = (module or Small()).to(kind)
    assert BACKEND.build is not None
    return BACKEND.build(made, {"x": torch.ones(2, 4, dtype=kind)}, options or Options(), context)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, since an export takes a second."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def library(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library(cache)
    made.install(monkeypatch)
    return made


class TestLostProvider:
    """A provider that cannot load is `unavailable` with the library, before anything is bound to the session."""

    def test_cuda_dropped_with_a_warning(self, library: Library, tmp_path: Path) -> None:
        library.lost = (CUDA,)
        with pytest.raises(
            Unavailable, match=r"with CPUExecutionProvider, without CUDA\w+: libnvinfer.so.10"
        ) as refused:
            build(library, tmp_path)
        assert status_of(refused.value, "build_failed") == "unavailable"

    @pytest.mark.parametrize("lost", [(TENSORRT,), (TENSORRT, CUDA)])
    def test_tensorrt_is_not_replaced_by_another_provider(
        self, library: Library, tmp_path: Path, lost: tuple[str, ...]
    ) -> None:
        library.lost = lost
        with pytest.raises(Unavailable, match=r"TensorrtExecutionProvider cannot be loaded: libnvinfer.so.10"):
            build(library, tmp_path, Options(provider="tensorrt"), dtype="bf16")

    def test_memory_is_out_of_memory(self, library: Library, tmp_path: Path) -> None:
        library.error = errors.RuntimeException(fake.ARENA)
        with pytest.raises(errors.RuntimeException) as refused:
            build(library, tmp_path)
        assert status_of(refused.value, "build_failed") == "oom"


class TestMissingLibrary:
    """The reason is read from the provider's own file, as the loader would."""

    def provider(self, folder: Path, needs: bytes) -> Path:
        """A shared library of ONNX Runtime under the provider's name, linked against `needs` instead of libstdc++."""
        real = Path(onnxruntime.__file__).parent / "capi" / "libonnxruntime_providers_shared.so"
        if not real.is_file():
            pytest.skip("this onnxruntime has no shared library to link otherwise")
        data = real.read_bytes()
        assert data.count(b"libstdc++.so.6\0") == 1
        assert len(needs) == len(b"libstdc++.so.6")
        (folder / "libonnxruntime_providers_tensorrt.so").write_bytes(data.replace(b"libstdc++.so.6", needs))
        return folder / "libonnxruntime_providers_tensorrt.so"

    @pytest.mark.parametrize(
        ("needs", "starts"),
        [
            pytest.param(b"libnvinfer.s10", False, id="TensorRT's is missing"),
            pytest.param(b"libcudart.so.0", True, id="one that may come with torch is missing"),
            pytest.param(b"libstdc++.so.6", True, id="all load"),
        ],
    )
    def test_a_row_of_tensorrt_is_not_started_without_its_library(
        self, needs: bytes, starts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "capi").mkdir()
        self.provider(tmp_path / "capi", needs)
        installed = ModuleSpec("onnxruntime", None, is_package=True)
        installed.submodule_search_locations = [str(tmp_path)]
        monkeypatch.setattr(backend, "find_spec", lambda _name: installed)
        monkeypatch.setattr(backend, "version", lambda _name: "1.31.1")
        told = BACKEND.missing(Options(provider="tensorrt"), "cuda")
        assert told is None if starts else told is not None and "libnvinfer.s10: cannot open" in told


class TestMissingKernel:
    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (errors.NotImplemented(fake.NOT_IMPLEMENTED), "no bf16 kernel for Pow; use fp16"),
            (errors.Fail(fake.NO_PROVIDER), "no bf16 kernel for LeakyRelu; use fp16"),
            (errors.InvalidGraph(fake.BAD_TYPE), "no bf16 kernel for Conv; use fp16"),
            (errors.Fail(fake.NO_CAPTURE), "cannot capture this model: all compute graph nodes have not been"),
        ],
        ids=["kernel", "provider", "type", "capture"],
    )
    def test_a_refusal_names_the_operator(self, library: Library, tmp_path: Path, error: Exception, said: str) -> None:
        library.error = error
        with pytest.raises(Unsupported, match=said) as refused:
            build(library, tmp_path, dtype="bf16")
        assert status_of(refused.value, "build_failed") == "unsupported"

    @pytest.mark.parametrize(("dtype", "opset"), [("fp32", 20), ("bf16", 22)])
    def test_bf16_is_exported_in_the_first_opset_with_bf16_convolutions(
        self, library: Library, tmp_path: Path, dtype: str, opset: int
    ) -> None:
        library.cache, library.error = tmp_path, errors.Fail("stop")
        with pytest.raises(errors.Fail):
            build(library, tmp_path, module=nn.Conv1d(2, 2, 1).requires_grad_(False), dtype=dtype)
        (path,) = tmp_path.glob("onnx-*/model.onnx")
        model = onnx.load(str(path), load_external_data=False)
        assert [entry.version for entry in model.opset_import if not entry.domain] == [opset]
        onnx.checker.check_model(str(path), full_check=True)


class TestPlacement:
    """Which provider runs a node; nodes that compute shapes are on the CPU on purpose."""

    def test_every_node_on_cuda(self, library: Library, tmp_path: Path) -> None:
        proof = build(library, tmp_path).prove()
        assert (proof.fell_back, proof.operators_outside) == ("", {})
        assert proof.operators_inside["Sin"] == 1
        assert proof.facts["nodes_on_CUDAExecutionProvider"] == sum(proof.operators_inside.values())
        assert proof.facts["shape_nodes_on_cpu"] == 0
        assert proof.facts["cudnn_conv_algo_search"] == "EXHAUSTIVE"

    def test_a_computing_node_on_the_cpu_is_a_fallback(self, library: Library, tmp_path: Path) -> None:
        library.place = lambda operator: CPU if operator == "Sin" else CUDA
        proof = build(library, tmp_path).prove()
        assert proof.fell_back == "CPUExecutionProvider for 1 Sin"
        assert proof.operators_outside == {"Sin": 1}
        assert "Sin" not in proof.operators_inside

    def test_nodes_that_compute_shapes_are_listed_and_are_no_fallback(self, library: Library, tmp_path: Path) -> None:
        """A real session of a model that computes a shape from its input's."""
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        inner = [
            helper.make_tensor_value_info("s", TensorProto.INT64, [2]),
            helper.make_tensor_value_info("t", TensorProto.INT64, [2]),
        ]
        nodes = [
            helper.make_node("Shape", ["x"], ["s"], name="shape"),
            helper.make_node("Abs", ["s"], ["t"], name="abs"),
            helper.make_node("Reshape", ["x", "t"], ["y"], name="reshape"),
        ]
        graph = helper.make_graph(nodes, "g", [x], [y], value_info=inner)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        onnx.save(model, str(tmp_path / "m.onnx"))
        library.place = lambda operator: CPU if operator == "Abs" else CUDA
        opened = session.open_session(tmp_path / "m.onnx", Options(), "cuda", "fp32", 1)
        placed = read_placement(opened.session, model, CUDA)
        assert placed.shapes == placed.outside == {"Abs": 1}
        assert placed.inside == {"Shape": 1, "Reshape": 1}
        assert (placed.fallback, placed.fell_back(CUDA)) == ({}, "")

    def test_tensorrt_that_takes_nothing_fell_back(self, library: Library, tmp_path: Path) -> None:
        proof = build(library, tmp_path, Options(provider="tensorrt")).prove()
        assert "CUDAExecutionProvider for all nodes" in proof.fell_back


class TestCalls:
    def test_a_call_is_queued_between_torchs_earlier_and_later_work(self, library: Library, tmp_path: Path) -> None:
        call = build(library, tmp_path).bind({"x": torch.ones(2, 4)})
        (output,) = call()
        assert library.log == ["session waits for torch", "run, waiting disabled 1", "torch waits for session"]
        assert output.abs().sum() > 0
        assert library.opened[0].asked[CUDA]["user_compute_stream"] == "140098743390512"

    def test_each_bound_set_has_a_graph_of_its_own(
        self, library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A captured graph replays the addresses of the set that it was captured with."""
        ids: list[int | None] = []
        made = session.run_settings

        def note(stream: Any, graph: int | None = None) -> Any:
            ids.append(graph)
            return made(stream, graph)

        monkeypatch.setattr(session, "run_settings", note)
        captured, plain = build(library, tmp_path, Options(cuda_graph=True)), build(library, tmp_path)
        for engine in (captured, captured, plain):
            engine.bind({"x": torch.ones(2, 4)})
        assert ids == [1, 2, None]
        assert made(None, 2).get_run_config_entry("gpu_graph_id") == "2"
        assert (captured.captures(), plain.captures()) == (True, False)
        assert (captured.compilations(), plain.compilations()) == (2, 0)
        captured.port({"x": torch.ones(2, 4)}, ("y",), {"y": "x"})
        assert ids[3:] == [3, 4], "the two bindings over swapped memory"
        assert captured.compilations() == 4


class TestOptions:
    @pytest.mark.parametrize(("dtype", "allowed"), [("fp32", "0"), ("tf32", "1"), ("bf16", "0")])
    def test_fp32_is_fp32(self, dtype: str, allowed: str, tmp_path: Path) -> None:
        """The provider's own default is TF32."""
        asked = session.provider_options(CUDA, Options(cuda_graph=True), dtype, tmp_path, None)
        assert asked == {"use_tf32": allowed, "enable_cuda_graph": "1"}

    def test_tensorrt_has_no_fp32_but_tf32(self) -> None:
        options = Options(provider="tensorrt")
        assert "tf32" in BACKEND.unsupported(options, "cuda", "fp32")
        assert BACKEND.unsupported(options, "cuda", "tf32") is BACKEND.unsupported(options, "cuda", "bf16") is None

    @pytest.mark.parametrize("absent", [False, True])
    def test_tensorrts_libraries_are_loaded_from_its_wheel(
        self, absent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loaded: list[str] = []
        monkeypatch.setattr("onnxruntime.preload_dlls", lambda: loaded.append("cuda"))
        (tmp_path / "tensorrt.py").write_text("raise ImportError" if absent else "", encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
        for provider in (CPU, CUDA):
            session.preload(provider)
            assert "tensorrt" not in sys.modules
        session.preload(TENSORRT)
        assert loaded == ["cuda", "cuda"]
        assert (sys.modules.pop("tensorrt", None) is None) == absent


@pytest.mark.gpu
@pytest.mark.parametrize("captured", [False, True])
def test_a_real_gpu_computes_what_torch_does(tmp_path: Path, captured: bool) -> None:
    """Inputs are written just before a call and outputs read just after it, all on torch's stream without a wait."""
    if BACKEND.unavailable(Options(), "cuda") is not None:
        pytest.skip("onnxruntime-gpu is not installed")
    context = BuildContext("small", "cuda", "fp32", 1, tmp_path, tmp_path / "cache", lambda _seed: {}, True)
    module = Small().cuda()
    x = torch.zeros(2, 4, device="cuda")
    assert BACKEND.build is not None
    engine = BACKEND.build(module, {"x": x}, Options(cuda_graph=captured), context)
    call = engine.bind({"x": x})
    for value in range(5):
        x.copy_(torch.full_like(x, float(value)))
        (found,) = (output.clone() for output in call())
        torch.testing.assert_close(found, module(x)[0], rtol=1e-4, atol=1e-4)
    proof = engine.prove()
    assert (proof.fell_back, proof.operators_outside) == ("", {})
    assert proof.facts["nodes_on_CUDAExecutionProvider"] == sum(proof.operators_inside.values())
    traced = engine.trace(call)
    assert traced.kernels
    assert traced.operators_outside == {}
