"""The commands about artifacts, as they are typed: what they print, what they refuse, and how they end."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="artifacts are opened with torch")

from artifacts import copy, manifest_of, rewrite

from bakeoff.backends.format import HostRequirement

SUPPORT = Path(__file__).parents[2] / "support"
SMALL = ("--preset", "tiny", "--workload", "stream", "--dtype", "fp32", "--threads", "1")


def bakeoff(*arguments: str, path: str = "", cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT / path)} if path else dict(os.environ)
    command = [sys.executable, "-m", "bakeoff", *arguments]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=200, check=False)


def sentences(done: "subprocess.CompletedProcess[str]") -> Sequence[str]:
    """What stderr says in bakeoff's own name; there is never a traceback."""
    assert "Traceback" not in done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("bakeoff: ")]


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deploying")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAKEOFF_CACHE", str(folder / "cache"))
        patch.setenv("BAKEOFF_RUNS", str(folder / "runs"))
        done = bakeoff("export", "toy", "--backend", "torch.export", "--to", str(folder / "artifact"), *SMALL)
    assert done.returncode == 0, done.stderr
    assert "10 frames" in done.stdout
    return folder / "artifact"


@pytest.fixture
def artifact(whole: Path, tmp_path: Path) -> Path:
    return copy(whole, tmp_path / "artifact")


