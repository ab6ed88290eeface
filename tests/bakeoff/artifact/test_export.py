"""The commands export, inspect and verify through the command line: output, exit codes and error codes."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="artifacts are opened with torch")

from artifacts import copy, manifest_of, rewrite
from records import GPU_HOST, HOST, Ran, bakeoff

from bakeoff.artifact.export import default_folder, plan_export, verify
from bakeoff.backends.backend import Backend
from bakeoff.backends.format import HostRequirement
from bakeoff.machine import host
from bakeoff.machine.host import Host
from bakeoff.models.errors import ErrorCode
from bakeoff.plan.request import Request

SUPPORT = Path(__file__).parents[2] / "support"
ORDER = "calls: repeatedly stream; 1 input of stream starts as zeros"
SMALL = ("toy:tiny.stream", "--dtype", "fp32", "--threads", "1")


def check(ran: Ran, exit: int, code: ErrorCode, *says: str) -> None:
    """The exit code, and a last error line on stderr that ends with `[code]` and holds all of `says`."""
    assert ran.said[-1].endswith(f" [{code}]"), ran.err
    assert ran.code == exit, ran.err
    assert [part for part in says if part not in ran.said[-1]] == [], ran.err


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deploying")
    own = {f"BAKEOFF_{name.upper()}": str(folder / name) for name in ("cache", "runs", "locks")}
    ran = bakeoff("export", *SMALL, "--backend", "torch.export", "--to", "artifact", cwd=folder, **own)
    assert ran.code == 0, ran.err
    assert "10 frames" in ran.out
    return folder / "artifact"


@pytest.fixture
def artifact(whole: Path, tmp_path: Path) -> Path:
    return copy(whole, tmp_path / "artifact")


def test_a_whole_variant_exports_the_same_artifact_as_its_options(whole: Path, tmp_path: Path) -> None:
    variant = manifest_of(whole).variant
    assert variant == "toy:tiny.stream/torch.export/fp32@cpu"
    ran = bakeoff("export", variant, "--threads", "1", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["folder"] == "artifacts/toy-tiny-stream-torch.export-fp32"
    assert manifest_of(tmp_path / found["folder"]).parity == manifest_of(whole).parity
    assert manifest_of(whole).command == f"bakeoff export '{variant}' --threads 1"


def test_workloads_of_one_component_have_folders_of_their_own() -> None:
    asked = Request("toy", ("tiny",), ("stream",), ("torch.export",), ("fp32",), "cpu")
    plan, other = (plan_export(replace(asked, workloads=(name,))) for name in ("stream", "world"))
    assert default_folder(plan) == Path("artifacts/toy-tiny-stream-torch.export-fp32")
    assert default_folder(other) == Path("artifacts/toy-tiny-world-torch.export-fp32")
    alone = replace(plan, component=replace(plan.component, workload_names=lambda _config: ("stream",)))
    assert default_folder(alone) == Path("artifacts/toy-tiny-torch.export-fp32")


AMX_HOST = replace(HOST, cpu_flags=("avx512f", "amx_bf16"))


@pytest.mark.parametrize(
    ("known", "backend", "dtype"),
    [
        (GPU_HOST, "tensorrt-aot", "bf16"),
        (GPU_HOST, "tensorrt-aot[cudagraphs]", "bf16"),
        (GPU_HOST, "aoti[]", "bf16"),
        (GPU_HOST, "onnxruntime", "fp16"),
        (AMX_HOST, "aoti[]", "bf16"),
        (AMX_HOST, "onnxruntime[]", "fp32"),
        (HOST, "aoti[]", "fp32"),
    ],
)
def test_the_default_dtype_is_the_16_bit_one_of_the_device(
    known: Host, backend: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the backend can run: ONNX Runtime has no bf16 kernels on a CPU."""
    version = host._version
    monkeypatch.setattr(host, "_version", lambda name: version(name).removesuffix("+cpu"))
    monkeypatch.setattr(host, "read_host", lambda: known)
    monkeypatch.setattr(host, "available_bytes", lambda _device: 64 << 30)
    monkeypatch.setattr(Backend, "unavailable", lambda *_: None)
    request = Request("toy", ("tiny",), ("world",), (backend,), device="cuda" if known.gpus else "cpu")
    assert {row.variant.dtype for row in plan_export(request).rows} == {dtype}
    assert {row.variant.dtype for row in plan_export(replace(request, dtypes=("fp32",))).rows} == {"fp32"}


def test_a_dtype_that_was_not_asked_for_is_said(tmp_path: Path) -> None:
    asked = ("--device", "cpu", "--threads", "1")
    ran = bakeoff(
        "export", "toy:tiny.world", "--backend", "torch.export", "--to", str(tmp_path / "made"), *asked, cwd=tmp_path
    )
    assert ran.code == 0, ran.err
    dtype = host.half_dtype("cpu")
    assert f"exporting in {dtype}, the default here" in ran.err
    assert f"/{dtype}@cpu'" in manifest_of(tmp_path / "made").command


