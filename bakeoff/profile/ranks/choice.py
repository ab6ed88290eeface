"""Which of a folder's files are the ranks of one run: one group, and one file for each rank."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.models.words import counted
from bakeoff.profile.ranks.reading import FolderOfRanks, RankFile, rank_in, shown
from bakeoff.record.ranks import Problem


@dataclass(frozen=True, slots=True)
class Chosen:
    """The files that count, by rank, and what is said about the others."""

    group: str
    files: tuple[RankFile, ...]
    world: int
    expected: int
    missing: tuple[int, ...]
    duplicate: tuple[str, ...]
    foreign: tuple[str, ...]
    problems: tuple[Problem, ...]


def choose(held: FolderOfRanks, expect: int | None) -> Chosen:
    """The group with most ranks, of two such the later one; of a rank's files the one that is named after it.

    `held.files` is not empty.
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
    claimed = {rank_in(name) for name in (*held.torn, *held.refused)}
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
    """Sorted ranks as in `1, 3-7`."""
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
