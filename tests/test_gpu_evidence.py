"""tools/gpu-evidence: its steps, with a Python that only notes how it is called, and its plans, which must exist."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bakeoff.backends import backend_names, resolve_backend

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "tools"
sys.path.insert(0, str(TOOLS))

from gpu_evidence import main as tool  # noqa: E402
from gpu_evidence import plans, smoke  # noqa: E402
from gpu_evidence.processes import SIGNALS  # noqa: E402
from gpu_evidence.steps import GPU_BACKEND_TESTS, GPU_LIBRARY_TESTS, GPU_TESTS, steps  # noqa: E402

ALL = steps()
FACTS = {
    "missing": {},
    "code": "abc",
    "versions": {"torch": "2.13.0"},
    "gpus": ["NVIDIA H100"],
    "driver": "580",
    "dirty": False,
}


@dataclass
class Pretended:
    """A folder with a Python that notes its calls: it fails, or sleeps, where the call holds a given text."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: "pytest.CaptureFixture[str]"
    facts: dict[str, Any] = field(default_factory=lambda: dict(FACTS))

    def answer(self, fails: str = "nothing", code: int = 1, sleeps: str = "nothing", interrupted: int = 130) -> None:
        records = self.folder / "runs/machine/records"
        records.mkdir(parents=True, exist_ok=True)
        (self.folder / "facts.json").write_text(
            json.dumps(self.facts | {"runs": str(self.folder / "runs"), "cache": str(self.folder / "cache")})
        )
        python = self.folder / "python"
        python.write_text(
            f"""#!/bin/sh
case "$*" in
*find_spec*) echo {ROOT}/backends/__init__.py; exit 0;;
*gpu_evidence.facts*) cat {self.folder}/facts.json; exit 0;;
*" table "*) echo "the table"; exit 0;;
esac
echo "$*" >> {self.folder}/called
echo "[1/2] this fp32: running"
echo "[2/2] this fp32  ok  1.00 ms"
echo "said by $1 $2 $3 $4"
case "$*" in *"{sleeps}"*) trap 'exit {interrupted}' INT; sleep 60 & wait;; esac
case "$*" in *"{fails}"*) exit {code};; esac
case "$*" in
*" sweep "*) echo '{{}}' > {records}/$$.json;;
*" export "*) for to; do :; done; mkdir -p $to; echo '{{}}' > $to/manifest.json; echo > $to/weights.bin;;
esac
"""
        )
        python.chmod(0o755)

    def arguments(self, *arguments: str) -> list[str]:
        return ["--folder", str(self.folder / "evidence"), *arguments]

    def call(self, *arguments: str) -> tuple[int, list[str]]:
        code = tool.main(self.arguments(*arguments))
        return code, self.capsys.readouterr().out.splitlines()

    def called(self) -> list[str]:
        """The calls since the last question."""
        path = self.folder / "called"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def archived(self) -> dict[str, bytes]:
        with tarfile.open(fileobj=io.BytesIO((self.folder / "evidence/evidence.tar.gz").read_bytes())) as archive:
            return {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]


@pytest.fixture
def pretended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: "pytest.CaptureFixture[str]"
) -> Iterator[Pretended]:
    monkeypatch.setenv("BIN", str(tmp_path))
    monkeypatch.setattr(tool, "LEAST_S", 0.1)
    monkeypatch.setattr(tool, "GRACE_S", 0.1)
    handlers = [signal.getsignal(number) for number in SIGNALS]
    yield Pretended(tmp_path, monkeypatch, capsys)
    for number, handler in zip(SIGNALS, handlers, strict=True):
        signal.signal(number, handler)


def sweeps(calls: list[str]) -> list[str]:
    return [line.split(" sweep ")[1].split()[0] for line in calls if " sweep " in line]


def test_a_failure_stops_nothing_and_is_repeated_only_when_asked(pretended: Pretended) -> None:
    only = ("--only", "torch-*,export-aoti-wm")
    pretended.answer(fails="sweep image")
    code, said = pretended.call(*only)
    assert code == 1
    first = pretended.called()
    assert sweeps(first) == ["wm", "wm", "matrix-wm", "image", "audio", "matrix-vae"]
    assert said.count("  this fp32  ok  1.00 ms") == 6
    assert not any("running" in line for line in said)
    assert all("--device cuda" in line and "--no-final" in line for line in first if " sweep " in line)
    assert any(line.startswith("torch-image") and "exit 1" in line for line in said)
    assert [line.split()[3] for line in first if "export" in line or "verify" in line] == ["export", "verify"]
    pretended.answer()
    code, said = pretended.call(*only)
    assert (code, pretended.called()) == (1, [])
    assert "failed: torch-image" in said
    code, said = pretended.call(*only, "--retry")
    assert (code, sweeps(pretended.called())) == (0, ["image"])


@pytest.mark.parametrize(
    "change",
    [{"code": "other"}, {"versions": {"torch": "2.14.0"}}, {"gpus": ["NVIDIA H200"]}, {"driver": "590"}],
    ids=lambda change: next(iter(change)),
)
def test_what_was_done_on_other_grounds_is_done_anew(pretended: Pretended, change: dict[str, object]) -> None:
    only = ("--only", "torch-audio")
    pretended.answer()
    pretended.call(*only)
    assert sweeps(pretended.called()) == ["audio"]
    pretended.facts |= change
    pretended.answer()
    pretended.call(*only)
    assert sweeps(pretended.called()) == ["audio"]
    pretended.call(*only)
    assert pretended.called() == []


