"""tlparse: installed, missing, failing. Its real run is part of the profile of a compiled mix."""

import os
from pathlib import Path

import pytest

from bakeoff.pipeline import compiler_log


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of one folder, in which tests put programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    return folder


def install(tools: Path, script: str) -> None:
    path = tools / "tlparse"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def log_in(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "dedicated_log_torch_trace_.log"
    path.write_text("V1 ...")
    return path


def test_a_tlparse_beside_python_is_found_without_an_activated_environment(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tools, 'mkdir -p "$3" && touch "$3/index.html"')
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    log = log_in(tmp_path / "wm.step")
    assert compiler_log._parsed(log, log.parent) == []


def test_tlparse_gets_the_log_and_writes_its_pages(tools: Path, tmp_path: Path) -> None:
    said = tmp_path / "said"
    install(tools, f'echo "$@" > {said}\n[ "$2" = -o ] && /bin/mkdir -p "$3" && echo page > "$3/index.html"')
    log = log_in(tmp_path / "wm.step")
    assert compiler_log._parsed(log, log.parent) == []
    assert (log.parent / "tl_out" / "index.html").read_text() == "page\n"
    assert said.read_text().split() == [str(log), "-o", str(log.parent / "tl_out"), "--no-browser", "--overwrite"]


@pytest.mark.parametrize("script", ["exit 3", "exit 0"], ids=["fails", "writes-nothing"])
def test_a_tlparse_that_fails_is_said_in_one_sentence(tools: Path, tmp_path: Path, script: str) -> None:
    install(tools, script)
    log = log_in(tmp_path / "wm.step")
    (problem,) = compiler_log._parsed(log, log.parent)
    assert problem.startswith("tlparse failed with exit code")
    assert log.name in problem


def test_the_log_is_of_a_build_without_caches(tmp_path: Path) -> None:
    given = compiler_log._environment(tmp_path)
    assert given["TORCH_TRACE"] == str(tmp_path)
    assert set(given) == {
        "TORCH_TRACE",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
        "TORCHINDUCTOR_BENCHMARK_KERNEL",
        "TORCHINDUCTOR_UNIQUE_KERNEL_NAMES",
    }
    assert os.environ.get("TORCH_TRACE") is None