def test_a_whole_variant_names_the_same_artifact(whole: Path, tmp_path: Path) -> None:
    variant = manifest_of(whole).variant
    assert variant == "toy:tiny.stream/torch.export/fp32@cpu"
    done = bakeoff("export", variant, "--threads", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["folder"] == "artifacts/toy-tiny-torch.export-fp32"
    assert manifest_of(tmp_path / found["folder"]).parity == manifest_of(whole).parity
    assert manifest_of(whole).command == f"bakeoff export '{variant}' --threads 1"


class TestVerify:
    def test_says_that_it_computes_what_was_exported(self, artifact: Path) -> None:
        done = bakeoff("verify", str(artifact))
        assert done.returncode == 0, done.stderr
        assert "10 of 10" in done.stdout
        assert "no record" in done.stdout
        assert done.stdout.splitlines()[-1].startswith("verified:")

    def test_json_holds_what_was_found(self, artifact: Path) -> None:
        done = bakeoff("verify", str(artifact), "--json")
        found = json.loads(done.stdout)
        assert [one["passed"] for one in found["result"]["checked"]] == [True, True]
        assert len(found["result"]["samples_ns"]) >= 10
        assert found["digest"] == manifest_of(artifact).digest

    def test_a_wrong_answer_is_exit_code_1(self, artifact: Path) -> None:
        """Nothing but computing it can tell: here the limits are closer than any fp32."""
        manifest = manifest_of(artifact)
        tight = dict.fromkeys(manifest.sample.limits, 1e-12)
        rewrite(artifact, sample=replace(manifest.sample, limits=tight))
        done = bakeoff("verify", str(artifact))
        assert done.returncode == 1
        assert "does not compute what was exported: stream/" in sentences(done)[-1]

    @pytest.mark.parametrize(
        ("reader", "options", "said"),
        [
            ("dying_reader", (), "crashed: SIGSEGV in phase open"),
            ("hanging_reader", ("--seconds", "8"), "timeout: open took longer than 8 s"),
            ("greedy_reader", ("--memory", "2"), "stream.pt2 cannot be opened: "),
        ],
    )
    def test_what_dies_is_a_line_of_the_report(
        self, artifact: Path, reader: str, options: Sequence[str], said: str
    ) -> None:
        done = bakeoff("verify", str(artifact), *options, path=reader)
        assert done.returncode == 2
        assert said in sentences(done)[-1]

    def test_another_host_is_refused_and_can_be_allowed(self, artifact: Path) -> None:
        rewrite(artifact, needs=(HostRequirement("cpu flags", "has", "sve9"),))
        done = bakeoff("verify", str(artifact))
        assert done.returncode == 2
        assert "made for another host: cpu flags: expected sve9, found" in sentences(done)[-1]
        allowed = bakeoff("verify", str(artifact), "--allow-mismatch")
        assert allowed.returncode == 0, allowed.stderr
        assert "mismatch  allowed: cpu flags: expected sve9" in allowed.stdout


class TestInspect:
    def test_tells_what_it_is_takes_and_needs(self, artifact: Path) -> None:
        done = bakeoff("inspect", str(artifact))
        assert done.returncode == 0, done.stderr
        for said in (
            "variant   toy:tiny.stream/torch.export/fp32@cpu",
            "needs     torch at least",
            "here      this host meets all",
            "stream to stream: cache.00 -> cache.00 (replaces it)",
            "drawn from N(0, 1)",
            "stream.pt2",
        ):
            assert said in done.stdout

    def test_reads_nothing_but_the_manifest(self, artifact: Path) -> None:
        path = artifact / "stream.pt2"
        path.write_bytes(bytes(path.stat().st_size))
        assert bakeoff("inspect", str(artifact)).returncode == 0

    def test_json_is_the_manifest(self, artifact: Path) -> None:
        found = json.loads(bakeoff("inspect", str(artifact), "--json").stdout)
        assert found["unmet"] == []
        assert found["manifest"]["digest"] == manifest_of(artifact).digest


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("export", "toy"), "which back end of toy? give --backend"),
        (
            ("export", "toy", "--backend", "eager"),
            "eager leaves nothing that could be deployed; take aoti, torch.export",
        ),
        (("export", "toy", "--backend", "nothing"), "no backend 'nothing'"),
        (("export", "nothing", "--backend", "aoti"), "no component 'nothing'"),
        (("export", "toy", "--backend", "onnxruntime", "--dtype", "bf16"), "unsupported: ONNX Runtime's CPU provider"),
        (("export", "toy:tiny.world/aoti/fp32@cpu", "--dtype", "fp32"), "is a whole variant; leave"),
        (("export", "toy", "--backend", "", "--to", "x"), "--backend names nothing"),
        (("export", "toy", "--backend", "torch.export", "--checkpoint", "gone"), "--checkpoint gone: No such file"),
        (("verify", "gone"), "gone: No such file or directory; give the folder that bakeoff export made"),
        (("inspect", "."), "holds no manifest.json; give the folder that bakeoff export made"),
        (("verify", ".", "--seconds", "0"), "--seconds 0: give more than 0"),
    ],
)
def test_what_is_typed_wrong_gets_a_sentence(arguments: Sequence[str], said: str, tmp_path: Path) -> None:
    done = bakeoff(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in sentences(done)[-1]
    assert [name for name in os.listdir(tmp_path) if name not in ("cache", "runs")] == []


def test_a_target_that_takes_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = bakeoff("export", "toy", "--backend", "torch.export", "--to", str(tmp_path / "file" / "x"), *SMALL)
    assert done.returncode == 2
    assert "cannot be written: File exists; choose another folder" in sentences(done)[-1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("size=512k", "No space left on device|cannot be written"),
        ("size=1m,ro", "Read-only file system; choose another"),
    ],
)
def test_a_disk_that_takes_nothing_keeps_nothing(options: str, said: str, tmp_path: Path) -> None:
    """A file system that is too small, or read-only, where this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        done = bakeoff("export", "toy", "--backend", "torch.export", "--to", str(place / "x"), *SMALL)
        assert done.returncode == 2
        assert re.search(said, sentences(done)[-1]), done.stderr
        assert os.listdir(place) == []
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_the_published_schema_is_the_manifests() -> None:
    """Write `json_schema()` to the file again when the manifest changed; SCHEMA tells readers of it."""
    from bakeoff.export import manifest

    assert (Path(manifest.__file__).parent / "manifest.schema.json").read_bytes() == manifest.json_schema()