def test_a_call_ends_in_time_and_the_next_one_goes_on(pretended: Pretended) -> None:
    only = ("--only", "torch-image,torch-audio,torch-matrix-vae")
    pretended.answer(sleeps="sweep audio")
    code, said = pretended.call(*only, "--budget", "1.5")
    assert code == 75
    assert sweeps(pretended.called()) == ["image", "audio"]
    assert any(line.startswith("torch-audio") and "cut" in line for line in said)
    assert any(line.startswith("left: torch-audio torch-matrix-vae") for line in said)
    pretended.answer()
    assert pretended.call(*only)[0] == 0
    calls = pretended.called()
    assert sweeps(calls) == ["audio", "matrix-vae"]
    assert ["--resume" in line for line in calls] == [True, False]


def test_interrupting_leaves_an_archive_and_a_state(pretended: Pretended) -> None:
    pretended.answer(sleeps="sweep audio")
    arguments = pretended.arguments("--only", "torch-image,torch-audio")
    process = subprocess.Popen(
        [sys.executable, str(TOOLS / "gpu-evidence"), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    called, deadline = pretended.folder / "called", time.monotonic() + 60
    while not (called.exists() and "sweep audio" in called.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    said, complained = process.communicate(timeout=60)
    assert process.returncode == 130, complained
    assert b"Traceback" not in complained
    assert said.count(b"this fp32  ok  1.00 ms") == 2, "the row of the cut sweep was shown too"
    assert {"runs/evidence/logs/torch-image.log", "runs/evidence/state.json"} <= set(pretended.archived())
    pretended.called()
    pretended.answer()
    assert pretended.call(*arguments[2:])[0] == 0
    (call,) = pretended.called()
    assert "sweep audio" in call
    assert "--resume" in call


def test_every_backend_for_cuda_is_tried_swept_and_exported() -> None:
    """But what RTX cards alone run: it has tests in a step, which skip elsewhere."""
    assert "tests/backends/test_tensorrt_rtx_gpu.py" in GPU_LIBRARY_TESTS
    known = [resolve_backend(name) for name in backend_names() if name != "tensorrt-rtx"]
    usable = [backend for backend in known if "cuda" in backend.devices]
    swept = " ".join(use for step in ALL if step.kind == "sweep" for use in step.backends)
    exported = {use for step in ALL if step.kind == "export" for use in step.backends}
    for backend in usable:
        assert re.search(rf"(^|[ +]){re.escape(backend.name)}\b(?![-.])", swept) or backend.name in exported, (
            backend.name
        )
        tried = any(use.startswith((backend.name + "[", backend.name + "+")) for use in plans.every_backend("cuda"))
        assert tried is ("bf16" in backend.dtypes), "a smoke test is in bf16"
        assert (backend.artifact is not None) == (backend.name in exported), backend.name


def test_every_test_for_gpus_is_in_a_step() -> None:
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.gpu" in path.read_text()]
    marked.remove(Path(__file__))
    assert {str(path.relative_to(ROOT)) for path in marked} == {
        GPU_TESTS,
        GPU_BACKEND_TESTS,
        *GPU_LIBRARY_TESTS,
    }


def test_a_smoke_test_prints_one_line_for_each_row(
    tmp_path: Path, capsys: "pytest.CaptureFixture[str]", monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = ("eager", "tensorrt[]", "selftest_backends.faulty:RAISES_AT_CALL")
    monkeypatch.setattr(plans, "every_backend", lambda _device: tried)
    monkeypatch.setattr(sys, "argv", ["smoke", "toy:tiny.world", "cpu", str(tmp_path / "smoke")])
    assert smoke.main() == 1
    said = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line for line in said if line.startswith("toy:")}
    assert re.search(r"\d s  ok$", rows["toy:tiny.world/eager/bf16@cpu"])
    assert re.search(r"un(available|supported) \S", rows["toy:tiny.world/tensorrt/bf16@cpu"])
    assert "failed: call_failed: " in rows[next(name for name in rows if "raise" in name)]
    assert said[-1].startswith("1 of 3 ran, 1 failed")
    assert list((tmp_path / "smoke").rglob("*.json"))


def test_every_plan_exists_in_a_copy_of_the_tree_without_an_installation(tmp_path: Path) -> None:
    """No git, no pip: a bare Python with the dependencies on PYTHONPATH alone, where no .pth file is read."""
    tree = tmp_path / "tree"
    for name in ("bakeoff", "backends", "models", "export", "examples", "tools"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    venv.create(tmp_path / "bare", symlinks=True, with_pip=False)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BAKEOFF_")}
    environment |= {
        "BIN": str(tmp_path / "bare/bin"),
        "PYTHONPATH": str(Path(pytest.__file__).parents[1]),
        "DRY": "1",
        "BAKEOFF_CACHE": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [str(tree / "tools/gpu-evidence"), "--only", "[!g]*"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    planned = dict(re.findall(r"^(\S+) +(ok|WRONG)\b", done.stdout, re.MULTILINE))
    assert planned == {step.name: "ok" for step in ALL if step.subject}
    assert (tree / "runs/evidence/site/bakeoff/backends/__init__.py").resolve() == tree / "backends/__init__.py"
    assert "28 rows of 5 components in all" in done.stdout
