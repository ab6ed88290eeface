"""Folders of workers: beside the cache, and removed when nobody owns them."""

import os
import subprocess
import sys
from pathlib import Path

from bakeoff.machine import paths
from bakeoff.process import environment
from bakeoff.process.environment import make_work_folder

KILLED = """
import os
from bakeoff.process.environment import make_work_folder
print(make_work_folder().path, flush=True)
os.kill(os.getpid(), 9)
"""


def test_it_lies_in_the_cache_and_goes_with_its_worker() -> None:
    made = make_work_folder()
    assert made.path.parent == paths.cache_folder() / "work"
    assert made.temporary.is_dir()
    assert made.path.stat().st_mode & 0o777 == 0o700
    made.remove()
    made.remove()
    assert list(made.path.parent.iterdir()) == []


def test_those_of_killed_processes_go_at_the_next_start_and_no_others() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=60, check=False)
    stale, living = Path(done.stdout.strip()), make_work_folder()
    assert not stale.exists()
    assert done.returncode == -9
    parent = living.path.parent
    fresh, old, file = parent / "bakeoff-fresh", parent / "bakeoff-old", parent / "notes"
    for path in (fresh, old, file):
        path.mkdir()
    long_ago = 1_700_000_000
    os.utime(old, (long_ago, long_ago))
    os.utime(file, (long_ago, long_ago))
    another = make_work_folder()
    assert sorted(parent.iterdir()) == sorted([living.path, another.path, fresh, file])
    for made in (living, another):
        made.remove()


def test_a_link_to_another_folder_is_not_followed(tmp_path: Path) -> None:
    parent = paths.cache_folder() / "work"
    theirs = tmp_path / "theirs"
    (theirs / "deep").mkdir(parents=True)
    parent.mkdir(parents=True)
    (parent / "bakeoff-link").symlink_to(theirs)
    os.utime(theirs, (1, 1))
    make_work_folder().remove()
    assert (theirs / "deep").exists()
    assert environment._OWNER not in os.listdir(theirs)
