"""What lies in the caches may be a pipe, a folder or nothing: whoever reads it ends, and takes it for missing."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bakeoff.bring.bring import is_pipeline
from bakeoff.machine import build_cache
from bakeoff.pipeline.describe import _read as read_loop
from bakeoff.sweeps.context import changed_files, read_seal, seal_folder

pytestmark = pytest.mark.timeout(20)
Put = Callable[[Path], None]


def folder(path: Path) -> None:
    path.mkdir()


def to_pipe(path: Path) -> None:
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    path.symlink_to(pipe)


@pytest.mark.parametrize("put", [os.mkfifo, to_pipe, folder])
@pytest.mark.parametrize(
    ("name", "read", "missing"),
    [
        (build_cache._FINISHED, lambda path: build_cache.was_built_beside(path.parent), False),
        ("x.sha256.json", lambda path: read_seal(path.with_name("x")), None),
        ("loop.json", read_loop, None),
        ("mine.py", lambda path: is_pipeline(f"{path}:Loop"), False),
    ],
)
def test_a_file_that_is_none_is_missing(
    name: str, read: Callable[[Path], Any], missing: object, put: Put, tmp_path: Path
) -> None:
    put(tmp_path / name)
    assert read(tmp_path / name) == missing


def test_a_reference_that_became_a_pipe_has_changed(tmp_path: Path) -> None:
    (tmp_path / "sealed").mkdir()
    (tmp_path / "sealed" / "a").write_bytes(b"1")
    sealed = seal_folder(tmp_path / "sealed")
    (tmp_path / "sealed" / "a").unlink()
    os.mkfifo(tmp_path / "sealed" / "a")
    assert changed_files(tmp_path / "sealed", sealed, trust_stat=False) == ("a",)
