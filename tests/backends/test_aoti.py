"""AOTInductor on a toy: correct outputs, inputs checked at bind, and a cache that returns only the same package."""

import zipfile
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="AOTInductor is a part of torch")

from toys import LIBRARY_WARNINGS, NEEDS_COMPILER, Toy, build_toy, check_misfits

from bakeoff.backends import aoti
from bakeoff.backends.torch_internals import KERNEL_CONTEXT
from bakeoff.worker.failures import StageError

pytestmark = [
    LIBRARY_WARNINGS,
    NEEDS_COMPILER,
]


@pytest.fixture(autouse=True)
def _work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("aoti")


@pytest.fixture(scope="module")
def toy(folder: Path) -> Toy:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
        return build_toy("world/aoti/fp32", folder)


@pytest.fixture(autouse=True)
def _compiler_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))


def test_gives_what_eager_gives_and_refuses_other_inputs(toy: Toy) -> None:
    assert toy.error() < 1e-6
    check_misfits(toy)


def test_says_what_the_package_calls(toy: Toy) -> None:
    proof = toy.proof
    assert (proof.fell_back, proof.graphs, proof.graph_breaks) == ("", 1, 0)
    assert proof.operators_inside["aten.scaled_dot_product_attention"] == 1
    assert proof.operators_outside["mm_out"] == 1
    assert proof.facts["kernels_called"] >= 1
    assert proof.facts["package_from_cache"] is False
    assert proof.artifact_bytes


@pytest.mark.usefixtures("toy")
class TestCache:
    def test_the_same_again_is_not_built(self, toy: Toy, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(aoti, "compile_package", None)
        again = build_toy("world/aoti/fp32", folder)
        assert again.proof.facts["package_from_cache"] is True
        assert again.proof.graph_hash == toy.proof.graph_hash
        assert again.error() < 1e-6


class TestSeparateWeights:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(aoti, "_SEPARATE_WEIGHTS_BYTES", 1000)

    def test_outlive_the_module(self, folder: Path) -> None:
        pytest.importorskip("torchao", reason="int8 is torchao's")
        made = build_toy("world/int8[least=0]+aoti/bf16", folder)
        assert made.proof.facts["weights_outside_package_bytes"] >= 1000
        assert all(weight is None for part in made.module.modules() for weight in part._parameters.values())
        assert made.error() < 1e-2
        assert made.built.fallback is None
        assert made.proof.operators_outside["_int_mm_out"] == 1

    def test_are_not_for_freezing(self, folder: Path) -> None:
        with pytest.raises(StageError) as refused:
            build_toy("world/aoti[freezing]/fp32", folder)
        assert refused.value.status == "unsupported"
        assert "freezing" in refused.value.reason


def test_the_package_that_is_timed_names_its_kernels_and_holds_no_paths(toy: Toy, folder: Path) -> None:
    for path in (folder / "cache").glob("*.pt2"):
        with zipfile.ZipFile(path) as package:
            sources = [package.read(name).decode() for name in package.namelist() if name.endswith(".cpp")]
        assert any("RAIIAtenRecordFunctionHandle record_" in source for source in sources)
        assert not [source for source in sources if KERNEL_CONTEXT in source]
    trace = toy.engine.trace(toy.built.calls[0])
    assert any(kernel.own for kernel in trace.kernels)
    assert any(kernel.name.startswith("aoti_torch_cpu_mm_out") for kernel in trace.kernels)
    assert [kernel.ns for kernel in trace.kernels] == sorted((kernel.ns for kernel in trace.kernels), reverse=True)
