"""Brought models by their names in variants, as far as they were described on this machine."""

from bakeoff.machine import paths
from bakeoff.models import component_names, current_name
from bakeoff.models.brought.about import ABOUT, read_about
from bakeoff.models.errors import BakeoffError


def brought_reference(name: str, preset: str = "") -> str:
    """The folder of the newest description of a brought model; any other reference, or an unknown name, as it is."""
    if current_name(name) in component_names() or not name.replace("-", "").replace("_", "").isalnum():
        return name
    found = []
    for folder in (paths.cache_folder() / "brought").glob(f"{name}-{preset or '*'}-*"):
        try:
            about = read_about(folder)
        except BakeoffError:
            continue
        if about.name == name and preset in ("", about.preset):
            found.append(((folder / ABOUT).stat().st_mtime, str(folder)))
    return max(found)[1] if found else name
