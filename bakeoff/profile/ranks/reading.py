"""Reads the session records of ranks from a folder, and chooses one file for each rank of one run.

Each file is read on its own. A file that cannot be read becomes a problem, and the others count.
"""

import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bakeoff.machine.terminal import one_line
from bakeoff.models.errors import BakeoffError
from bakeoff.models.grouping import grouped
from bakeoff.models.words import counted
from bakeoff.profile.files import RECORD, read_session
from bakeoff.record.ranks import Problem
from bakeoff.record.session import RankFacts, SessionRecord

MOST_RANKS = 65_536
_NUMBERED = re.compile(r"rank-(\d{1,9})\b")
_LONGEST_NAME = 80


class RankFile(NamedTuple):
    """A rank's record, its facts about the rank, and the name of its file."""

    name: str
    record: SessionRecord
    facts: RankFacts


class RunFiles(NamedTuple):
    """One record for each rank of a run, in order of rank, and problems with the other files of the folder."""

    files: Sequence[RankFile]
    world: int
    """Number of ranks as most records state it."""
    missing: Sequence[int]
    unreadable: Sequence[str]
    problems: Sequence[Problem]


def read_run(folder: Path) -> RunFiles:
    """Read the records in a folder of the run with most ranks, of two such runs the later one.

    If a rank has several files, the one that is named after it counts. Raises BakeoffError for a folder that cannot be
    read or contains no record of a rank.
    """
    files: list[RankFile] = []
    problems: list[Problem] = []
    unreadable: list[str] = []
    for name in _names(folder):
        read = _read(folder / name)
        if isinstance(read, RankFile):
            files.append(read)
            continue
        problems.append(read)
        unreadable += [name] if read.code == "unreadable" else []
    if not files:
        count = counted(len(problems), "file")
        text = f"none of {count} in {folder} is a readable record of a rank; the first: {problems[0].text}"
        raise BakeoffError(text, "bad-record")
    by_group = grouped((file.facts.group, file) for file in files)
    group = max(by_group, key=lambda each: (*_size_and_time(by_group[each]), each))
    by_rank = grouped((file.facts.rank, file) for file in by_group[group])
    kept = {rank: max(several, key=_preference) for rank, several in sorted(by_rank.items())}
    problems += [_left_out(file, kept, group) for file in files if kept.get(file.facts.rank) is not file]
    world = Counter(file.facts.world for file in kept.values()).most_common(1)[0][0]
    present = {*kept, *(_rank_in(name) for name in unreadable)}
    missing = [rank for rank in range(world) if rank not in present]
    if missing:
        verb = "rank {} of {} has no file" if len(missing) == 1 else "ranks {} of {} have no file"
        text = verb.format(ranks_text(missing), world)
        problems.append(Problem("missing", f"{text}; it died before its session ended, or its file is on another host"))
    return RunFiles(tuple(kept.values()), world, missing, unreadable, problems)


def _names(folder: Path) -> list[str]:
    """Return the sorted names of session records in a folder. Raises BakeoffError if there are none."""
    try:
        names = os.listdir(folder)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        text = f"ranks cannot be read from {folder}: {reason}; give the folder that holds rank-*{RECORD}"
        raise BakeoffError(text, "not-readable") from error
    found = sorted(name for name in names if name.endswith(RECORD))
    if not found:
        below = sorted({path.parent.name for path in folder.glob(f"*/rank-*{RECORD}")})[:5]
        named = ", ".join(map(shown, below))
        hint = f"there are some in {named}: give one of these" if below else "give the folder that ranks wrote"
        raise BakeoffError(f"{folder} holds no rank-*{RECORD}; {hint}", "no-record")
    return found


def _rank_in(name: str) -> int | None:
    found = _NUMBERED.match(name)
    return int(found[1]) if found else None


def _read(path: Path) -> RankFile | Problem:
    name = shown(path.name)
    if path.is_symlink():
        return Problem("unreadable", f"{name} is a link, which is not followed; left out")
    try:
        record = read_session(path)
    except BakeoffError as error:
        whole = one_line(str(error).removeprefix(f"{path} "))
        text = whole.rpartition("; ")[0] or whole  # what to do about one file is the same for all ranks
        return Problem("unreadable", f"{name} {text}; left out")
    facts = record.rank
    if facts is None:
        return Problem("left-out", f"{name} is of a process that was no rank")
    if not 0 <= facts.rank < facts.world <= MOST_RANKS:
        text = f"{name} states rank {facts.rank!s:.24} of {facts.world!s:.24}, which cannot be; left out"
        return Problem("unreadable", text)
    return RankFile(path.name, record, facts)


def _size_and_time(files: Sequence[RankFile]) -> tuple[int, int]:
    return len({file.facts.rank for file in files}), max(file.record.started_wall_ns for file in files)


def _preference(file: RankFile) -> tuple[bool, int, str]:
    return file.name == f"rank-{file.facts.rank:05}{RECORD}", file.record.started_wall_ns, file.name


def _left_out(file: RankFile, kept: dict[int, RankFile], group: str) -> Problem:
    name, facts = shown(file.name), file.facts
    if facts.group != group:
        return Problem("left-out", f"{name} is of run {shown(facts.group)}, not of {shown(group)}")
    return Problem("left-out", f"{name} is a second file of rank {facts.rank}; {shown(kept[facts.rank].name)} counts")


def ranks_text(ranks: Sequence[int]) -> str:
    """Return sorted ranks as text, such as `1, 3-7`."""
    spans: list[tuple[int, int]] = []
    for rank in ranks:
        if spans and spans[-1][1] == rank - 1:
            spans[-1] = (spans[-1][0], rank)
        else:
            spans.append((rank, rank))
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)


def shown(name: str) -> str:
    """Return a file's name or a run's id on one line, cut to a length that fits into a sentence."""
    line = one_line(name)
    return line if len(line) <= _LONGEST_NAME else f"{line[:_LONGEST_NAME]}..."
