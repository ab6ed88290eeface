"""torchao float8 on a toy: only weights on a CPU; activations need a GPU that torchao supports."""

import inspect
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="layers are torch's")
pytest.importorskip("torchao", reason="float8 is torchao's")

import torch
from torchao.float8 import inference
from torchao.quantization import quant_api
from toys import LIBRARY_WARNINGS, NEEDS_COMPILER, build_toy

from bakeoff.backends import fp8
from bakeoff.worker.failures import StageError

pytestmark = LIBRARY_WARNINGS


@pytest.fixture(autouse=True)
def _work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo

    torch._dynamo.reset()
    monkeypatch.chdir(tmp_path)


def test_weights_become_float8(tmp_path: Path) -> None:
    made = build_toy("world/fp8[least=0]+eager/bf16", tmp_path)
    assert made.built.prepared.quantised == {"world": "float8 weight-only"}
    assert made.built.fallback is None
    assert 1e-4 < made.error() < 1e-1


@pytest.mark.skipif(torch.cuda.is_available(), reason="here torchao may have a GPU for it")
@pytest.mark.parametrize("kind", ["per-row", "per-tensor"])
def test_activations_need_a_gpu_by_torchaos_own_words(tmp_path: Path, kind: str) -> None:
    with pytest.raises(StageError) as refused:
        build_toy(f"world/fp8[kind={kind},least=0]+eager/bf16", tmp_path)
    assert refused.value.status == "unsupported"
    assert "Float8 dynamic quantization requires CUDA compute capability" in refused.value.reason
    assert "\n" not in refused.value.reason


@pytest.mark.parametrize(
    "said",
    [
        "Float8 dynamic quantization requires CUDA compute capability",
        "Float8 dynamic activation quantization is only supported on CUDA>=8.9 and MI300+",
        "PerRow quantization only works for bfloat16 precision input weight",
    ],
)
def test_torchaos_refusals_are_no_failed_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """The words are torchao's own; the last two it has for GPUs alone."""
    assert said in inspect.getsource(quant_api) + inspect.getsource(inference)

    def refuse(*_arguments: object) -> None:
        raise AssertionError(said)

    monkeypatch.setattr(fp8, "quantise_linear", refuse)
    with pytest.raises(StageError) as refused:
        build_toy("world/fp8[least=0]+eager/bf16", tmp_path)
    assert refused.value.status == "unsupported"
    assert said in refused.value.reason


@NEEDS_COMPILER
def test_inductor_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    made = build_toy("world/fp8[least=0]+inductor/bf16", tmp_path)
    assert (made.built.fallback, made.proof.fell_back) == (None, "")
    assert made.error() < 1e-1
