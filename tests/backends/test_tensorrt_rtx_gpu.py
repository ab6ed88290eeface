"""TensorRT for RTX on an RTX card: engines are built for it, compute what eager does, and are exported and opened."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="rows are computed by torch")
pytest.importorskip("onnxscript", reason="torch exports with onnxscript")
pytest.importorskip("onnxruntime_ep_nv_tensorrt_rtx", reason="engines run by the provider's plugin")

import torch
from artifacts import exported
from lab import FAST, Recorder, Swept, sweep
from torch import Tensor, nn
from toys import LIBRARY_WARNINGS, relative

from bakeoff.artifact.export import verify
from bakeoff.backends.backend import BuildContext, Engine, Unsupported
from bakeoff.backends.tensorrt_rtx.backend import BACKEND
from bakeoff.backends.tensorrt_rtx.compile_engine import PROVIDER
from bakeoff.backends.tensorrt_rtx.options import TARGETS, Options, capability_of
from bakeoff.export import load
from bakeoff.plan.request import request_of
from bakeoff.variant import parse_variant

CAPABILITY = torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)
TARGET = f"sm{CAPABILITY[0]}{CAPABILITY[1]}"
pytestmark = [
    LIBRARY_WARNINGS,
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(TARGET not in TARGETS, reason=f"compute capability {CAPABILITY} is not an RTX card's"),
]
LIMIT = 5e-3
"""Relative L2 of fp16: a product of 64 values with 11 bits each."""
PATIENT = replace(FAST, build_deadline_s=300.0, large_build_deadline_s=300.0)


class Small(nn.Module):
    """A layer, and a sum along an axis."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        mixed = torch.tanh(self.layer(x)) + state
        return mixed.sum(-1), mixed


def inputs(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(8, 64, generator=generator).cuda().half() for name in ("x", "state")}


@pytest.fixture
def module() -> nn.Module:
    torch.manual_seed(0)
    return Small().eval().requires_grad_(False).cuda().half()


def built(module: nn.Module, folder: Path, options: Options) -> Engine:
    (folder / "work").mkdir(exist_ok=True)
    context = BuildContext("", "cuda", "fp16", 1, folder / "work", folder / "caches" / "own", lambda _seed: {})
    assert BACKEND.build is not None
    return BACKEND.build(module, inputs(), options, context)


class TestEngine:
    @pytest.mark.parametrize("graph", [False, True])
    def test_computes_what_eager_does_on_every_bound_set(self, graph: bool, module: nn.Module, tmp_path: Path) -> None:
        made = built(module, tmp_path, Options(cuda_graph=graph))
        calls = [made.bind(inputs(seed)) for seed in range(3)]
        for _ in range(3):  # a captured graph is recorded by the first
            found = [tuple(output.clone() for output in call()) for call in calls]
            torch.cuda.synchronize()
            for seed, outputs in enumerate(found):
                wanted = module(*inputs(seed).values())
                errors = [relative(mine, theirs) for mine, theirs in zip(outputs, wanted, strict=True)]
                assert max(errors) < LIMIT

    def test_every_node_is_in_its_engine(self, module: nn.Module, tmp_path: Path) -> None:
        proof = built(module, tmp_path, Options()).prove()
        assert (proof.fell_back, dict(proof.operators_outside)) == ("", {})
        assert (proof.facts["target"], proof.facts["engines"]) == (TARGET, 1)
        assert PROVIDER in str(proof.facts["providers"])

    def test_what_it_finishes_for_its_card_is_in_the_runtime_cache(self, module: nn.Module, tmp_path: Path) -> None:
        made = built(module, tmp_path, Options())
        made.bind(inputs())()
        torch.cuda.synchronize()
        made.close()
        del made
        assert list((tmp_path / "caches" / "own" / "runtime").rglob("*"))

    @pytest.mark.parametrize("graph", [False, True])
    def test_a_port_carries_a_state(self, graph: bool, module: nn.Module, tmp_path: Path) -> None:
        port = built(module, tmp_path, Options(cuda_graph=graph)).port(inputs(), ("total", "mixed"), {"mixed": "state"})
        x, state = inputs().values()
        for _ in range(4):
            port.call()
            total, state = module(x, state)
            assert relative(port.outputs["total"], total) < LIMIT
            port.advance()

    def test_other_inputs_are_refused(self, module: nn.Module, tmp_path: Path) -> None:
        made = built(module, tmp_path, Options())
        with pytest.raises(Unsupported):
            made.bind({name: tensor.float() for name, tensor in inputs().items()})


def swept(text: str, folder: Path) -> Swept:
    return sweep(replace(request_of(parse_variant(f"toy:small.world/{text}@cuda")), policy=PATIENT), folder)


@pytest.mark.parametrize("text", ["tensorrt-rtx/fp16", "tensorrt-rtx/bf16", "tensorrt-rtx[cuda_graph]/fp16"])
def test_a_swept_row_is_right_and_proves_what_ran(text: str, tmp_path: Path) -> None:
    (stored,) = swept(text, tmp_path).done.stored
    made = stored.record.measurement
    assert (made.status, made.reason) == ("ok", "")
    assert made.parity is not None
    assert made.parity.passed
    assert made.proof is not None
    assert made.proof.fell_back == ""


def test_an_exported_artifact_is_loaded_and_verified(tmp_path: Path) -> None:
    done = exported("toy:small.world/tensorrt-rtx/fp16@cuda", tmp_path / "artifact", tmp_path / "runs")
    needs = {need.what: need.value for need in done.manifest.needs}
    assert needs["compute capability"] == capability_of(TARGET)
    again = verify(done.folder, done.manifest, False, Recorder())
    assert again.mismatches == ()
    assert again.checked
    assert all(one.passed for one in again.checked)
    opened = load(done.folder)
    assert all(torch.isfinite(output).all() for output in opened(**opened.sample()).values())


def test_an_artifact_for_this_card_that_was_made_without_it_is_verified(tmp_path: Path) -> None:
    done = exported(f"toy:small.world/tensorrt-rtx[target={TARGET}]/fp16@cpu", tmp_path / "artifact", tmp_path / "runs")
    assert done.verified is None
    again = verify(done.folder, done.manifest, False, Recorder())
    assert all(one.passed for one in again.checked)
