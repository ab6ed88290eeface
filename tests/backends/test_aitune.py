"""NVIDIA AITune as a row: a fake on every host, and the real one where it is installed."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="AITune tunes torch's modules")

import fake_aitune
import torch
from aitune_toy import NOT_IMPORTABLE
from fake_aitune import Fake
from torch import nn
from toys import LIBRARY_WARNINGS, NEEDS_COMPILER

from bakeoff.backends import resolve_backend
from bakeoff.backends.aitune import BACKEND, Options
from bakeoff.backends.backend import BuildContext, Engine
from bakeoff.models import resolve_component
from bakeoff.plan.request import Request
from bakeoff.plan.suites import compositions
from bakeoff.variant import options_of, parse_variant

pytestmark = LIBRARY_WARNINGS
SUPPORT = Path(__file__).parents[1] / "support"
INDUCTOR = Options("inductor")


class Scaled(nn.Module):
    """One linear layer and a few elementwise operators."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (torch.sin(self.layer(x)) * 2 + 1,)


class Broken(Scaled):
    """The same with a graph break."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        hidden = self.layer(x)
        torch._dynamo.graph_break()
        return (torch.sin(hidden) * 2 + 1,)


def drawn(seed: str) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(2, 8, generator=torch.Generator().manual_seed(len(seed)))}


MEASURED = drawn("what is measured")


def context(folder: Path) -> BuildContext:
    return BuildContext("aitune", "cpu", "fp32", 1, folder, folder, drawn)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """The fake, in which inductor's place is taken by a copy of the module."""
    found = fake_aitune.install(monkeypatch)
    found.compiler = lambda module: module.forward
    return found


def built(folder: Path, options: Options, module: nn.Module | None = None) -> Engine:
    """An engine that was called once."""
    assert BACKEND.build is not None
    engine = BACKEND.build(module or Scaled(), MEASURED, options, context(folder))
    with torch.no_grad():
        engine.bind(MEASURED)()
    return engine


@NEEDS_COMPILER
def test_a_selected_compiler_is_proven_by_what_dynamo_and_inductor_counted(fake: Fake, tmp_path: Path) -> None:
    fake.compiler = torch.compile
    module = Broken()
    with torch.no_grad():
        (expected,) = module(*MEASURED.values())
        engine = built(tmp_path, INDUCTOR, module)
        (found,) = engine.bind(MEASURED)()
    torch.testing.assert_close(found, expected)
    proof = engine.prove()
    assert (proof.fell_back, proof.graphs, proof.graph_breaks, proof.recompiles) == ("", 2, 1, ())
    assert proof.facts["aitune_selected"] == "TorchInductorJitBackend()"
    assert proof.facts["aitune_speedup"] == 1.5
    assert proof.facts["kernels_generated"] >= 1
    with torch.no_grad():
        engine.bind({"x": torch.randn(5, 8)})()
    assert "size mismatch" in engine.prove().recompiles[0]


def test_a_compiler_that_compiled_no_graph_is_a_fallback(fake: Fake, tmp_path: Path) -> None:
    """AITune selects inductor for a module that dynamo may not enter, and says success."""
    assert fake.asked == []
    proof = built(tmp_path, INDUCTOR).prove()
    assert proof.fell_back == "eager: AITune selected TorchInductorJitBackend(), but inductor compiled no graph"
    assert proof.graphs == 0


def test_eager_that_aitune_kept_is_a_fallback_with_its_own_figures(fake: Fake, tmp_path: Path) -> None:
    fake.speeds["TorchInductorJitBackend"] = 0.97
    proof = built(tmp_path, Options()).prove()
    assert proof.fell_back.startswith(
        "eager, which AITune kept: TorchInductorJitBackend() was 0.97x by its own measurement; "
        "TensorRTBackend() failed: Device cpu is not supported by the backend TensorRTBackend; TorchInductorAot"
    )
    assert "\n" not in proof.fell_back
    assert proof.facts["aitune_selected"] == "TorchEagerBackend()"
    assert "aitune_speedup" not in proof.facts


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (Options("inductor-aot", against_eager=False), "No correct backend found; TorchInductorAotBackend() failed"),
        (Options("inductor", "first"), "There is no valid backend for a module"),
    ],
)
def test_a_module_that_aitune_could_not_tune_is_a_fallback(
    fake: Fake, tmp_path: Path, options: Options, error: str
) -> None:
    fake.speeds["TorchInductorJitBackend"] = 1.005
    proof = built(tmp_path, options).prove()
    assert proof.fell_back.startswith("the module as it was: AITune's tuning failed: ")
    assert error in proof.fell_back
    assert proof.facts["aitune_selected"] == ""


