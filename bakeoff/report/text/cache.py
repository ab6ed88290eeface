"""The contents of the cache folder: `bakeoff cache`."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from bakeoff.machine import host
from bakeoff.machine.build_cache import About
from bakeoff.machine.cache_inventory import KINDS, LOCKS, OTHER, Cleared, Item
from bakeoff.report.format import MIB

_HOLDS = {kind.name: kind.holds for kind in KINDS} | {
    LOCKS: "which device is being measured on; never cleared",
    OTHER: "not made by bakeoff; never cleared",
}


@dataclass(frozen=True, slots=True)
class Line:
    """All items of one kind together."""

    kind: str
    holds: str
    entries: int
    bytes: int
    used_s: float


@dataclass(frozen=True, slots=True)
class Survey:
    folder: str
    kinds: tuple[Line, ...]
    items: tuple[Item, ...]


def survey(folder: Path, items: Sequence[Item]) -> Survey:
    """Items by kind; kinds without items are left out."""
    by_kind: dict[str, list[Item]] = {}
    for item in items:
        by_kind.setdefault(item.kind, []).append(item)
    lines = [
        Line(kind, holds, len(found), sum(item.bytes for item in found), max(item.used_s for item in found))
        for kind, holds in _HOLDS.items()
        if (found := by_kind.get(kind))
    ]
    return Survey(str(folder), tuple(lines), tuple(items))


def render(found: Survey, verbose: bool) -> str:
    """A line for each kind; with `verbose` also each compiled variant, largest first, and files not made by bakeoff."""
    if not found.items:
        return f"{found.folder} is empty"
    rows = [[line.kind, line.holds, str(line.entries), _mib(line.bytes), _moment(line.used_s)] for line in found.kinds]
    total = sum(item.bytes for item in found.items)
    rows.append(["total", "", str(len(found.items)), _mib(total), ""])
    headers = ("kind", "what it holds", "entries", "MiB", "last use, UTC")
    parts = [found.folder, "", _table(rows, headers, "llrrl")]
    if verbose:
        parts += _details(found.items)
    return "\n".join(parts)


def _details(items: Iterable[Item]) -> list[str]:
    ordered = sorted(items, key=lambda item: (-item.bytes, item.name, item.place))
    rows = [
        [item.name, _configuration(item.about), _versions(item.about), _mib(item.bytes), _moment(item.used_s)]
        for item in ordered
        if item.kind == "compiled"
    ]
    headers = ("compiled variant", "batch, threads", "versions", "MiB", "last use, UTC")
    parts = ["", _table(rows, headers, "lllrl")] if rows else []
    others = [item.place for item in ordered if item.kind == OTHER]
    return [*parts, "", f"not made by bakeoff: {', '.join(others)}"] if others else parts


def _configuration(about: About | None) -> str:
    if about is None:
        return "not stated"
    weights = f", {about.checkpoint}" if about.checkpoint else ""
    return f"{about.batch}, {about.threads}{weights}"


def _versions(about: About | None) -> str:
    """The versions that differ from those installed now; a folder of other versions is not used any more."""
    if about is None:
        return "not stated"
    now = host.read_versions()
    gone = [f"{name} {version}" for name, version in about.versions.items() if now.get(name) != version]
    came = [f"no {name}" for name in now if name not in about.versions]
    return ", ".join([*gone, *came]) or "as now"


def render_cleared(cleared: Cleared) -> str:
    """What was removed, and its size."""
    rows = [[item.kind, item.name, _mib(item.bytes), _moment(item.used_s)] for item in cleared.removed]
    count = f"{len(rows)} {'entry' if len(rows) == 1 else 'entries'}"
    text = f"removed {count}, {_mib(cleared.bytes)} MiB" if rows else "nothing to remove"
    return "\n\n".join([_table(rows, ("kind", "removed", "MiB", "last use, UTC"), "llrl"), text] if rows else [text])


def _table(rows: Sequence[Sequence[str]], headers: Sequence[str], sides: str) -> str:
    alignments = ["left" if side == "l" else "right" for side in sides]
    return tabulate(rows, headers=headers, disable_numparse=True, colalign=alignments)


def _mib(size: int) -> str:
    return f"{size / MIB:.1f}"


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))
