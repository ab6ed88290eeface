"""Brought models by their names in variants, as far as they were described on this machine."""

from collections.abc import Collection
from glob import escape

from bakeoff.machine import paths
from bakeoff.models import component_names, current_name
from bakeoff.models.brought.about import ABOUT, read_about
from bakeoff.models.errors import BakeoffError


def brought_reference(name: str, preset: str = "", workloads: Collection[str] = ()) -> str:
    """The folder of the newest description of a brought model that has these workloads; any other reference, or an
    unknown name, as it is.

    Descriptions differ in their workloads where a model was swept with sizes; one without sizes is preferred.
    """
    if current_name(name) in component_names() or not name.replace("-", "").replace("_", "").isalnum():
        return name
    found = []
    for folder in (paths.cache_folder() / "brought").glob(f"{name}-{escape(preset) if preset else '*'}-*"):
        try:
            about = read_about(folder)
        except BakeoffError:
            continue
        if about.name == name and preset in ("", about.preset):
            has_all = {one.name for one in about.sets}.issuperset(workloads)
            static = not any(one.axes for one in about.sets)
            found.append((has_all, static, (folder / ABOUT).stat().st_mtime, str(folder)))
    return max(found)[3] if found else name