@pytest.mark.parametrize(
    ("text", "strategy", "number", "against_eager"),
    [
        ("aitune[]", "MaxThroughputStrategy", 4, True),
        ("aitune[backend=inductor,strategy=latency]", "MinLatencyStrategy", 1, True),
        ("aitune[backend=inductor,strategy=first,against_eager=false]", "FirstWinsStrategy", 1, False),
    ],
)
def test_options_are_aitunes_strategy_and_candidates(
    fake: Fake, tmp_path: Path, text: str, strategy: str, number: int, against_eager: bool
) -> None:
    (use,) = parse_variant(f"toy:tiny.world/{text}/fp32@cpu").backends
    built(tmp_path, options_of(BACKEND, dict(use.options)))
    ((asked, candidates, eager),) = fake.asked
    assert (asked, len(candidates), eager) == (strategy, number, against_eager)


def test_it_tunes_on_drawn_inputs_and_never_on_the_measured_ones(fake: Fake, tmp_path: Path) -> None:
    built(tmp_path, INDUCTOR)
    ((recorded,),) = fake.recorded
    assert recorded.shape == MEASURED["x"].shape
    assert not torch.equal(recorded, MEASURED["x"])


def test_a_second_engine_leaves_the_first_tuned_and_aitunes_settings_as_they_were(fake: Fake, tmp_path: Path) -> None:
    """`tune` tunes all registered modules, and puts those back that were tuned before."""
    first, second = built(tmp_path, INDUCTOR), built(tmp_path, INDUCTOR)
    assert [one.tuned.state.value for one in (first, second)] == ["tuned", "tuned"]  # type: ignore[attr-defined]
    assert fake.registry.modules == {}
    assert fake.config.device_after_tuning == "meta"
    assert fake.config.tuning_data_output_path == Path("never-written")


@pytest.mark.parametrize("candidate", ["tensorrt", "torch-tensorrt", "onnxruntime"])
def test_what_runs_on_cuda_only_is_refused_on_a_cpu(candidate: str) -> None:
    reason = BACKEND.unsupported(Options(candidate), "cpu", "fp32")  # type: ignore[arg-type]
    assert reason == f"AITune's backend {candidate} runs on CUDA only; use backend=inductor"
    assert BACKEND.unsupported(Options(candidate), "cuda", "fp32") is None  # type: ignore[arg-type]


def test_what_is_missing_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bakeoff.backends.backend.find_spec", lambda name: None if name == "tensorrt" else object())
    reason = BACKEND.unavailable(Options(), "cpu")
    assert reason is not None
    assert reason.startswith("tensorrt is not installed; pip install ")
    assert "'aitune==0.6.*'" in reason


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_default_suite_has_no_row_of_it(device: str) -> None:
    request, toy = Request("toy"), resolve_component("toy")
    names = {step.backend.name for one in compositions(request, toy, device) for step in one.steps}
    full = {
        step.backend.name for one in compositions(replace(request, suite="full"), toy, device) for step in one.steps
    }
    assert "aitune" not in names
    assert "aitune" in full


def test_its_files_are_in_the_cache_folder(tmp_path: Path) -> None:
    environment = resolve_backend("aitune").footprint.environment(tmp_path)
    assert environment["AITUNE_CACHE_DIR"] == str(tmp_path / "aitune")
    assert "TORCHINDUCTOR_CACHE_DIR" in environment


def real(text: str, folder: Path) -> tuple[float, dict[str, object]]:
    """The error and the proof of a toy that the real AITune built."""
    command = [sys.executable, str(SUPPORT / "aitune_toy.py"), text, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    if ended.returncode == NOT_IMPORTABLE:
        pytest.skip(ended.stdout.strip())
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.strip().rpartition("\n")[2])
    return found["error"], found["proof"]


@NEEDS_COMPILER
def test_the_real_one_selects_inductor(tmp_path: Path) -> None:
    error, proof = real("world/aitune[backend=inductor,against_eager=false]/fp32", tmp_path)
    assert error < 1e-5
    assert (proof["fell_back"], proof["graphs"], proof["graph_breaks"]) == ("", 1, 0)
    assert proof["facts"]["aitune_selected"] == "TorchInductorJitBackend()"  # type: ignore[index]


def test_the_real_one_keeps_eager_where_its_candidate_takes_no_cpu(tmp_path: Path) -> None:
    """As the fake does; `unsupported` refuses the row before, so the plan never asks for it."""
    _, proof = real("world/aitune[backend=onnxruntime]/fp32", tmp_path)
    assert proof["fell_back"] == (
        "eager, which AITune kept: ONNXRuntimeBackend() failed: Device cpu is not supported by the backend "
        "ONNXRuntimeBackend"
    )
