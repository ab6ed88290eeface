"""Finds brought models by name among the descriptions in the cache of this machine."""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from glob import escape
from pathlib import Path

from bakeoff.machine import paths
from bakeoff.models import component_names
from bakeoff.models.brought.about import ABOUT, About, Source, read_about
from bakeoff.models.errors import BakeoffError, meant


def brought_reference(name: str, preset: str = "", workloads: Collection[str] = ()) -> str:
    """Return the folder of the newest description of a brought model with these workloads; return other references
    unchanged.

    Descriptions of a model that was swept with ranges of sizes differ in their workloads; one without sizes is
    preferred. If models of several sources have the name, it means the one whose source is in the working folder or,
    if none is, below it.

    Raises BakeoffError with the list of sources if that leaves none or more than one, or if the working folder has a
    file with a source's name that was not swept. Raises it with the nearest names if the name is neither a component's
    nor described.
    """
    if name in component_names() or set(name) & set(":/"):
        return name
    found: dict[str, list[tuple[bool, bool, float, str]]] = {}
    sources: dict[str, Source] = {}
    for folder, about in _described(f"{escape(name)}-{escape(preset) if preset else '*'}-*"):
        if about.name == name and preset in ("", about.preset):
            has_all = {one.name for one in about.sets}.issuperset(workloads)
            static = not any(one.axes for one in about.sets)
            entry = (has_all, static, (folder / ABOUT).stat().st_mtime, str(folder))
            found.setdefault(about.source.typed, []).append(entry)
            sources[about.source.typed] = about.source
    if not found:
        raise _unknown(name)
    return max(found[_one_of(name, sources)])[3]


def described_elsewhere(typed: str) -> About | None:
    """Return the newest description of a file whose path ends with the `typed` path, if all such descriptions are of
    one file.

    None if they are of several files or there are none, or if the working folder has a file of the typed name.
    """
    if os.path.exists(typed.partition(":")[0]):
        return None
    sources = (about for _, about in _described() if not about.source.pipeline)
    found = [about for about in sources if about.source.typed.endswith(f"/{Path(typed)}")]
    return found[-1] if len({about.source.typed for about in found}) == 1 else None


def is_described(name: str) -> bool:
    """Return whether this machine has a description of a brought model with this name."""
    return any(about.name == name for _, about in _described())


def _one_of(name: str, sources: Mapping[str, Source]) -> str:
    """Return the source that a name means in the working folder. Raises BakeoffError if that is ambiguous."""
    folder, how = Path.cwd().resolve(), "type one of these, or work in its folder"
    below = {
        typed: _folder_of(source) for typed, source in sources.items() if _folder_of(source).is_relative_to(folder)
    }
    here = [typed for typed, place in below.items() if place == folder] or [*below]
    if not here:
        files = {source.place.name for source in sources.values() if source.function}
        other = next((file for file in sorted(files) if (folder / file).is_file()), None)
        if other is not None:
            text = f"'{name}' is {', '.join(sorted(sources))}, and {other} of this folder was not swept; {how}"
            raise BakeoffError(text, "unknown-name")
    chosen = here if len(sources) > 1 else [*sources]
    if len(chosen) != 1:
        where = "in this folder or below" if here else "elsewhere"
        known = sorted(chosen or sources)
        text = f"'{name}' is the name of {len(known)} models {where}: {', '.join(known)}; {how}"
        raise BakeoffError(text, "unknown-name")
    return chosen[0]


def _described(folders: str = "*") -> Iterator[tuple[Path, About]]:
    """Yield the readable descriptions in the cache whose folder names match this glob pattern, the oldest first."""
    files = (paths.cache_folder() / "brought").glob(f"{folders}/{ABOUT}")
    for file in sorted(files, key=lambda file: file.stat().st_mtime):
        with suppress(BakeoffError):
            yield file.parent, read_about(file.parent)


def _unknown(name: str) -> BakeoffError:
    own = sorted({about.name for _, about in _described()})
    described = f"; yours: {', '.join(own)}" if own else ""
    near = meant(name, [*component_names(), *own])
    known = f"known: {', '.join(component_names())}{described}"
    return BakeoffError(f"no component '{name}'{near}; {known}; for one of yours give mine.py:model", "unknown-name")


def _folder_of(source: Source) -> Path:
    """Return the folder of the source's file, or for a live module its working folder."""
    return Path(source.working_folder).resolve() if source.kind == "live" else source.place.parent
