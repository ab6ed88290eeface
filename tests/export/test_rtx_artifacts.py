"""Artifacts of TensorRT for RTX, which no host of the tests can open: their files are checked before that is said.

Most have a made engine, in place of the program of an artifact that a CPU wrote; with the plugin one is exported.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="artifacts are opened with torch")
pytest.importorskip("onnx", reason="context models are ONNX models")

from artifacts import copy, exported, manifest_of, rewrite
from rtx_engines import context_model, engine, node
from toys import LIBRARY_WARNINGS

from bakeoff.backends.format import HostRequirement
from bakeoff.backends.tensorrt_rtx.backend import BACKEND
from bakeoff.backends.tensorrt_rtx.options import DISTRIBUTION, LEAST_DRIVER, LEAST_RUNTIME, Options
from bakeoff.export import BadArtifact, Mismatch, load
from bakeoff.export.folder import hash_file
from bakeoff.export.manifest import MANIFEST

pytestmark = LIBRARY_WARNINGS
NEEDS = (
    HostRequirement("compute capability", "is", "8.9"),
    HostRequirement(DISTRIBUTION, "is", "0.5.0"),
    HostRequirement("onnxruntime", "at least", LEAST_RUNTIME),
    HostRequirement("driver", "at least", LEAST_DRIVER),
)
MODEL, ENGINE = "world.onnx", "world.0.engine"


def reseal(folder: Path, **changes: Any) -> None:
    """Make the manifest agree with the changed files, as an attacker would."""
    files = {name: hash_file(folder, name) for name in os.listdir(folder) if name != MANIFEST}
    rewrite(folder, files=files, **changes)


def whole_of(folder: Path, target: str = "sm89") -> None:
    """Put a context model and its engine in place of the artifact's program."""
    manifest = manifest_of(folder)
    for name in (manifest.programs[0].file, *manifest.programs[0].constants):
        (folder / name).unlink()
    context_model(folder, [node(ENGINE)], {ENGINE: engine(target)}, name=MODEL)
    program = replace(manifest.programs[0], file=MODEL, constants=())
    changes = {"backend": BACKEND.name, "artifact": "tensorrt-rtx", "options": {"target": target}, "device": "cuda"}
    reseal(folder, programs=(program,), needs=NEEDS, **changes)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAKEOFF_CACHE", str(folder / "cache"))
        patch.setenv("BAKEOFF_LOCKS", str(folder / "locks"))
        exported("toy:tiny.world/torch.export/fp32@cpu", folder / "artifact", folder / "runs")
    whole_of(folder / "artifact")
    return folder / "artifact"


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return copy(made, tmp_path / "artifact")


def test_a_whole_one_is_for_another_host(folder: Path) -> None:
    with pytest.raises(Mismatch) as refused:
        load(folder)
    assert refused.value.code == "host-mismatch"
    assert [need.value for need in NEEDS[::3] if need.value not in str(refused.value)] == []


def test_a_flipped_byte_of_the_engine_is_found_by_its_hash(folder: Path) -> None:
    data = bytearray((folder / ENGINE).read_bytes())
    data[-1] ^= 1
    (folder / ENGINE).write_bytes(data)
    with pytest.raises(BadArtifact, match=rf"{ENGINE}.*SHA-256"):
        load(folder)


def other_target(folder: Path) -> None:
    (folder / ENGINE).write_bytes(engine("sm120"))


def outside(folder: Path) -> None:
    context_model(folder, [node(f"../{folder.name}/{ENGINE}")], {ENGINE: engine()}, name=MODEL)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (other_target, (MODEL, ENGINE, "another engine")),
        (outside, (MODEL, "not a file of the artifact")),
        (lambda folder: (folder / MODEL).write_bytes(b"\xff" * 50), (MODEL, "not an ONNX model")),
    ],
    ids=["other target", "outside", "no model"],
)
def test_what_is_wrong_with_a_right_hash_is_refused_by_name(
    change: Callable[[Path], object], says: tuple[str, ...], folder: Path
) -> None:
    change(folder)
    reseal(folder)
    with pytest.raises(BadArtifact) as refused:
        load(folder, allow_mismatch=True)
    assert refused.value.code == "bad-artifact"
    assert [part for part in says if part not in str(refused.value)] == [], str(refused.value)


GAP = BACKEND.unavailable(Options(target="sm89"), "cpu")


@pytest.mark.skipif(GAP is not None, reason=str(GAP))
class TestExported:
    @pytest.fixture(scope="class")
    def real(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("real")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BAKEOFF_CACHE", str(folder / "cache"))
            patch.setenv("BAKEOFF_LOCKS", str(folder / "locks"))
            variant = "toy:tiny.world/tensorrt-rtx[target=sm89]/fp16@cpu"
            assert exported(variant, folder / "artifact", folder / "runs").verified is None
        return folder / "artifact"

    def test_its_manifest_says_which_host_opens_it(self, real: Path) -> None:
        manifest = manifest_of(real)
        assert {MODEL, ENGINE} <= set(manifest.files)
        assert set(manifest.files) == {name for name in os.listdir(real) if name != MANIFEST}
        assert manifest.device == "cuda"
        needs = {need.what: need.value for need in manifest.needs}
        assert {
            "compute capability": "8.9",
            "onnxruntime": LEAST_RUNTIME,
            "driver": LEAST_DRIVER,
        }.items() <= needs.items()
        assert (manifest.programs[0].facts["target"], manifest.programs[0].facts["engines"]) == ("sm89", 1)
        with pytest.raises(Mismatch):
            load(real)

    def test_the_engine_of_another_target_is_refused(self, real: Path, tmp_path: Path) -> None:
        folder = copy(real, tmp_path / "artifact")
        data = bytearray((folder / ENGINE).read_bytes())
        data[32] = 16  # sm120
        (folder / ENGINE).write_bytes(data)
        with pytest.raises(BadArtifact, match="SHA-256"):
            load(folder)
        reseal(folder)
        with pytest.raises(BadArtifact, match="another engine"):
            load(folder, allow_mismatch=True)
