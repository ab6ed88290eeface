"""The example of docs/apply.md: swept, exported and applied as the page says."""

import re
import shlex
from pathlib import Path

import pytest
from lab import shorten_clocks
from page_examples import DOCS, files_of, run_python, write_files
from records import bakeoff

pytest.importorskip("torch", reason="artifacts are opened with torch")

FILES = files_of("apply.md")


def test_the_page_is_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_clocks(monkeypatch)
    write_files(tmp_path, FILES)
    assert FILES.keys() == {"mine.py", "faster.py"}
    page = (DOCS / "apply.md").read_text(encoding="utf-8")
    commands = [shlex.split(line) for line in re.findall(r"^(bakeoff .*)$", page, re.MULTILINE)]
    assert [command[1] for command in commands] == ["sweep", "export"]
    for command in commands:
        ran = bakeoff(*command[1:], "--threads", "1", cwd=tmp_path)
        assert ran.code == 0, ran.err
    (folder,) = (tmp_path / "artifacts").iterdir()
    assert folder.name == "mine.unet-py-torch.export-fp32"
    said = run_python(tmp_path, "faster.py")
    assert "unet: 7 of 8 calls tuned (mine.unet-py-torch.export-fp32)" in said
