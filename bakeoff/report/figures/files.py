"""Draws the SVG files in runs/<machine>/plots/ and README's picture; the same records give the same bytes."""

import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from bakeoff.machine.files import digest, slug, write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.models.grouping import grouped
from bakeoff.record.store import Records, Stored, load_all
from bakeoff.report.figures import roofline, variants
from bakeoff.report.figures.pipeline import units_figure, waterfall_figure
from bakeoff.report.figures.vega import MARK, Figure, svg
from bakeoff.report.groups import newest, tables, title
from bakeoff.report.links import folders_of
from bakeoff.report.pipelines import pipeline_tables
from bakeoff.report.selection import shorts

FOLDER = "plots"
LATENCY = "latency.svg"
"""File name of README's picture in runs/published/."""
_Panels = list[tuple[str, Figure | None]]
"""Titles and figures of a page, from top to bottom."""


def render(records: Records, component: str = "") -> dict[str, bytes]:
    """Draw the plots of each component and pipeline on each machine, or only those of `component`.

    Return SVG by path relative to the folder of all runs. Raises BakeoffError if the library that draws is missing.
    """
    drawn: dict[str, bytes] = {}
    for machine in records.machines():
        own = records.of_machines([machine.key])
        for name, data in _of_machine(own, machine.name, component).items():
            drawn[posixpath.join(folders_of(own)[machine.key], FOLDER, name)] = data
    return drawn


def _of_machine(records: Records, machine: str, component: str) -> dict[str, bytes]:
    """Draw the plots of one machine's records, and return SVG by file name."""
    by_component = grouped((entry.record.variant.component, entry) for entry in records.current)
    runs = grouped((run.record.mix.pipeline, run) for run in records.pipelines)
    drawn: dict[str, bytes] = {}
    for name, part in _slugs(by_component).items():
        if component in ("", name):
            pages = _of_component(by_component[name], records)
            drawn |= _drawn(f"{name} on {machine}", part, pages)
    for name, part in _slugs(runs).items():
        if component in ("", name):
            found = [each for each in pipeline_tables(runs[name]) if each.rows]
            titles = [title(each.rows[0].record, machine=False) for each in found]
            pages = {
                kind: list(zip(titles, (draw(each.rows) for each in found), strict=True))
                for kind, draw in (("waterfall", waterfall_figure), ("units", units_figure))
            }
            drawn |= _drawn(f"{name} on {machine}", part, pages)
    return drawn


def _of_component(rows: Sequence[Stored], records: Records) -> dict[str, _Panels]:
    """Return the panels of each kind of figure: one panel for each table, group or batch curve."""
    latest = [entry for entry in newest(rows) if entry.record.status != "built"]
    found = [
        (title(each.rows[0].record, machine=False), each) for each in tables(latest, records.ceilings, records.current)
    ]
    return {
        "latency": [(name, variants.bars(each.rows, each.ceilings)) for name, each in found],
        "roofline": [(name, roofline.figure(each.rows, each.ceilings)) for name, each in found],
    }


def _drawn(heading: str, part: str, pages: Mapping[str, _Panels]) -> dict[str, bytes]:
    """Draw a file for each kind of figure with something to show, and return SVG by file name."""
    drawn = {}
    for kind, panels in pages.items():
        data = page(heading, panels)
        if data is not None:
            drawn[f"{kind}-{part}.svg"] = data
    return drawn


def page(heading: str, panels: _Panels) -> bytes | None:
    """Return the figures that are not None as one SVG file; None if all are.

    Raises BakeoffError if the library that draws is not installed.
    """
    held = [(name, each) for name, each in panels if each is not None]
    if not held:
        return None
    caption = max((each.caption for _, each in held), key=len)
    return svg(f"{held[0][1].heading}: {heading}", caption, [(name, each.spec) for name, each in held])


def published(records: Records) -> bytes | None:
    """Draw README's picture, the variants of its first component; None if no row can be ranked.

    Raises BakeoffError if the library that draws is missing.
    """
    found = shorts(records)
    if not found:
        return None
    table, (shown, *_) = found[0]
    first = shown.record
    panel = variants.bars(table.rows, table.ceilings)
    return page(f"{first.variant.component} on {table.machine.name}", [(title(first, machine=False), panel)])


def _slugs(names: Iterable[str]) -> dict[str, str]:
    """Return a part of a file name for each name, with a hash if two would be equal."""
    plain = {name: slug(name) for name in names}
    taken = list(plain.values())
    return {
        name: part if part and taken.count(part) == 1 else f"{part}-{digest(name)[:8]}".strip("-")
        for name, part in plain.items()
    }


def update(runs: Path, component: str = "", machines: Collection[str] | None = None) -> list[Path]:
    """Write the plots of the records under `runs`, delete outdated ones, and return the paths written.

    `machines` are the keys of those whose plots are written, by default all. With `component`, only its plots are
    written and none is deleted, since a sweep changes no others. Raises BakeoffError if the library that draws is
    missing or a folder cannot be written.
    """
    records = load_all(runs)
    if machines is not None:
        records = records.of_machines(list(machines))
    drawn = render(records, component)
    for folder in [] if component else folders_of(records).values():
        for path in _generated(runs / folder / FOLDER):
            if path.relative_to(runs).as_posix() not in drawn:
                _delete(path)
    for name, data in drawn.items():
        write_atomically(runs / name, data)
    return [runs / name for name in drawn]


def _generated(folder: Path) -> list[Path]:
    """Return the SVG files that bakeoff generated, known by their second line; others are the user's."""
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
