"""TensorRT for RTX's sessions: engines of a card, in whose place is the device of ONNX Runtime's CPU provider.

`onnxruntime.get_ep_devices` offers the CPU provider as it offers a plugin's device (1.31.1), so that the session, its
binding, ports and placement are real; only what compiles is replaced, by a copy of the exported model.
"""

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="models are exported by torch")
pytest.importorskip("onnxruntime", reason="sessions are onnxruntime's")
pytest.importorskip("onnxscript", reason="torch exports with onnxscript")

import onnxruntime
import torch
from rtx_engines import engine
from torch import Tensor, nn
from toys import LIBRARY_WARNINGS, relative

from bakeoff.backends.backend import BuildContext, Unsupported
from bakeoff.backends.onnxruntime.options import PROVIDERS
from bakeoff.backends.onnxruntime.session import Session
from bakeoff.backends.tensorrt_rtx import backend as rtx
from bakeoff.backends.tensorrt_rtx import compiler, session
from bakeoff.backends.tensorrt_rtx.backend import BACKEND, BuiltForAnother
from bakeoff.backends.tensorrt_rtx.compiler import ABOUT
from bakeoff.backends.tensorrt_rtx.engines import read_engine
from bakeoff.backends.tensorrt_rtx.options import Options

CPU = PROVIDERS["cpu"]
pytestmark = [
    LIBRARY_WARNINGS,
    pytest.mark.skipif(not hasattr(onnxruntime, "get_ep_devices"), reason="plugins came with onnxruntime 1.23"),
]


class Small(nn.Module):
    """A layer, and a sum along an axis."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        mixed = torch.tanh(self.layer(x)) + state
        return mixed.sum(-1), mixed


def inputs(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(4, 8, generator=generator) for name in ("x", "state")}


@pytest.fixture
def module() -> nn.Module:
    torch.manual_seed(0)
    return Small().eval().requires_grad_(False)


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    (tmp_path / "work").mkdir()
    return BuildContext("", "cpu", "fp32", 1, tmp_path / "work", tmp_path / "caches" / "own", lambda _seed: {})


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A GPU of capability 8.9 whose engines are ONNX models; gives the targets for which it compiled."""
    import onnx

    compiled: list[str] = []
    (device,) = (each for each in onnxruntime.get_ep_devices() if each.ep_name == CPU)

    def compile_model(model: Path, folder: Path, target: str, _shared: Path) -> None:
        compiled.append(target)
        shutil.copytree(model.parent, folder)
        nodes = Counter(node.op_type for node in onnx.load(str(model), load_external_data=False).graph.node)
        about = {"engines": 1, "engine_s": 0.5, "engine_peak_bytes": 1, "engine_bytes": 96, "precisions": "float"}
        said = {**about, "inside": dict(nodes), "outside": {}, "provider": "0.5.0"}
        (folder / ABOUT).write_text(json.dumps(said), encoding="utf-8")
        (folder / "0.engine").write_bytes(engine(target))

    monkeypatch.setattr(compiler, "version", lambda _name: "0.5.0")
    monkeypatch.setattr(compiler, "compile_model", compile_model)
    monkeypatch.setattr(compiler, "check_context", lambda path, _sizes: read_engine(path.with_name("0.engine")))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 9))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA GeForce RTX 4090")
    monkeypatch.setattr(session, "_device", lambda: device)
    for part in (rtx, session):
        monkeypatch.setattr(part, "PROVIDER", CPU)
    own = onnxruntime.SessionOptions.add_provider_for_devices

    def add(self: Any, devices: list[Any], _options: dict[str, str]) -> None:
        own(self, devices, {})  # the CPU provider has none of the options

    monkeypatch.setattr(onnxruntime.SessionOptions, "add_provider_for_devices", add)
    return compiled


def built(module: nn.Module, context: BuildContext, options: Options | None = None) -> Any:
    assert BACKEND.build is not None
    return BACKEND.build(module, inputs(), options or Options(), context)


