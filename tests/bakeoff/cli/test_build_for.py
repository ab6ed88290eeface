"""`sweep --build-for`, `export --for` and `verify` of what is for other GPUs, with a backend of the tests."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the sample of an artifact is computed by torch")

from artifacts import copy, manifest_of
from lab import shorten_clocks
from records import bakeoff
from targets import REFERENCE

from bakeoff import backends
from bakeoff.models.errors import ErrorCode
from bakeoff.record.store import load_all

SMALL = ("toy:tiny.world", "--dtype", "fp32", "--threads", "1")
TARGETS = ("sm89", "sm120")


@pytest.fixture(autouse=True, scope="module")
def _in_the_table() -> "object":
    with pytest.MonkeyPatch.context() as patch:
        for name in (REFERENCE, "elsewhere"):  # workers resolve the first, and manifests name the second
            patch.setitem(backends._TABLE, name, REFERENCE)
        yield


class TestSweep:
    ASKED = ("--runs", "runs", "sweep", "toy", "--preset", "tiny", "--workload", "world", "--backends")

    @pytest.mark.parametrize(("crashes", "code"), [("", 0), ("[crashes=sm89]", 1)])
    def test_builds_and_succeeds_if_one_was_built(
        self, crashes: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shorten_clocks(monkeypatch)
        asked = (*self.ASKED, f"{REFERENCE}{crashes}", "--build-for", "sm89,sm120", "--strict")
        ran = bakeoff(*asked, cwd=tmp_path)
        assert ran.code == code, ran.err
        found = {
            dict(stored.record.variant.backends[0].options)["target"]: stored.record
            for stored in load_all(tmp_path / "runs").current
        }
        assert {name: record.status for name, record in found.items()} == {
            "sm89": "crashed" if crashes else "built", "sm120": "built",
        }  # fmt: skip
        assert found["sm120"].variant.dtype == "fp16"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the artifacts of two targets, and `told`, what the export printed."""
    folder = tmp_path_factory.mktemp("two")
    own = {f"BAKEOFF_{name.upper()}": str(folder / name) for name in ("cache", "runs", "locks")}
    asked = ("export", *SMALL, "--backend", REFERENCE, "--for", ",".join(TARGETS), "--json")
    ran = bakeoff(*asked, cwd=folder, **own)
    assert ran.code == 0, ran.err
    (folder / "told").write_text(ran.out)
    return folder


def folder_of(two: Path, target: str) -> Path:
    (folder,) = (two / "artifacts").glob(f"*{target}*")
    return folder


class TestExport:
    def test_each_target_is_an_artifact_for_it(self, two: Path) -> None:
        told = json.loads((two / "told").read_text())
        assert [two / one["folder"] for one in told] == [folder_of(two, target) for target in TARGETS]
        for target, capability in zip(TARGETS, ("8.9", "12.0"), strict=True):
            manifest = manifest_of(folder_of(two, target))
            assert (manifest.device, manifest.options["target"]) == ("cuda", target)
            needs = {need.what: need.value for need in manifest.needs}
            assert needs["compute capability"] == capability
            assert manifest.parity == (), "nothing was computed with it"
            assert (folder_of(two, target) / "world.engine").read_text() == f"for {target}"

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ((REFERENCE, "--for", "sm89,sm120", "--to", "mine"), "--to mine"),
            ((REFERENCE, "--for", "sm90"), "sm90"),
            ((REFERENCE, "--for", "sm89", "--device", "cuda"), "--device cuda"),
            (("torch.export", "--for", "sm89"), "torch.export"),
            ((REFERENCE, "--for", ""), "--for"),
        ],
    )
    def test_what_cannot_be_is_refused(self, arguments: Sequence[str], says: str, tmp_path: Path) -> None:
        ran = bakeoff("export", *SMALL, "--backend", *arguments, cwd=tmp_path)
        assert ran.code == 2, ran.err
        assert ran.said[-1].endswith("[bad-option]")
        assert says in ran.said[-1]
        assert not [file for file in tmp_path.iterdir() if file.name in ("mine", "artifacts")]


class TestVerify:
    @pytest.mark.parametrize(
        ("damage", "exit", "code"),
        [(b"for sm89", 3, "host-mismatch"), (b"for sm88", 2, "bad-artifact"), (b"for sm8", 2, "bad-artifact")],
        ids=["whole", "one bit", "cut"],
    )
    def test_another_host_s_is_checked_and_said(
        self, damage: bytes, exit: int, code: ErrorCode, two: Path, tmp_path: Path
    ) -> None:
        folder = copy(folder_of(two, "sm89"), tmp_path / "copied")
        (folder / "world.engine").write_bytes(damage)
        ran = bakeoff("verify", str(folder), cwd=tmp_path)
        assert ran.code == exit, ran.err
        assert ran.said[-1].endswith(f"[{code}]")
        assert ("8.9" if exit == 3 else "world.engine") in ran.said[-1]
