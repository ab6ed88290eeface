"""The example of docs/apply.md: swept, exported and applied as the page says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="artifacts are opened with torch")

FAST = Path(__file__).parent / "support" / "fast_bakeoff.py"
"""The command line with short clocks."""
PAGE = (Path(__file__).parent.parent / "docs" / "apply.md").read_text(encoding="utf-8")


def blocks() -> dict[str, str]:
    """The page's Python by the file name in its first line."""
    found = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    return {block.partition("\n")[0].removeprefix("# "): block for block in found}


def run(folder: Path, *command: str) -> str:
    """Standard output of a Python command in this folder; fails the test where the command fails."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_is_what_happens(tmp_path: Path) -> None:
    for name, block in blocks().items():
        (tmp_path / name).write_text(block, encoding="utf-8")
    assert set(blocks()) == {"mine.py", "faster.py"}
    commands = [shlex.split(line) for line in re.findall(r"^(bakeoff .*)$", PAGE, re.MULTILINE)]
    assert [command[1] for command in commands] == ["sweep", "export"]
    sweep, export = (command[1:] for command in commands)
    run(tmp_path, str(FAST), *sweep, "--threads", "1")
    run(tmp_path, "-m", "bakeoff", *export, "--threads", "1")
    (folder,) = (tmp_path / "artifacts").iterdir()
    assert folder.name == "unet-mine-torch.export-fp32"
    said = run(tmp_path, "faster.py")
    assert "unet: 7 of 8 calls tuned (unet-mine-torch.export-fp32)" in said
    assert "end to end, 6 pairs of passes in random order" in said
    assert "48 of 48 tuned" in said
    assert "original against itself: equal" in said
