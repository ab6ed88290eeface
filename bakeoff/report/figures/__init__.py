"""runs/plots/: SVG files generated from the records and from nothing else; the same records give the same bytes."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bakeoff.machine.files import digest, write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored, load_all
from bakeoff.report.figures import history, latency, roofline, samples
from bakeoff.report.figures.canvas import MARK, settings
from bakeoff.report.groups import Group, groups, newest

FOLDER = "plots"
_OF_NEWEST: tuple[tuple[str, Callable[[str, Sequence[Group]], bytes | None]], ...] = (
    ("latency", latency.draw),
    ("samples", samples.draw),
    ("roofline", roofline.draw),
)


def render(records: Records, component: str = "") -> dict[str, bytes]:
    """File name to SVG, for each component on each machine, or for one component.

    Raises BakeoffError where matplotlib is missing.
    """
    places: dict[tuple[str, str], list[Stored]] = {}
    for entry in records.current:
        places.setdefault(_place(entry.record), []).append(entry)
    if not places:
        return {}
    drawn: dict[str, bytes] = {}
    with settings():
        for place, slug in _slugs(places).items():
            if component not in ("", place[0]):
                continue
            heading = " on ".join(place)
            latest = groups(newest(places[place]))
            made = [(kind, draw(heading, latest)) for kind, draw in _OF_NEWEST]
            made.append(("history", history.draw(heading, groups(places[place]))))
            drawn |= {f"{kind}-{slug}.svg": data for kind, data in made if data is not None}
    return drawn


def _place(record: Record) -> tuple[str, str]:
    return record.variant.component, record.host.name(record.variant.device)


def _slugs(places: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A part of a file name for each place: letters, digits and dashes; places that read alike get a hash."""
    plain = {place: _slug(" ".join(place)) for place in places}
    taken = list(plain.values())
    return {
        place: slug if slug and taken.count(slug) == 1 else f"{slug}-{digest(place)[:8]}".strip("-")
        for place, slug in plain.items()
    }


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:100]


def update(runs: Path, component: str = "") -> list[Path]:
    """Write the plots of the records under `runs`, and delete earlier ones that no record asks for.

    With `component` only its own are drawn and none is deleted: a sweep changes no others. Raises BakeoffError where
    matplotlib is missing or the folder cannot be written.
    """
    drawn = render(load_all(runs), component)
    folder = runs / FOLDER
    for path in [] if component else _generated(folder):
        if path.name not in drawn:
            _delete(path)
    for name, data in drawn.items():
        write_atomically(folder / name, data)
    return [folder / name for name in drawn]


def _generated(folder: Path) -> list[Path]:
    """Plots that carry the mark of this module; other files in the folder are somebody's own."""
    try:
        found = sorted(path for path in folder.glob("*.svg") if path.is_file() and not path.is_symlink())
        return [path for path in found if _is_marked(path)]
    except OSError as error:
        raise BakeoffError(f"plots cannot be read from {folder}: {error.strerror}; choose another folder") from error


def _is_marked(path: Path) -> bool:
    with path.open("rb") as file:
        file.readline(200)
        return file.readline(200) == MARK


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise BakeoffError(f"{path} is of an earlier update and cannot be deleted: {error.strerror}") from error
