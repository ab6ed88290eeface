"""Reads the session records of ranks from a folder, and chooses one file for each rank of one run.

Each file is read on its own. A file that cannot be read becomes a problem, and the others count.
"""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bakeoff.machine.terminal import one_line
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.profile.files import read_session
from bakeoff.record.ranks import Problem, ProblemCode
from bakeoff.record.session import RankFacts, SessionRecord

MOST_RANKS = 65_536
_NUMBERED = re.compile(r"rank-(\d{1,9})\b")
_LONGEST_NAME = 80
_SHOWN_FOLDERS = 5


@dataclass(frozen=True, slots=True)
class RankFile:
    """A rank's record, its facts about the rank, and the name of its file."""

    name: str
    record: SessionRecord
    facts: RankFacts

    @property
    def is_named_so(self) -> bool:
        """Whether the file's name contains the rank that the record states, and nothing else."""
        return self.name in (f"rank-{self.facts.rank:05}.session.json", f"rank-{self.facts.rank:05}.json")


@dataclass(frozen=True, slots=True)
class FolderOfRanks:
    """Session records of ranks that were read from a folder, and the names of files that do not count."""

    files: tuple[RankFile, ...]
    problems: tuple[Problem, ...]
    """One problem for each file in `torn`, `refused` and `rankless`."""
    torn: tuple[str, ...]
    refused: tuple[str, ...]
    rankless: tuple[str, ...]
    """Names of session records of processes that were no rank."""


def page_path(folder: Path) -> Path:
    """Return the path of the page about the ranks in a folder."""
    return folder / "ranks.html"


def _rank_in(name: str) -> int | None:
    """Return the rank that a file's name states, or None."""
    found = _NUMBERED.match(name)
    return int(found[1]) if found else None


def rank_files(folder: Path) -> list[str]:
    """Return the sorted names of session records in a folder. Raises BakeoffError if the folder cannot be read."""
    try:
        names = os.listdir(folder)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        text = f"ranks cannot be read from {folder}: {reason}; give the folder that holds rank-*.session.json"
        raise BakeoffError(text, "not-readable") from error
    return sorted(each for each in names if each.endswith(".session.json") or _is_rank_file(each))


def _is_rank_file(name: str) -> bool:
    return name.endswith(".json") and not name.endswith(".report.json") and _rank_in(name) is not None


def read_folder(folder: Path) -> FolderOfRanks:
    """Read every rank's record in a folder. Raises BakeoffError if the folder cannot be read or contains no record."""
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
    """Read the record in a file.

    Raises OSError, or BakeoffError whose text begins with the path: code bad-record if the file is no whole record of a
    session, not-readable if it is not opened.
    """
    if path.is_symlink():
        raise BakeoffError(f"{path} is a link, which is not followed", "not-readable")
    return read_session(path)


def _elsewhere(folder: Path) -> str:
    """Return a hint on which folder to give instead, naming subfolders that contain ranks' files."""
    found: list[str] = []
    for below in sorted(each for each in folder.iterdir() if each.is_dir() and not each.is_symlink()):
        try:
            names = rank_files(below)
        except BakeoffError:
            continue
        found += [shown(below.name)] if any(_rank_in(name) is not None for name in names) else []
        if len(found) == _SHOWN_FOLDERS:
            break
    return f"there are some in {', '.join(found)}: give one of these" if found else "give the folder that ranks wrote"


def shown(name: str) -> str:
    """Return a file's name or a run's id on one line, cut to a length that fits into a sentence."""
    line = one_line(name)
    return line if len(line) <= _LONGEST_NAME else f"{line[:_LONGEST_NAME]}..."


@dataclass(frozen=True, slots=True)
class Chosen:
    """Result of `choose`: the files that count, in order of rank, and problems with the others."""

    group: str
    files: tuple[RankFile, ...]
    world: int
    expected: int
    missing: tuple[int, ...]
    duplicate: tuple[str, ...]
    foreign: tuple[str, ...]
    problems: tuple[Problem, ...]


def choose(held: FolderOfRanks, expect: int | None) -> Chosen:
    """Return the group with most ranks, or the later of two such groups, with one file for each of its ranks.

    If a rank has several files, the one that is named after it counts. `held.files` must not be empty. `expect` is the
    expected number of ranks; None takes the number that the records state.
    """
    group = _group(held.files)
    of_group = [file for file in held.files if file.facts.group == group]
    others = [file for file in held.files if file.facts.group != group]
    by_rank: dict[int, list[RankFile]] = {}
    for file in of_group:
        by_rank.setdefault(file.facts.rank, []).append(file)
    kept = {rank: max(files, key=_preference) for rank, files in sorted(by_rank.items())}
    spare = [file for file in of_group if kept[file.facts.rank] is not file]
    world = Counter(file.facts.world for file in kept.values()).most_common(1)[0][0]
    expected = world if expect is None else expect
    claimed = {_rank_in(name) for name in (*held.torn, *held.refused)}
    missing = tuple(rank for rank in range(expected) if rank not in kept and rank not in claimed)
    problems = [
        *_missing(missing, expected),
        *(
            Problem("duplicate", f"{shown(file.name)} is a second file of rank {rank}; {shown(kept[rank].name)} counts")
            for file in spare
            for rank in [file.facts.rank]
        ),
        *(
            Problem(
                "foreign", f"{shown(file.name)} is of run {shown(file.facts.group)}, not of {shown(group)}; left out"
            )
            for file in others
        ),
        *_worlds(kept, world, expect),
    ]
    return Chosen(
        group=group,
        files=tuple(kept.values()),
        world=world,
        expected=expected,
        missing=missing,
        duplicate=tuple(file.name for file in spare),
        foreign=(*held.rankless, *(file.name for file in others)),
        problems=tuple(problems),
    )


def ranks_text(ranks: Sequence[int]) -> str:
    """Return sorted ranks as text, such as `1, 3-7`."""
    spans: list[tuple[int, int]] = []
    for rank in ranks:
        if spans and spans[-1][1] == rank - 1:
            spans[-1] = (spans[-1][0], rank)
        else:
            spans.append((rank, rank))
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


def _group(files: Sequence[RankFile]) -> str:
    ranks: dict[str, set[int]] = {}
    latest: dict[str, int] = {}
    for file in files:
        group = file.facts.group
        ranks.setdefault(group, set()).add(file.facts.rank)
        latest[group] = max(latest.get(group, 0), file.record.started_wall_ns)
    return max(ranks, key=lambda group: (len(ranks[group]), latest[group], group))


def _preference(file: RankFile) -> tuple[bool, int, str]:
    return file.is_named_so, file.record.started_wall_ns, file.name


def _missing(missing: Sequence[int], expected: int) -> list[Problem]:
    if not missing:
        return []
    verb = "rank {} of {} has no file" if len(missing) == 1 else "ranks {} of {} have no file"
    text = verb.format(ranks_text(missing), expected)
    return [Problem("missing", f"{text}; it died before its session ended, or its file is on another host")]


def _worlds(kept: dict[int, RankFile], world: int, expect: int | None) -> list[Problem]:
    found = [
        Problem(
            "differs", f"rank {rank} states a world of {counted(file.facts.world, 'rank')}, the others one of {world}"
        )
        for rank, file in kept.items()
        if file.facts.world != world
    ]
    if expect is not None and expect != world:
        found.append(
            Problem(
                "differs",
                f"{counted(expect, 'rank was', 'ranks were')} expected, but the records state a world of {world}",
            )
        )
    return found
