"""runs/<machine>/plots/: SVG files made from the records alone; the same records give the same bytes."""

import posixpath
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from bakeoff.machine.files import digest, slug, write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.record.store import Records, Stored, StoredPipeline, load_all
from bakeoff.report.comparable import Table, tables
from bakeoff.report.figures.batch_curve import batch_curves
from bakeoff.report.groups import groups, newest
from bakeoff.report.links import folders_of
from bakeoff.report.pipelines import PipelineTable, pipeline_tables
from bakeoff.report.svg import batch_curve, history, latency, pipelines, roofline
from bakeoff.report.svg.canvas import MARK, settings

FOLDER = "plots"
_OF_NEWEST: tuple[tuple[str, Callable[[str, Sequence[Table]], bytes | None]], ...] = (
    ("latency", latency.draw),
    ("roofline", roofline.draw),
)
_OF_PIPELINES: tuple[tuple[str, Callable[[str, Sequence[PipelineTable]], bytes | None]], ...] = (
    ("waterfall", pipelines.draw_waterfall),
    ("units", pipelines.draw_units),
)


def render(records: Records, component: str = "") -> dict[str, bytes]:
    """File, relative to the folder of all runs, to SVG: for each component and pipeline on each machine, or for one.

    Raises BakeoffError where matplotlib is missing.
    """
    drawn: dict[str, bytes] = {}
    for machine in records.machines():
        own = records.of_machines([machine.id])
        for name, data in _of_machine(own, machine.name, component).items():
            drawn[posixpath.join(folders_of(own)[machine.id], FOLDER, name)] = data
    return drawn


def _of_machine(records: Records, machine: str, component: str) -> dict[str, bytes]:
    """File name to SVG for the records of one machine."""
    by_component: dict[str, list[Stored]] = {}
    for entry in records.current:
        by_component.setdefault(entry.record.variant.component, []).append(entry)
    runs: dict[str, list[StoredPipeline]] = {}
    for run in records.pipelines:
        runs.setdefault(run.record.mix.pipeline, []).append(run)
    if not by_component and not runs:
        return {}
    drawn: dict[str, bytes] = {}
    with settings():
        for name, part in _slugs(by_component).items():
            if component not in ("", name):
                continue
            heading = f"{name} on {machine}"
            latest = tables(newest(by_component[name]), records.ceilings, records.current)
            made = [(kind, draw(heading, latest)) for kind, draw in _OF_NEWEST]
            made.append(("history", history.draw(heading, groups(by_component[name]))))
            made.append(("batches", batch_curve.draw(heading, batch_curves(newest(by_component[name])))))
            drawn |= {f"{kind}-{part}.svg": data for kind, data in made if data is not None}
        for name, part in _slugs(runs).items():
            if component not in ("", name):
                continue
            found = pipeline_tables(runs[name])
            made = [(kind, draw(f"{name} on {machine}", found)) for kind, draw in _OF_PIPELINES]
            drawn |= {f"{kind}-{part}.svg": data for kind, data in made if data is not None}
    return drawn


def _slugs(names: Iterable[str]) -> dict[str, str]:
    """A part of a file name for each name, with a hash where two are equal."""
    plain = {name: slug(name) for name in names}
    taken = list(plain.values())
    return {
        name: part if part and taken.count(part) == 1 else f"{part}-{digest(name)[:8]}".strip("-")
        for name, part in plain.items()
    }


def update(runs: Path, component: str = "", machines: Collection[str] | None = None) -> list[Path]:
    """Write the plots of the records under `runs`, and delete earlier ones that are not drawn any more.

    `machines` are the ids of those whose plots are written, by default all. With `component` only its plots are
    written and none is deleted, since a sweep changes no others. Raises BakeoffError where matplotlib is missing or a
    folder cannot be written.
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
