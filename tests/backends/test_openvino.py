"""OpenVINO on a toy: correct outputs, inputs checked at bind, the requested precision, and no network access."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="models are exported by torch")
pytest.importorskip("openvino", reason="the backend is openvino's")

import torch
from toys import LIBRARY_WARNINGS, Toy, build_toy, check_misfits

from bakeoff.backends.backend import BuildContext
from bakeoff.backends.openvino import BACKEND, Options
from bakeoff.machine import host
from bakeoff.worker.build import free_weights
from bakeoff.worker.failures import StageError

pytestmark = LIBRARY_WARNINGS


@pytest.fixture(autouse=True)
def _work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return build_toy("world/openvino/fp32", tmp_path_factory.mktemp("openvino"))


def test_gives_what_eager_gives_and_refuses_other_inputs(toy: Toy) -> None:
    assert toy.error() < 1e-6
    check_misfits(toy)


def test_an_output_that_is_an_unchanged_input_leaves_the_input_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Passes(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * y, y

    inputs = {"x": torch.ones(4), "y": torch.full((4,), 2.0)}
    context = BuildContext("", "cpu", "fp32", 1, tmp_path, tmp_path / "cache", lambda _seed: {})
    engine = BACKEND.build(Passes().eval(), inputs, Options(), context)
    monkeypatch.setattr(torch, "empty", lambda shape, dtype: torch.full(shape, float("nan"), dtype=dtype))
    call = engine.bind(inputs)
    for _ in range(2):
        product, unchanged = call()
        assert inputs["y"].tolist() == [2, 2, 2, 2]
        assert product.tolist() == unchanged.tolist() == [2, 2, 2, 2]


def test_weights_in_bf16_live_as_long_as_the_engine(tmp_path: Path) -> None:
    """OpenVINO points to their memory and does not keep it; the lab frees the module's after the build."""

    class Scales(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.full((256,), 3.0))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (x * self.scale,)

    module, inputs = Scales().eval().to(torch.bfloat16), {"x": torch.ones(256, dtype=torch.bfloat16)}
    module.requires_grad_(False)
    context = BuildContext("", "cpu", "bf16", 1, tmp_path, tmp_path / "cache", lambda _seed: {})
    engine = BACKEND.build(module, inputs, Options(), context)
    call = engine.bind(inputs)
    free_weights(module)
    del module
    gc.collect()
    reused = [torch.full((256,), float("nan"), dtype=torch.bfloat16) for _ in range(500)]
    assert call()[0].tolist() == [3.0] * 256
    del reused


def test_says_in_what_precision_its_products_are(toy: Toy) -> None:
    proof = toy.proof
    assert (proof.fell_back, proof.graphs) == ("", 1)
    assert proof.facts["products_in_f32"] >= 1
    assert proof.operators_inside["FullyConnected"] == 1
    assert proof.graph_hash


@pytest.mark.parametrize("hint", ["typed", "dtype"])
def test_bf16_is_bf16_where_the_cpu_has_it(tmp_path: Path, hint: str) -> None:
    made = build_toy(f"world/openvino[hint={hint}]/bf16", tmp_path)
    if host.has_native_bf16():
        assert (made.proof.fell_back, made.proof.facts["products_in_bf16"]) == ("", 1)
    else:
        assert "in f32" in made.proof.fell_back
    assert made.error() < (1e-2 if hint == "typed" else 1.0)


def test_half_precision_that_ran_in_another_is_falling_back(tmp_path: Path) -> None:
    proof = build_toy("world/openvino/fp16", tmp_path).proof
    if proof.facts.get("products_in_f16"):
        assert proof.fell_back == ""
    else:
        assert "fp16" in proof.fell_back
        assert "1 in f32" in proof.fell_back


def test_a_traced_build_has_the_same_graph_and_names_its_nodes(toy: Toy, tmp_path: Path) -> None:
    traced = build_toy("world/openvino/fp32", tmp_path, trace=True)
    trace = traced.engine.trace(traced.built.calls[0])
    assert traced.proof.graph_hash == toy.proof.graph_hash
    assert any("FullyConnected" in kernel.name for kernel in trace.kernels)
    assert 0 < sum(kernel.ns for kernel in trace.kernels) <= trace.total_ns


class TestWhatItCannotTake:
    def test_torchaos_weights(self, tmp_path: Path) -> None:
        pytest.importorskip("torchao", reason="int8 is torchao's")
        with pytest.raises(StageError) as refused:
            build_toy("world/int8[least=0]+openvino/fp32", tmp_path)
        assert refused.value.status == "unsupported"
        assert "torchao" in refused.value.reason

    def test_an_operator_is_named(self, tmp_path: Path) -> None:
        pytest.importorskip("torchao", reason="int8-static is torchao's")
        with pytest.raises(StageError) as refused:
            build_toy("picture/int8-static[seeds=1]+openvino/fp32", tmp_path)
        assert refused.value.status == "unsupported"
        assert "aten.convolution" in refused.value.reason


_SILENT = """
import socket, sys, urllib.request, warnings
warnings.simplefilter("ignore")

def refuse(*_arguments, **_named):
    print("NETWORK")
    raise OSError("no network here")

socket.socket.connect = socket.getaddrinfo = urllib.request.urlopen = refuse

import multiprocessing

class Process(multiprocessing.Process):
    def start(self):
        print("PROCESS")

multiprocessing.Process = Process
from pathlib import Path
from toys import build_toy

print(build_toy("world/openvino/fp32", Path.cwd()).error() < 1e-6)
import openvino.tools.ovc.convert_impl as convert, openvino.tools.ovc.telemetry_utils as utils
print(convert.tm.__name__, utils.tm.__name__, "openvino_telemetry" in sys.modules)
import openvino_telemetry
print(openvino_telemetry.__name__)
"""


def test_sends_nothing_and_leaves_nothing_at_home(tmp_path: Path) -> None:
    """It would send by urllib from a process of its own, and keep a client's id in ~/intel."""
    home = tmp_path / "home"
    (home / "intel").mkdir(parents=True)
    (home / "intel" / "openvino_telemetry").write_text("1")  # whoever agreed once
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "TF_BUILD", "JENKINS_URL")}
    environment |= {"HOME": str(home), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    done = subprocess.run(
        [sys.executable, "-c", _SILENT], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    stub = "openvino.tools.ovc.telemetry_stub"
    assert done.stdout.splitlines() == ["True", f"{stub} {stub} False", "openvino_telemetry"], done.stderr[-2000:]
    left = sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
    assert left == ["intel/openvino_telemetry"]
