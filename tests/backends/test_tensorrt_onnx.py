"""TensorRT from ONNX, an example, by a stand-in for TensorRT: the order of its calls, data flow, and refusals."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="models are torch's")
pytest.importorskip("onnxscript", reason="torch.onnx needs it")
pytest.importorskip("onnxruntime", reason="the stand-in runs engines by it")

import torch
from fake_cuda_graphs import install_for_compiled
from fake_tensorrt import Fake, installed
from torch import Tensor, nn
from toys import LIBRARY_WARNINGS

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import BuildContext, Engine, Unsupported
from bakeoff.backends.format import Opening, WriteRequest
from bakeoff.backends.port import SwappingPort

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "backends" / "tensorrt_onnx.py"
BACKEND = resolve_backend(f"{EXAMPLE}:BACKEND")
Options = BACKEND.options
pytestmark = LIBRARY_WARNINGS


class NewOutputs(nn.Module):
    def forward(self, x: Tensor, state: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x * 2 + state + other, state * 0.5 + x, other + 1


def drawn(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(8, 16, generator=generator) for name in ("x", "state", "other")}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=7))
    with installed() as made:
        yield made


def context(folder: Path, dtype: str = "fp32") -> BuildContext:
    (folder / "work").mkdir(exist_ok=True)
    return BuildContext("", "cuda", dtype, 1, folder / "work", folder / "cache", lambda _seed: {})


def build(folder: Path, options: object = None, dtype: str = "fp32") -> Engine:
    assert BACKEND.build is not None
    return BACKEND.build(NewOutputs().eval(), drawn(0), options or Options(), context(folder, dtype))


def test_an_engine_is_built_as_documented_saved_and_computes_what_it_is_bound_to(fake: Fake, tmp_path: Path) -> None:
    engine = build(tmp_path)
    steps = ["network 10", "parse", "clear TF32", "timing cache of 0 bytes", "build at level 3", "context"]
    assert fake.log == steps
    calls = [(drawn(seed), engine.bind(drawn(seed))) for seed in (0, 1)]
    for given, call in calls * 2:
        for found, wanted in zip(call(), NewOutputs()(*given.values()), strict=True):
            torch.testing.assert_close(found, wanted)
    assert fake.log[len(steps) :] == ["execute on 7"] * 4
    proof = engine.prove()
    assert (proof.fell_back, proof.facts) == ("", {"layers": 7, "engine_from_cache": False})
    fake.log.clear()
    assert build(tmp_path).prove().facts["engine_from_cache"]
    assert fake.log == ["context"]
    (plan,) = (tmp_path / "cache").glob("*.plan")
    plan.write_bytes(b"nothing")
    build(tmp_path, dtype="fp32")
    assert "timing cache of 7 bytes" in fake.log


@pytest.mark.usefixtures("fake")
def test_a_loop_swaps_what_it_carries(tmp_path: Path) -> None:
    values = drawn(0)
    port = build(tmp_path).port(values, ("y", "next_state", "more"), {"next_state": "state", "more": "other"})
    assert type(port) is SwappingPort
    for step in range(5):
        values["x"] = drawn(step)["x"]
        port.feed({"x": values["x"]})
        port.call()
        y, values["state"], values["other"] = NewOutputs()(*values.values())
        torch.testing.assert_close(port.outputs["y"], y)
        assert port.advance() == 0


def test_tf32_stays_only_for_its_dtype_and_the_level_is_the_builders(fake: Fake, tmp_path: Path) -> None:
    build(tmp_path, Options(level=5), "tf32")
    assert "clear TF32" not in fake.log
    assert "build at level 5" in fake.log
    assert "level=6" in (BACKEND.unsupported(Options(level=6), "cuda", "bf16") or "")


def test_what_the_parser_or_the_builder_refuses_is_an_error_with_its_reason(fake: Fake, tmp_path: Path) -> None:
    fake.errors = ("No importer registered for op: Foo", "unsupported type")
    with pytest.raises(Unsupported, match="No importer registered for op: Foo; unsupported type"):
        build(tmp_path)
    fake.errors, fake.builds = (), False
    with pytest.raises(RuntimeError, match="could not build"):
        build(tmp_path)
    assert not [*(tmp_path / "cache").glob("*.plan")]


@pytest.mark.usefixtures("fake")
def test_memory_that_is_not_contiguous_is_refused(tmp_path: Path) -> None:
    engine, given = build(tmp_path), drawn(0)
    with pytest.raises(Unsupported):
        engine.bind({**given, "x": given["x"].t().contiguous().t()})


@pytest.mark.parametrize("graph", [False, True])
def test_an_engine_is_an_artifact(graph: bool, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if graph:
        install_for_compiled(monkeypatch)
    assert BACKEND.artifact is not None
    (tmp_path / "artifact").mkdir()
    request = WriteRequest(NewOutputs(), drawn(0), Options(), context(tmp_path), tmp_path / "artifact", "step")
    written = BACKEND.artifact.write(request)
    path = tmp_path / "artifact" / written.file
    run = BACKEND.artifact.read(path, (), Opening("cuda", "fp32", 1, Options(graph=graph)))
    outputs = []
    for seed in range(3):
        given = drawn(seed)
        outputs.append((run([*given.values()]), NewOutputs()(*given.values())))
    for found, wanted in outputs:
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)
    assert {need.what for need in written.needs} == {"tensorrt", "gpu", "driver"}
    assert fake.log[-1] == "execute on 7"
