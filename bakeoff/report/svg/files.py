"""runs/plots/: SVG files made from the records alone; the same records give the same bytes."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from bakeoff.machine.files import digest, write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored, load_all
from bakeoff.report.groups import Group, groups, newest
from bakeoff.report.svg import history, latency, roofline
from bakeoff.report.svg.canvas import MARK, settings

FOLDER = "plots"
_OF_NEWEST: tuple[tuple[str, Callable[[str, Sequence[Group]], bytes | None]], ...] = (
    ("latency", latency.draw),
    ("roofline", roofline.draw),
)


def render(records: Records, component: str = "") -> dict[str, bytes]:
    """File name to SVG, for each component on each machine, or for one component.

    Raises BakeoffError where matplotlib is missing.
    """
    by_key: dict[tuple[str, str], list[Stored]] = {}
    for entry in records.current:
        by_key.setdefault(_key(entry.record), []).append(entry)
    if not by_key:
        return {}
    drawn: dict[str, bytes] = {}
    with settings():
        for key, slug in _slugs(by_key).items():
            if component not in ("", key[0]):
                continue
            heading = " on ".join(key)
            latest = groups(newest(by_key[key]))
            made = [(kind, draw(heading, latest)) for kind, draw in _OF_NEWEST]
            made.append(("history", history.draw(heading, groups(by_key[key]))))
            drawn |= {f"{kind}-{slug}.svg": data for kind, data in made if data is not None}
    return drawn


def _key(record: Record) -> tuple[str, str]:
    """Component and machine: what a file is of."""
    return record.variant.component, record.host.name(record.variant.device)


def _slugs(keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A part of a file name for each key: letters, digits and dashes, with a hash where two are equal."""
    plain = {key: _slug(" ".join(key)) for key in keys}
    taken = list(plain.values())
    return {
        key: slug if slug and taken.count(slug) == 1 else f"{slug}-{digest(key)[:8]}".strip("-")
        for key, slug in plain.items()
    }


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:100]


def update(runs: Path, component: str = "") -> list[Path]:
    """Write the plots of the records under `runs`, and delete earlier ones that are not drawn any more.

    With `component` only its plots are written and none is deleted, since a sweep changes no others. Raises
    BakeoffError where matplotlib is missing or the folder cannot be written.
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
    """Files that bakeoff generated, by their second line; the others are the user's."""
    try:
        found = sorted(path for path in folder.glob("*.svg") if path.is_file() and not path.is_symlink())
        return [path for path in found if _is_marked(path)]
    except OSError as error:
        raise BakeoffError(
            f"{folder} cannot be read: {error.strerror}. Choose another folder with --runs.", code="not-readable"
        ) from error


def _is_marked(path: Path) -> bool:
    with path.open("rb") as file:
        file.readline(200)
        return file.readline(200) == MARK


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise BakeoffError(
            f"{path} is out of date and cannot be deleted: {error.strerror}. Delete it.", code="not-writable"
        ) from error