class TestVerify:
    def test_correct_outputs_are_verified(self, artifact: Path) -> None:
        ran = bakeoff("verify", str(artifact), cwd=artifact.parent)
        assert ran.code == 0, ran.err
        assert "10 of 10" in ran.out
        assert "no record" in ran.out
        assert ran.out.splitlines()[0].startswith("verified:")

    def test_json_holds_the_results(self, artifact: Path) -> None:
        ran = bakeoff("verify", str(artifact), "--json", cwd=artifact.parent)
        found = json.loads(ran.out)
        assert [one["passed"] for one in found["result"]["checked"]] == [True, True]
        assert len(found["result"]["samples_ns"]) >= 10
        assert found["digest"] == manifest_of(artifact).digest

    def test_a_wrong_output_is_exit_code_1(self, artifact: Path) -> None:
        """The folder is intact, but the limits are tighter than fp32 can meet, so every output is wrong."""
        manifest = manifest_of(artifact)
        tight = dict.fromkeys(manifest.sample.limits, 1e-12)
        rewrite(artifact, sample=replace(manifest.sample, limits=tight))
        check(bakeoff("verify", str(artifact), cwd=artifact.parent), 1, "wrong-output", "stream/")

    @pytest.mark.parametrize(
        ("reader", "code", "says"),
        [
            ("dying_reader", "worker-failed", "SIGSEGV"),
            ("hanging_reader", "worker-failed", "timeout"),
            ("greedy_reader", "bad-artifact", "stream.pt2"),
        ],
    )
    def test_a_crash_a_hang_and_a_failed_allocation_are_one_error_line(
        self, artifact: Path, reader: str, code: ErrorCode, says: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if reader == "hanging_reader":
            monkeypatch.setitem(verify.__kwdefaults__, "seconds", 2.0)
        path = os.pathsep.join((str(SUPPORT / reader), os.environ["PYTHONPATH"]))
        check(bakeoff("verify", str(artifact), cwd=artifact.parent, PYTHONPATH=path), 2, code, says)

    def test_another_host_is_refused_and_can_be_allowed(self, artifact: Path) -> None:
        rewrite(artifact, needs=(HostRequirement("cpu flags", "has", "sve9"),))
        check(bakeoff("verify", str(artifact), cwd=artifact.parent), 3, "host-mismatch", "sve9")
        allowed = bakeoff("verify", str(artifact), "--allow-mismatch", cwd=artifact.parent)
        assert allowed.code == 0, allowed.err
        (line,) = (line for line in allowed.out.splitlines() if line.startswith("mismatch: "))
        assert "sve9" in line


class TestInspect:
    def test_prints_variant_requirements_stream_and_files(self, artifact: Path) -> None:
        ran = bakeoff("inspect", str(artifact), cwd=artifact.parent)
        assert ran.code == 0, ran.err
        for fact in (
            "toy:tiny.stream/torch.export/fp32@cpu",
            "torch at least",
            "cache.00 -> cache.00",
            "stream.pt2",
            ORDER,
        ):
            assert fact in ran.out
        assert {"variant", "needs", "here"} <= {line.partition(":")[0] for line in ran.out.splitlines()}

    def test_reads_nothing_but_the_manifest(self, artifact: Path) -> None:
        path = artifact / "stream.pt2"
        path.write_bytes(bytes(path.stat().st_size))
        assert bakeoff("inspect", str(artifact), cwd=artifact.parent).code == 0

    def test_json_is_the_manifest(self, artifact: Path) -> None:
        found = json.loads(bakeoff("inspect", str(artifact), "--json", cwd=artifact.parent).out)
        assert found["unmet"] == []
        assert found["manifest"]["digest"] == manifest_of(artifact).digest


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("export", "toy"), "bad-option", "--backend"),
        (
            ("export", f"{SUPPORT}/loops.py:Small", "--backend", "aoti"),
            "bad-option",
            f"bakeoff budget {SUPPORT}/loops.py:Small --export",
        ),
        (("export", "toy", "--backend", "eager"), "not-exportable", "eager"),
        (("export", "toy", "--backend", "nothing"), "unknown-name", "'nothing'"),
        (("export", "nothing", "--backend", "aoti"), "unknown-name", "'nothing'"),
        (("export", "toy", "--backend", "onnxruntime", "--dtype", "bf16"), "not-exportable", "unsupported"),
        (("export", "toy:tiny.world/aoti/fp32@cpu", "--dtype", "fp32"), "bad-option", "--dtype"),
        (("export", "toy", "--backend", "", "--to", "x"), "bad-option", "--backend"),
        (("export", "toy", "--preset", "tiny"), "bad-option", "wm:1b.step"),
        (("export", "toy", "--backend", "torch.export", "--checkpoint", "gone"), "bad-checkpoint", "--checkpoint gone"),
        (("verify", "gone"), "bad-artifact", "gone"),
        (("verify", "gone", "--idle", "1"), "bad-option", "--conditions"),
        (("verify", "gone", "--conditions", "--idle", "nan"), "bad-option", "nan"),
        (("inspect", "."), "bad-artifact", "manifest.json"),
    ],
)
def test_wrong_arguments_are_one_error_line_and_write_nothing(
    arguments: Sequence[str], code: ErrorCode, says: str, tmp_path: Path
) -> None:
    check(bakeoff(*arguments, cwd=tmp_path), 2, code, says)
    assert [name for name in os.listdir(tmp_path) if name not in ("cache", "runs")] == []


def test_a_target_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    target = str(tmp_path / "file" / "x")
    check(
        bakeoff("export", *SMALL, "--backend", "torch.export", "--to", target, cwd=tmp_path),
        2,
        "not-writable",
        target,
    )


@pytest.mark.parametrize(
    ("options", "code"), [("size=512k", "worker-failed"), ("size=1m,ro", "not-writable")], ids=["full", "read-only"]
)
def test_a_failed_export_leaves_nothing_on_the_disk(options: str, code: ErrorCode, tmp_path: Path) -> None:
    """A file system that is too small, or read-only, where this user may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        ran = bakeoff("export", *SMALL, "--backend", "torch.export", "--to", str(disk / "x"), cwd=tmp_path)
        check(ran, 2, code)
        assert os.listdir(disk) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)
