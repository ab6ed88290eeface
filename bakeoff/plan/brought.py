"""Brought models by their names in variants, as far as they were described on this machine."""

from collections.abc import Collection
from glob import escape
from pathlib import Path

from bakeoff.machine import paths
from bakeoff.models import component_names, current_name
from bakeoff.models.brought.about import ABOUT, Source, read_about
from bakeoff.models.errors import BakeoffError


def brought_reference(name: str, preset: str = "", workloads: Collection[str] = ()) -> str:
    """The folder of the newest description of a brought model that has these workloads; any other reference, or an
    unknown name, as it is.

    Descriptions differ in their workloads where a model was swept with sizes; one without sizes is preferred. Where
    models of several sources have the name, it stands for the one whose source lies in the working folder or below.
    Raises BakeoffError with the list of sources where that is none, or several.
    """
    if current_name(name) in component_names() or not name.replace("-", "").replace("_", "").isalnum():
        return name
    found: dict[str, list[tuple[bool, bool, float, str]]] = {}
    sources: dict[str, Source] = {}
    for folder in (paths.cache_folder() / "brought").glob(f"{name}-{escape(preset) if preset else '*'}-*"):
        try:
            about = read_about(folder)
        except BakeoffError:
            continue
        if about.name == name and preset in ("", about.preset):
            has_all = {one.name for one in about.sets}.issuperset(workloads)
            static = not any(one.axes for one in about.sets)
            entry = (has_all, static, (folder / ABOUT).stat().st_mtime, str(folder))
            found.setdefault(about.source.typed, []).append(entry)
            sources[about.source.typed] = about.source
    if not found:
        return name
    here = [typed for typed in found if Path(sources[typed].path).is_relative_to(Path.cwd())]
    chosen = here if len(found) > 1 else [*found]
    if len(chosen) != 1:
        where = "in this folder or below" if here else "elsewhere"
        raise BakeoffError(
            f"'{name}' is the name of {len(chosen or found)} models {where}: {', '.join(sorted(chosen or found))}; "
            "name one so, or work in its folder",
            "unknown-name",
        )
    return max(found[chosen[0]])[3]
