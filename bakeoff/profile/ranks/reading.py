"""Session records of ranks from a folder, each file on its own: what cannot be read is said, and the others count."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from bakeoff.machine.terminal import one_line
from bakeoff.models.errors import BakeoffError
from bakeoff.profile.files import read_session
from bakeoff.record.ranks import Problem, ProblemCode
from bakeoff.record.session import RankFacts, SessionRecord

MOST_RANKS = 65_536
_NUMBERED = re.compile(r"rank-(\d{1,9})\b")
_LONGEST_NAME = 80
_SHOWN_FOLDERS = 5


@dataclass(frozen=True, slots=True)
class RankFile:
    """A file that was read."""

    name: str
    record: SessionRecord
    facts: RankFacts

    @property
    def is_named_so(self) -> bool:
        """Whether its name has the rank that its content states, and nothing else."""
        return self.name in (f"rank-{self.facts.rank:05}.session.json", f"rank-{self.facts.rank:05}.json")


@dataclass(frozen=True, slots=True)
class FolderOfRanks:
    """What a folder held."""

    files: tuple[RankFile, ...]
    problems: tuple[Problem, ...]
    """One for each name below."""
    torn: tuple[str, ...]
    refused: tuple[str, ...]
    rankless: tuple[str, ...]
    """Session records of processes that were alone."""


def page_path(folder: Path) -> Path:
    """Where the page of a folder's ranks lies."""
    return folder / "ranks.html"


def rank_in(name: str) -> int | None:
    """The rank that a file's name states."""
    found = _NUMBERED.match(name)
    return int(found[1]) if found else None


def rank_files(folder: Path) -> list[str]:
    """Names of the files that ranks wrote, sorted. Raises BakeoffError for a folder that cannot be read."""
    try:
        names = os.listdir(folder)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        text = f"ranks cannot be read from {folder}: {reason}; give the folder that holds rank-*.session.json"
        raise BakeoffError(text, "not-readable") from error
    return sorted(each for each in names if each.endswith(".session.json") or _is_rank_file(each))


def _is_rank_file(name: str) -> bool:
    return name.endswith(".json") and not name.endswith(".report.json") and rank_in(name) is not None


def read_folder(folder: Path) -> FolderOfRanks:
    """Every rank's record in a folder. Raises BakeoffError for a folder that cannot be read or holds no rank's file."""
    names = rank_files(folder)
    if not names:
        raise BakeoffError(f"{folder} holds no rank-*.session.json; {_elsewhere(folder)}", "no-record")
    files: list[RankFile] = []
    problems: list[Problem] = []
    unread: dict[ProblemCode, list[str]] = {"torn": [], "refused": [], "foreign": []}
    for name in names:
        read = _read(folder / name)
        if isinstance(read, Problem):
            problems.append(read)
            unread[read.code].append(name)
        else:
            files.append(read)
    torn, refused, rankless = map(tuple, unread.values())
    return FolderOfRanks(tuple(files), tuple(problems), torn, refused, rankless)


def _read(path: Path) -> RankFile | Problem:
    name = shown(path.name)
    try:
        record = _record_of(path)
        facts = record.rank
        if facts is None:
            return Problem("foreign", f"{name} is of a process that was no rank; left out")
        if not 0 <= facts.rank < facts.world <= MOST_RANKS:
            text = f"{name} states rank {facts.rank!s:.24} of {facts.world!s:.24}, which cannot be; left out"
            return Problem("refused", text)
    except OSError as error:
        return Problem("refused", f"{name} cannot be read: {error.strerror or error}; left out")
    except BakeoffError as error:
        code: ProblemCode = "torn" if error.code == "bad-record" else "refused"
        whole = one_line(str(error).removeprefix(f"{path} "))
        text = whole.rpartition("; ")[0] or whole  # what to do about one file is the same for all ranks
        return Problem(code, f"{name} {text}; left out")
    return RankFile(path.name, record, facts)


def _record_of(path: Path) -> SessionRecord:
    """The record in a file. Raises OSError, or BakeoffError whose text begins with the path: code bad-record for what
    is no whole record of a session, not-readable for what is not opened."""
    if path.is_symlink():
        raise BakeoffError(f"{path} is a link, which is not followed", "not-readable")
    return read_session(path)


def _elsewhere(folder: Path) -> str:
    """What to do instead, with folders directly below that hold some."""
    found: list[str] = []
    for below in sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()):
        try:
            names = rank_files(below)
        except BakeoffError:
            continue
        found += [shown(below.name)] if any(rank_in(name) is not None for name in names) else []
        if len(found) == _SHOWN_FOLDERS:
            break
    return f"there are some in {', '.join(found)}: give one of these" if found else "give the folder that ranks wrote"


def shown(name: str) -> str:
    """A file's name or a run's id on one line and not too long for a sentence."""
    line = one_line(name)
    return line if len(line) <= _LONGEST_NAME else f"{line[:_LONGEST_NAME]}..."
