"""The example of docs/sizes.md is complete: written to a file unchanged and swept as the page says."""

import re
import shlex
from pathlib import Path

import pytest
from lab import marked_folder, shorten_clocks
from records import bakeoff

from bakeoff.backends import backend_names, resolve_backend
from bakeoff.backends.backend import by_options
from bakeoff.record.store import load_all

PAGE = (Path(__file__).parent.parent / "docs" / "sizes.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The page's first block in a language."""
    found, *_ = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_the_command_of_the_page_sweeps_the_file_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(block("python"), encoding="utf-8")
    shorten_clocks(monkeypatch)
    program, *arguments = shlex.split(block("sh"))
    assert program == "bakeoff"
    more = ["--backends", "eager,torch.export[]", "--dtype", "fp32", "--device", "cpu", "--threads", "1"]
    with marked_folder(tmp_path):
        ran = bakeoff(*arguments, *more, cwd=tmp_path, COLUMNS="200")
        assert ran.code == 0, ran.err
        stored = load_all(tmp_path / "runs").current
    assert {entry.record.variant.workload for entry in stored} == {"call-input0_2_4_8"}
    assert {one.status for entry in stored for one in entry.record.measurement.sizes} <= {"ok", "padded"}
    heading = next(line for line in ran.out.splitlines() if line.startswith("by size"))
    assert re.split(r"\s{2,}", heading) == ["by size", "input.0=2", "input.0=4", "input.0=6 *", "input.0=8"]


def test_the_page_names_the_backends_that_take_a_range() -> None:
    table = PAGE.partition("## Which backends")[2]
    named = {
        name
        for line in table.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([\w.-]+)`", line.split("|")[1])
    }
    taking = set()
    for name in backend_names():
        backend = resolve_backend(name)
        if by_options(backend.unsupported_sizes, backend.options()) is None:
            taking.add(name)
    assert named == taking
