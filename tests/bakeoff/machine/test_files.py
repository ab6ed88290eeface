"""Files are written completely or not at all; equal values have equal digests."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from disk import files, largest_file

from bakeoff.machine.files import write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.record.store import load_all

KILLED_IN_BETWEEN = """
import os, signal, sys
from pathlib import Path
from bakeoff.machine.files import write_atomically
victim = sys.argv[2]
real = getattr(os, victim)
def die(*arguments):
    if victim != "replace":
        real(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(os, victim, die)
write_atomically(Path(sys.argv[1]), b"new " * 1000)
"""


class TestWriteAtomically:
    def test_writes_and_replaces(self, tmp_path: Path) -> None:
        path = tmp_path / "a" / "b" / "page.md"
        write_atomically(path, b"old")
        write_atomically(path, b"new")
        assert path.read_bytes() == b"new"
        assert path.stat().st_mode & 0o777 == 0o644
        assert files(tmp_path) == ["a/b/page.md"]

    @pytest.mark.parametrize("victim", ["fsync", "replace"])
    def test_killed_in_between_leaves_the_old_file(self, tmp_path: Path, victim: str) -> None:
        path = tmp_path / "machine" / "records" / "r.json"
        write_atomically(path, b"old")
        done = subprocess.run([sys.executable, "-c", KILLED_IN_BETWEEN, str(path), victim], check=False, cwd=tmp_path)
        assert done.returncode == -signal.SIGKILL
        assert path.read_bytes() == b"old"
        assert [name for name in files(tmp_path) if name.endswith(".json")] == ["machine/records/r.json"]
        assert len(load_all(tmp_path).problems) == 1  # the old file is not a record; the temporary one is not read
        write_atomically(path, b"next")
        assert path.read_bytes() == b"next"

    def test_full_disk(self, tmp_path: Path) -> None:
        path = tmp_path / "page.md"
        write_atomically(path, b"old")
        with largest_file(1000), pytest.raises(BakeoffError, match=r"page\.md.*File too large") as raised:
            write_atomically(path, b"x" * 5000)
        assert raised.value.code == "not-writable"
        assert path.read_bytes() == b"old"
        assert files(tmp_path) == ["page.md"]

    @pytest.mark.parametrize("failing", ["fsync", "chmod", "replace"])
    @pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
    def test_any_failure_leaves_no_temporary_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException
    ) -> None:
        def fail(*_: object) -> None:
            raise error

        path = tmp_path / "page.md"
        path.write_bytes(b"old")
        monkeypatch.setattr(os, failing, fail)
        with pytest.raises(BakeoffError if isinstance(error, OSError) else KeyboardInterrupt) as raised:
            write_atomically(path, b"new")
        assert isinstance(error, KeyboardInterrupt) or "No space left on device" in str(raised.value)
        assert path.read_bytes() == b"old"
        assert files(tmp_path) == ["page.md"]

    def test_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(BakeoffError, match=r"page\.md.*file") as raised:
            write_atomically(tmp_path / "file" / "page.md", b"x")
        assert raised.value.code == "not-writable"
        (tmp_path / "page.md").mkdir()
        with pytest.raises(BakeoffError, match=r"page\.md.*Is a directory") as raised:
            write_atomically(tmp_path / "page.md", b"x")
        assert raised.value.code == "not-writable"
        assert files(tmp_path) == ["file"]
