"""For tests that run what a page of docs/ shows: its blocks by name, and commands in a folder with them."""

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
FAST = str(Path(__file__).with_name("fast_bakeoff.py"))
"""The command line with short clocks; `-m bakeoff` has a user's."""


def page_blocks(page: str, language: str = "python") -> list[str]:
    """The page's blocks of one language in their order."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def files_of(*pages: str, language: str = "python") -> dict[str, str]:
    """The pages' blocks of one language by the file name in their first line."""
    blocks = [block for page in pages for block in page_blocks(page, language)]
    return {block.partition("\n")[0].removeprefix("# ").strip(): block for block in blocks}


def write_files(folder: Path, blocks: dict[str, str]) -> None:
    for name, block in blocks.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block, encoding="utf-8")


def run_python(folder: Path, *command: str) -> str:
    """Standard output of a Python command in this folder; fails the test where the command fails."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
