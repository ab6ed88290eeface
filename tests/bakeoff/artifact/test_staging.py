"""A staged folder appears whole or not at all; nobody else's folder is replaced."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bakeoff.artifact.export import staged
from bakeoff.export.folder import is_artifact
from bakeoff.models.errors import BakeoffError

MARKER = "marker"
_MAKER = """
import signal, sys, time
from pathlib import Path
for number in (signal.SIGINT, signal.SIGTERM):  # as the command does; a shell's background job ignores the first
    signal.signal(number, signal.default_int_handler)
from bakeoff.artifact.export import staged
with staged(Path(sys.argv[1]), True, lambda folder: (folder / "marker").is_file()) as part:
    (part / "marker").write_text("new")
    print("filling", flush=True)
    time.sleep(60)
"""


def marked(folder: Path) -> bool:
    return (folder / MARKER).is_file()


def fill(target: Path, force: bool = False, content: str = "new") -> None:
    with staged(target, force, marked) as part:
        assert part.parent == target.parent
        (part / MARKER).write_text(content)


def fail(target: Path) -> None:
    with staged(target, True, marked) as part:
        (part / MARKER).write_text("half")
        _ = 1 / 0


def test_leaves_nothing_when_its_maker_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        fail(tmp_path / "target")
    assert os.listdir(tmp_path) == []


def test_is_not_replaced_unless_that_is_asked_for(tmp_path: Path) -> None:
    fill(tmp_path / "target", content="old")
    with pytest.raises(BakeoffError, match="--force") as refused:
        fill(tmp_path / "target")
    assert refused.value.code == "target-exists"
    fill(tmp_path / "target", force=True)
    assert (tmp_path / "target" / MARKER).read_text() == "new"
    assert os.listdir(tmp_path) == ["target"]


def test_what_was_there_stays_when_its_successor_fails(tmp_path: Path) -> None:
    fill(tmp_path / "target", content="old")
    with pytest.raises(ZeroDivisionError):
        fail(tmp_path / "target")
    assert (tmp_path / "target" / MARKER).read_text() == "old"
    assert os.listdir(tmp_path) == ["target"]


def test_an_artifact_is_told_from_other_folders_with_a_manifest(tmp_path: Path) -> None:
    """Browser extensions have a manifest.json too; and an artifact beside which somebody put a file is left alone."""
    (tmp_path / "manifest.json").write_text('{"manifest_version": 3, "name": "mine"}')
    assert not is_artifact(tmp_path)
    (tmp_path / "manifest.json").write_text('{"schema": 0, "digest": "", "sample": {}, "files": {"a": {}, "b": {}}}')
    (tmp_path / "a").write_text("")
    assert is_artifact(tmp_path)
    (tmp_path / "thesis").write_text("years")
    assert not is_artifact(tmp_path)


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_is_no_artifact_is_never_replaced(tmp_path: Path, kind: str) -> None:
    target, precious = tmp_path / "target", tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("years")
    if kind == "folder":
        precious.rename(target)
    elif kind == "file":
        target.write_text("years")
    else:
        target.symlink_to(precious)
    with pytest.raises(BakeoffError, match="artifact") as refused:
        fill(target, force=True)
    assert refused.value.code == "target-exists"
    assert list(tmp_path.rglob("thesis")) or target.read_text() == "years"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_leaves_nothing_when_its_maker_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    fill(tmp_path / "target", content="old")
    maker = subprocess.Popen(
        [sys.executable, "-c", _MAKER, str(tmp_path / "target")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert maker.stdout is not None
    assert maker.stdout.readline() == "filling\n"
    assert len(os.listdir(tmp_path)) == 2
    maker.send_signal(number)
    maker.wait()
    maker.stdout.close()
    until = time.monotonic() + 20
    while len(os.listdir(tmp_path)) > 1 and time.monotonic() < until:
        time.sleep(0.02)
    assert os.listdir(tmp_path) == ["target"]
    assert (tmp_path / "target" / MARKER).read_text() == "old"