class TestRunning:
    def test_computes_what_eager_does_on_every_bound_set(
        self, module: nn.Module, context: BuildContext, card: list[str]
    ) -> None:
        made = built(module, context)
        assert isinstance(made, Session)
        assert card == ["sm89"], "of this GPU"
        calls = [made.bind(inputs(seed)) for seed in range(3)]
        found = [call() for call in calls]
        for seed, outputs in enumerate(found):
            wanted = module(*inputs(seed).values())
            assert [relative(mine, theirs) < 1e-6 for mine, theirs in zip(outputs, wanted, strict=True)] == [True] * 2
        assert made.captures() is False

    def test_its_proof_is_the_compiler_s_and_the_session_s(
        self, module: nn.Module, context: BuildContext, card: list[str]
    ) -> None:
        proof = built(module, context).prove()
        assert (proof.fell_back, proof.graphs, proof.artifact_bytes) == ("", 1, 96)
        assert {name: proof.facts[name] for name in ("target", "engines", "tensorrt_rtx", "providers")} == {
            "target": "sm89", "engines": 1, "tensorrt_rtx": "1.7.1", "providers": CPU,
        }  # fmt: skip
        assert proof.operators_inside["Tanh"] == 1
        assert proof.facts["export_from_cache"] is False
        again = built(module, context).prove()
        assert again.facts["export_from_cache"] is True
        assert len(card) == 1
        assert again.graph_hash == proof.graph_hash

    @pytest.mark.usefixtures("card")
    def test_a_node_outside_of_engines_is_a_fallback(
        self, module: nn.Module, context: BuildContext, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The session's own word, whatever the compiler counted: here all nodes run on the CPU's provider."""
        monkeypatch.setattr(rtx, "PROVIDER", "NvTensorRTRTXExecutionProvider")
        fallen = built(module, context).prove().fell_back
        assert fallen.startswith(CPU)
        assert "1 Tanh" in fallen

    def test_kept_engines_are_opened(self, module: nn.Module, context: BuildContext, card: list[str]) -> None:
        saved: list[Mapping[str, Any]] = []
        first = built(module, replace(context, keep=lambda save: saved.append(save())))
        assert BACKEND.open is not None
        opened = BACKEND.open(saved[0], inputs(), Options(), context)
        assert len(card) == 1
        assert opened.prove().graph_hash == first.prove().graph_hash
        assert torch.equal(opened.bind(inputs())()[0], first.bind(inputs())()[0])


@pytest.mark.usefixtures("card")
class TestSession:
    @pytest.fixture
    def given(self, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
        """Options with which a provider was added."""
        found: list[dict[str, str]] = []
        own = onnxruntime.SessionOptions.add_provider_for_devices

        def add(self: Any, devices: list[Any], options: dict[str, str]) -> None:
            found.append(options)
            own(self, devices, options)

        monkeypatch.setattr(onnxruntime.SessionOptions, "add_provider_for_devices", add)
        return found

    @pytest.mark.parametrize("graph", [False, True])
    def test_a_capture_and_the_runtime_cache_are_asked_for(
        self, graph: bool, module: nn.Module, context: BuildContext, given: list[dict[str, str]]
    ) -> None:
        made = built(module, context, Options(cuda_graph=graph))
        runtime = str(context.cache_dir / "runtime")
        assert given == [{"enable_cuda_graph": str(int(graph)), "nv_runtime_cache_path": runtime}]
        assert made.captures() is graph


class TestCards:
    @pytest.mark.parametrize(
        ("name", "capability"),
        [("NVIDIA H100 80GB HBM3", (9, 0)), ("NVIDIA A100-SXM4-80GB", (8, 0)), ("NVIDIA B200", (10, 0))],
    )
    def test_one_without_engines_is_refused_by_name(
        self, name: str, capability: tuple[int, int], module: nn.Module, context: BuildContext, card: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:  # fmt: skip
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)
        with pytest.raises(Unsupported) as refused:
            built(module, context)
        wanted = (name, ".".join(map(str, capability)), "8.6, 8.9, 12.0, 12.1", "tensorrt-aot")
        assert [part for part in wanted if part not in str(refused.value)] == []
        assert card == []

    def test_engines_for_another_are_neither_opened_nor_bound(
        self, module: nn.Module, context: BuildContext, card: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session, "_device", None)
        saved: list[Mapping[str, Any]] = []
        made = built(module, replace(context, keep=lambda save: saved.append(save())), Options(target="sm120"))
        assert isinstance(made, BuiltForAnother)
        assert BACKEND.open is not None
        opened = BACKEND.open(saved[0], inputs(), Options(target="sm120"), context)
        assert isinstance(opened, BuiltForAnother)
        assert opened.prove().graph_hash == made.prove().graph_hash
        assert made.prove().facts["target"] == "sm120"
        assert card == ["sm120"]
        with pytest.raises(AssertionError, match="x, state"):
            made.bind(inputs())
