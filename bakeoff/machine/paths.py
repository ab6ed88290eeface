"""Finds the folder of records, the cache folder, and the checkout with its commit."""

import contextlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import platformdirs

from bakeoff.machine.files import digest
from bakeoff.models.errors import BakeoffError

_HERE = Path(__file__).resolve().parents[2]
"""The folder that holds this package: a checkout, or what it is installed into."""


def checkout() -> Path | None:
    """Return the checkout that contains the working folder, or else this package; None if it is installed elsewhere."""
    candidates = [_HERE]
    with contextlib.suppress(FileNotFoundError):  # the working folder may have been deleted
        candidates = [Path.cwd(), *Path.cwd().parents, *candidates]
    return next(filter(_is_checkout, candidates), None)


def _is_checkout(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file() and (folder / "bakeoff" / "variant.py").is_file()


def runs_folder(asked: Path | None = None) -> Path:
    """Return `asked`, else $BAKEOFF_RUNS, else runs/ of the checkout, else the user's data folder (XDG base
    directories)."""
    if asked is not None:
        return asked
    if os.environ.get("BAKEOFF_RUNS"):
        return Path(os.environ["BAKEOFF_RUNS"])
    return (checkout() or _user_folder(platformdirs.user_data_path, "BAKEOFF_RUNS")) / "runs"


def published_runs() -> Path | None:
    """Return runs/published/ of the checkout, with the records that come with it; None without a checkout."""
    root = checkout()
    return None if root is None else root / "runs" / "published"


def with_published(runs: Path) -> tuple[Path, ...]:
    """Return `runs`, then the folder of published records if there is one."""
    return tuple(filter(None, (runs, published_runs())))


def cache_folder() -> Path:
    """Return $BAKEOFF_CACHE, else bakeoff/ in the user's cache folder. Everything in it can be deleted at any time."""
    if os.environ.get("BAKEOFF_CACHE"):
        return Path(os.environ["BAKEOFF_CACHE"]).absolute()
    return _user_folder(platformdirs.user_cache_path, "BAKEOFF_CACHE")


def recorded_folder(file: Path, function: str) -> Path:
    """Return the cache folder for modules that an inspection of this function recorded."""
    return cache_folder() / "brought" / f"recorded-{file.stem}-{function}-{digest(str(file))}"


def _user_folder(find: Callable[[str], Path], variable: str) -> Path:
    """Return bakeoff's folder by `find`, a function of platformdirs.

    Raises BakeoffError for a user without a home folder; `variable` is the environment variable to set instead.
    """
    try:
        return find("bakeoff").expanduser()  # releases before 4.14 return ~/... where there is no home folder
    except RuntimeError as error:
        raise BakeoffError(f"this user has no home folder; set HOME or {variable}", code="not-writable") from error


def ensure_writable(folder: Path, what: str) -> Path:
    """Create `folder` and write a byte in it, so that a sweep fails before it measures and not after.

    `what` names, in the error, what could not be written. Raises BakeoffError if the folder cannot be written.
    """
    probe = folder / f".probe-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            probe.write_bytes(b"x")
        finally:
            probe.unlink(missing_ok=True)  # on a full disk the file can be created but not written
    except OSError as error:
        raise BakeoffError(
            f"{what} cannot be written to {folder}: {error.strerror}; choose another folder", code="not-writable"
        ) from error
    return folder


def commit() -> tuple[str, bool]:
    """Return the commit of this code, and whether files outside runs/ differ from it; ("", False) where its files are
    not those of a checkout, whichever checkout is the working folder, or where git is not installed.

    Git refuses a checkout that another user owns, as where root runs in a container a tree that was copied there. This
    one is trusted: its code runs already. Git before 2.38 does not take `safe.directory` from a command and refuses.
    """
    if not _is_checkout(_HERE) or not (_HERE / ".git").exists():
        return "", False
    git = ("git", "-c", f"safe.directory={_HERE}")
    try:
        head, status = (
            subprocess.run([*git, *words], cwd=_HERE, capture_output=True, text=True, check=True).stdout.strip()
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain", "--", ".", ":!runs"))
        )
    except (OSError, subprocess.CalledProcessError):
        return "", False
    return head, bool(status)
