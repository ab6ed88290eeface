"""Reads the records and other files that a git commit holds, without a change of the working tree."""

import io
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bakeoff.models.errors import BakeoffError
from bakeoff.record.store import Records, load_all


def records_of(folder_or_reference: str, runs: Path) -> Records:
    """Return the records of a folder, or those that a git commit has in `runs`.

    Raises BakeoffError if it is neither a folder nor a commit, or if the commit has no such folder.
    """
    folder = Path(folder_or_reference)
    if folder.is_dir():
        return load_all(folder, *filter(Path.is_dir, [folder / "published"]))
    with checkout(folder_or_reference, runs) as place:
        return load_all(place, *filter(Path.is_dir, [place / "published"]))


@contextmanager
def checkout(reference: str, folder: Path) -> Iterator[Path]:
    """Give a copy of `folder` as it is in a git commit until the block ends. Raises BakeoffError as `records_of`."""
    with TemporaryDirectory(prefix="bakeoff-") as temporary:
        yield _extract(reference, folder.absolute(), Path(temporary))


def _extract(reference: str, runs: Path, into: Path) -> Path:
    """Write the folder `runs` as it is in a commit into `into`, and return its place there."""
    start = next(parent for parent in (runs, *runs.parents) if parent.is_dir())
    nowhere = f"{reference} is no folder, and {runs} is in no git repository"
    top = _git(start, "rev-parse", "--show-toplevel", what=nowhere).decode().strip()
    unknown = f"'{reference}' is neither a folder of records nor a commit of {top}"
    named = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    commit = _git(start, *named, what=unknown).decode().strip()
    inside = runs.resolve().relative_to(Path(top).resolve())
    archive = _git(Path(top), "archive", commit, str(inside), what=f"commit {reference} has no folder {inside}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    return into / inside


def _git(folder: Path, *arguments: str, what: str) -> bytes:
    """Return what a git command prints. Raises BakeoffError that says `what` if it fails."""
    try:
        return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise BakeoffError(f"{what}; give the folder of records, or a commit that holds them", "no-record") from error
