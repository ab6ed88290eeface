"""One offline HTML page for each profile, without scripts: its figures are drawn here, as SVG. JSON lies beside it.

Pure functions of the records. Pages lie in `runs/<machine>/profiles/`, named as their records.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bakeoff.machine.files import write_atomically
from bakeoff.models.words import counted
from bakeoff.record.codec import encode_json
from bakeoff.record.store import Records, StoredPipeline
from bakeoff.report.figures.style import BETWEEN, colours
from bakeoff.report.html.drawing import Bar, Tick
from bakeoff.report.html.embed import policy, read
from bakeoff.report.html.template import template
from bakeoff.report.links import AGAIN, PROFILES, folders_of, links_from
from bakeoff.report.profiles import ProfileReport, report_of
from bakeoff.report.text.profile import stamps_text
from bakeoff.trace.table import profile_table

_WIDTH, _HEIGHT = 960.0, 220.0
"""Of a figure's drawing, in its own units."""
_MOST_UNITS = 240


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure: bars, a path, and the ticks of its vertical axis."""

    bars: tuple[Bar, ...]
    path: str
    ticks: tuple[Tick, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class WaterfallRow:
    """A line of the unit with its place in it, in percent of the unit."""

    name: str
    left: float
    busy: float
    idle: float
    hidden: float
    colour: str
    text: str


def pages(records: Records) -> Iterator[tuple[str, bytes]]:
    """Path, relative to the folder of all runs, and content of the page and the JSON of each record with a profile.

    Equal records give equal content. Raises BakeoffError where jinja2 is missing.
    """
    folders = folders_of(records)
    profiled = [entry for entry in records.pipelines if profile_table(entry.record) is not None]
    for entry in profiled:
        report = report_of(entry, records)
        assert report is not None
        folder = f"{folders[entry.machine.id]}/{PROFILES}"
        siblings = [
            (other.record.role or str(other.record.mix), f"{other.id}.html")
            for other in profiled
            if (other.record.run, other.machine.id) == (entry.record.run, entry.machine.id) and other.id != entry.id
        ]
        yield f"{folder}/{entry.id}.json", msgspec.json.format(encode_json(report), indent=1) + b"\n"
        yield f"{folder}/{entry.id}.html", render(report, links_from(folder)(entry), siblings).encode()


def update(runs: Path, records: Records) -> list[Path]:
    """Write page and JSON of each profile, and delete those of records that are gone; returns the pages' paths.

    Raises BakeoffError where one cannot be written.
    """
    wanted = dict(pages(records))
    for name, content in wanted.items():
        write_atomically(runs / name, content)
    for path in _left_over(runs, wanted):
        path.unlink(missing_ok=True)
    return [runs / name for name in wanted if name.endswith(".html")]


def paths_of(runs: Path, entries: Sequence[StoredPipeline], records: Records) -> list[Path]:
    """Where the pages of these records are; those without a profile have none."""
    folders = folders_of(records)
    profiled = [entry for entry in entries if profile_table(entry.record) is not None]
    return [runs / folders[entry.machine.id] / PROFILES / f"{entry.id}.html" for entry in profiled]


def check(runs: Path, records: Records) -> list[str]:
    """What is wrong: pages that are missing, edited or stale, and those without a record. Empty: nothing is."""
    wanted = dict(pages(records))
    problems = []
    for name, content in wanted.items():
        if not (runs / name).is_file():
            problems.append(f"{runs / name} does not exist. {AGAIN}")
        elif (runs / name).read_bytes() != content:
            problems.append(f"{runs / name} differs from what the records give. {AGAIN}")
    left = _left_over(runs, wanted)
    return [*problems, *(f"{path} is of a record without a profile, or of none. {AGAIN}" for path in left)]


def _left_over(runs: Path, wanted: Collection[str]) -> list[Path]:
    found = sorted(path for ending in ("html", "json") for path in runs.glob(f"*/{PROFILES}/*.{ending}"))
    return [path for path in found if path.relative_to(runs).as_posix() not in wanted]


def render(report: ProfileReport, record: str, siblings: Sequence[tuple[str, str]]) -> str:
    """The page; `record` is the address of its record, `siblings` are names and addresses of the other mixes' pages.

    Raises BakeoffError where jinja2 is missing.
    """
    colours = _colours(report)
    return template("profile.html.j2", "the page of a profile").render(
        policy=policy(),
        style=read("page.css") + read("profile.css"),
        report=report,
        record=record,
        siblings=siblings,
        waterfall=_waterfall(report, colours),
        legend=list(zip([line.name for line in report.lines], colours, strict=True)),
        units=_units(report, colours),
        memory=_memory(report),
        width=_WIDTH,
        height=_HEIGHT,
        stamps=stamps_text(report),
        has_split=any(line.host_wait_ms is not None for line in report.lines),
    )


def _colours(report: ProfileReport) -> list[str]:
    colour_of = colours(line.name for line in report.lines if line.kind not in BETWEEN)
    return [BETWEEN.get(line.kind) or colour_of[line.name] for line in report.lines]


def _waterfall(report: ProfileReport, colours: Sequence[str]) -> list[WaterfallRow]:
    rows, left = [], 0.0
    unit = report.unit_ms or 1.0
    for line, colour in zip(report.lines, colours, strict=True):
        known = line.busy_ms is not None and line.idle_ms is not None
        rows.append(
            WaterfallRow(
                line.name,
                100 * left / unit,
                100 * (line.busy_ms or 0.0) / unit if known else 0.0,
                100 * (line.idle_ms or 0.0) / unit if known else 0.0,
                0.0 if known else 100 * line.ms / unit,
                colour,
                f"{line.ms:.2f} ms, {line.share / 10:.1f} %",
            )
        )
        left += line.ms
    return rows


def _units(report: ProfileReport, colours: Sequence[str]) -> Drawing:
    """Each unit as a bar of its phases, in the order they ran; of many, the last ones."""
    units = report.units[-_MOST_UNITS:]
    most = max((unit.ms for unit in units), default=0.0)
    bars: list[Bar] = []
    step = _WIDTH / max(1, len(units))
    first = len(report.units) - len(units)
    for place, unit in enumerate(units):
        base = _HEIGHT
        about = f"unit {first + place}, {unit.kind}" + (
            f", compiled {', '.join(unit.compiled)}" if unit.compiled else ""
        )
        known = sum(unit.lines_ms)
        pieces = [*zip([line.name for line in report.lines], unit.lines_ms, colours, strict=True)]
        pieces.append(("other phases", unit.ms - known, "#444444"))
        for name, ms, colour in pieces:
            if ms <= 0 or not most:
                continue
            height = ms / most * _HEIGHT
            base -= height
            x, y, width, tall = (round(value, 2) for value in ((place + 0.1) * step, base, 0.8 * step, height))
            bars.append(Bar(x, y, width, tall, colour, f"{about}: {name} {ms:.2f} ms"))
    note = f"the last {len(units)} of {counted(len(report.units), 'unit')}" if first else ""
    return Drawing(tuple(bars), "", _ticks(most, "ms"), note)


def _memory(report: ProfileReport) -> Drawing | None:
    """Allocated memory over the traced units."""
    if len(report.memory) < 2:
        return None
    end, most = report.memory[-1][0], max(mebibytes for _, mebibytes in report.memory)
    if not end or not most:
        return None
    points = [f"{t / end * _WIDTH:.1f},{_HEIGHT - mebibytes / most * _HEIGHT:.1f}" for t, mebibytes in report.memory]
    return Drawing((), "M" + " L".join(points), _ticks(most, "MiB"), f"{end:.0f} ms, peak {most:.1f} MiB")


def _ticks(most: float, unit: str) -> tuple[Tick, ...]:
    return tuple(
        Tick(round(_HEIGHT * (1 - part), 1), f"{most * part:.3g} {unit}") for part in (0.25, 0.5, 0.75, 1.0) if most
    )
