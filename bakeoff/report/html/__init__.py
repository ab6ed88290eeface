"""One offline HTML page of the newest records: tables that sort, figures that zoom, and links to the records.

A pure function of the records. Everything is inside the file; its content security policy lets nothing be loaded and
only the scripts be run whose hashes it names.
"""

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from bakeoff.machine.files import write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.record.codec import encode_json
from bakeoff.record.floor import floor, share
from bakeoff.record.schema import Comparison, Record
from bakeoff.record.statistics import Summary
from bakeoff.record.store import Records, Stored, StoredComparison
from bakeoff.report.figures.style import milliseconds, readable, shorten, status_colour
from bakeoff.report.groups import (
    MIB,
    Group,
    baselines,
    build_seconds,
    group_key,
    groups,
    name_of,
    newest,
    peak_mib,
    speedup,
    title,
)
from bakeoff.report.html import charts
from bakeoff.report.recommendation import recommendation
from bakeoff.report.text.certificate import longest_kernels
from bakeoff.report.text.comparison import how

_FIGURES = (
    ("distribution", "Latency distribution", "all timed calls; the box holds the middle half", charts.distribution),
    (
        "trade",
        "Speed, error, memory",
        "left and low is better; the area is the peak memory; hollow: not ok",
        charts.trade,
    ),
    ("timeline", "Calls in the order taken", "warm-up shaded; a click on a name hides it", charts.timeline),
)
_KERNELS = 5


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    hint: str = ""
    """What a reader is told who points at it."""
    numeric: bool = True


_COLUMNS = (
    Column("variant", numeric=False),
    Column("status", numeric=False),
    Column("median ms [95 %]", "median of the latency clock and its 95 % interval"),
    Column("p99 ms", "99 of 100 calls took less"),
    Column("calls/s", "1000 / median ms"),
    Column("video fps", "frames a second of this component alone, all calls of a frame counted"),
    Column("vs eager", "ratio of medians against eager in the same dtype; ~ no difference shown"),
    Column("floor ms", "what the work or the traffic of a call takes at the device's peak"),
    Column("of floor", "floor over median: 100 % leaves nothing to gain"),
    Column("peak MiB", "device level on CUDA, resident size of the worker on a CPU"),
    Column("error", "largest relative L2 of an output against the judge"),
    Column("SQNR dB", "worst output against the judge"),
    Column("build s", "cold/warm"),
    Column("record", numeric=False),
)


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    key: str = ""
    """What it is sorted by; empty sorts last."""
    href: str = ""
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A group of comparable rows as the template wants it."""

    anchor: str
    subject: str
    title: str
    setting: str
    """The title without the subject."""
    facts: str
    verdict: str
    rows: tuple[tuple[Cell, ...], ...]
    problems: tuple[tuple[str, str, str], ...]
    """Variant, status, reason."""
    findings: tuple[tuple[str, str, str], ...]
    """Code, text, the variants it belongs to when not all."""
    kernels: tuple[tuple[str, str], ...]
    """Variant, its longest kernels with their shares; of rows that were traced."""
    figures: tuple[tuple[str, str, str, int], ...]
    """Name, heading, caption, height in pixels."""
    data: str
    """The figures as JSON that cannot end a script element."""


@dataclass(frozen=True, slots=True)
class Duel:
    """A comparison: ratios of the medians, b over a, round by round."""

    subject: str
    a: str
    b: str
    how: str
    middle: float
    least: float
    largest: float
    href: str
    dots: tuple[tuple[float, float], ...]
    """In a drawing of 100 by 20, the ratio from left to right on a logarithmic scale around 1 in the middle."""


def render(records: Records, folder: str = "records") -> str:
    """The page; `folder` is where the record files are, seen from the page. Equal records give equal text.

    Raises BakeoffError where jinja2 or plotly is missing.
    """
    try:
        import jinja2
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        raise BakeoffError(
            f"the page needs {error.name}, which is not installed; run: pip install {error.name}"
        ) from error
    library = get_plotlyjs()
    script = _read("page.js")
    assert "</script" not in library.lower() + script.lower()
    rows = newest(records.current)
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: readable(value) if type(value) is str else value,  # Markup is ours
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.from_string(_read("page.html.j2")).render(
        policy=_policy(library, script),
        style=_read("page.css"),
        library=library,
        script=script,
        summary=_summary(records, rows),
        columns=_COLUMNS,
        sections=[_section(number, group, records.comparisons, folder) for number, group in enumerate(groups(rows))],
        duels=_duels(records.comparisons, folder),
        superseded=[(entry.id, _link(folder, entry.id), reason) for entry, reason in records.superseded],
        unreadable=records.problems,
    )


def of_component(records: Records, component: str) -> Records:
    """What belongs to a component; all for an empty name."""
    if not component:
        return records
    return Records(
        current=tuple(entry for entry in records.current if entry.record.variant.component == component),
        superseded=tuple(pair for pair in records.superseded if pair[0].record.variant.component == component),
        problems=records.problems,
        comparisons=tuple(
            compared for compared in records.comparisons if compared.comparison.a.variant.component == component
        ),
    )


def write(path: Path, records: Records, runs: Path) -> None:
    """Write the page to `path`, its links relative to there. Raises BakeoffError for what is no regular file."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise BakeoffError(f"{path} exists and is no regular file; give --html a file's name")
    folder = os.path.relpath((runs / "records").resolve(), path.resolve().parent)
    write_atomically(path, render(records, folder).encode())


def _read(name: str) -> str:
    return resources.files("bakeoff.report.html").joinpath(name).read_text(encoding="utf-8")


def _policy(*scripts: str) -> str:
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    sources = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _summary(records: Records, rows: Sequence[Stored]) -> str:
    if not rows:
        return "No records yet."
    machines = {entry.record.host.name(entry.record.variant.device) for entry in rows}
    last = max(entry.record.created for entry in rows)
    return (
        f"{len(rows)} variants, each by the newest of {len(records.current)} records, on {len(machines)} "
        f"machine{'' if len(machines) == 1 else 's'}; the last is of {last[:16].replace('T', ' ')} UTC."
    )


def _section(number: int, group: Group, comparisons: Sequence[StoredComparison], folder: str) -> Section:
    first = group.rows[0].record
    bases = baselines(group.rows)
    drawn = [(name, heading, caption, figure(group.rows)) for name, heading, caption, figure in _FIGURES]
    present = {name: made for name, _, _, made in drawn if made is not None}
    return Section(
        anchor=f"group-{number}",
        subject=first.variant.subject,
        title=title(first),
        setting=title(first).removeprefix(first.variant.subject).strip(" ,"),
        facts=_facts(first),
        verdict=recommendation(group.rows, comparisons),
        rows=tuple(_cells(entry, bases, folder) for entry in group.rows),
        problems=tuple(
            (name_of(entry.record), entry.record.status, entry.record.measurement.reason)
            for entry in group.rows
            if entry.record.status != "ok"
        ),
        findings=_findings(group.rows),
        kernels=tuple((name_of(entry.record), text) for entry in group.rows if (text := _kernels(entry.record))),
        figures=tuple(
            (name, heading, caption, made["layout"]["height"]) for name, heading, caption, made in drawn if made
        ),
        data=_embedded(present),
    )


def _facts(record: Record) -> str:
    traffic = f" and {record.minimum_bytes / MIB:,.0f} MiB of traffic" if record.minimum_bytes else ""
    return f"{record.parameters:,} parameters; {record.flops / 1e9:,.2f} GFLOP{traffic} a call at least."


def _findings(rows: Sequence[Stored]) -> tuple[tuple[str, str, str], ...]:
    found: dict[tuple[str, str], list[str]] = {}
    for entry in rows:
        for finding in entry.record.measurement.findings:
            found.setdefault((finding.code, finding.text), []).append(name_of(entry.record))
    return tuple((code, text, "" if len(who) == len(rows) else ", ".join(who)) for (code, text), who in found.items())


def _kernels(record: Record) -> str:
    return ", ".join(f"{shorten(kernel.name, 60)} {part}" for kernel, part in longest_kernels(record, _KERNELS))


def _cells(entry: Stored, bases: Mapping[str, Record], folder: str) -> tuple[Cell, ...]:
    record, figures, bound = entry.record, entry.record.latency, floor(entry.record)
    parity, build, ours = record.measurement.parity, record.measurement.build, share(record)
    base = bases.get(record.variant.dtype) if record.status == "ok" else None
    gain = base.latency.median_ms / figures.median_ms if base and base.latency and figures else None
    error = charts.worst_error(record)
    name = name_of(record)
    sqnr = (parity.sqnr_db if parity.sqnr_db is not None else float("inf")) if parity and parity.sqnr_text else None
    return (
        Cell(name, name),
        Cell(record.status, record.status, colour=status_colour(record.status)),
        _number(figures.median_ms if figures else None, _median(figures)),
        _number(figures.p99_ms if figures else None, milliseconds(figures.p99_ms) if figures else ""),
        _number(1000 / figures.median_ms if figures else None),
        _number(record.video_fps),
        _number(gain, speedup(record, base)),
        _number(bound.ms if bound else None, milliseconds(bound.ms) if bound else ""),
        _number(ours, "" if ours is None else f"{100 * ours:.0f} %"),
        _number(peak := peak_mib(record), "" if peak is None else f"{peak:,.0f}"),
        _number(error, "" if error is None else f"{error:.1e}" if error else "exact"),
        _number(sqnr, parity.sqnr_text if parity else ""),
        _number(build.build_s if build else None, build_seconds(record)),
        Cell(entry.id.rpartition("_")[2], entry.id, _link(folder, entry.id)),
    )


def _median(figures: Summary | None) -> str:
    if figures is None:
        return ""
    return f"{milliseconds(figures.median_ms)} [{milliseconds(figures.low_ms)}, {milliseconds(figures.high_ms)}]"


def _number(value: float | None, text: str | None = None) -> Cell:
    if value is None:
        return Cell("")
    return Cell(f"{value:.2f}" if text is None else text, repr(value).replace("inf", "Infinity"))


def _link(folder: str, name: str) -> str:
    return quote(f"{folder}/{name}.json")


def _embedded(value: Any) -> str:
    """JSON in which no letter has a meaning in HTML or ends a line of a script."""
    text = encode_json(value).decode()
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _duels(comparisons: Sequence[StoredComparison], folder: str) -> list[Duel]:
    """The newest comparison of each pair on each machine."""
    kept: dict[tuple[object, ...], StoredComparison] = {}
    for compared in comparisons:
        a, b = compared.comparison.a, compared.comparison.b
        kept[group_key(a), str(a.variant), str(b.variant)] = compared
    made = [_duel(compared.comparison, _link(folder, compared.id)) for compared in kept.values()]
    return [duel for duel in made if duel is not None]


def _duel(comparison: Comparison, href: str) -> Duel | None:
    """None where a side ended before the first round."""
    ratios = [median(turn.b_ns) / median(turn.a_ns) for turn in comparison.rounds]
    if not ratios:
        return None
    return Duel(
        subject=title(comparison.a),
        a=name_of(comparison.a),
        b=name_of(comparison.b),
        how=how(comparison),
        middle=median(ratios),
        least=min(ratios),
        largest=max(ratios),
        href=href,
        dots=_dots(ratios),
    )


def _dots(ratios: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """One dot a round, time from top to bottom; the scale reaches as far as the furthest ratio on both sides of 1."""
    reach = max(*(max(ratio, 1 / ratio) for ratio in ratios if ratio > 0), 1.0) - 1 or 1.0
    return tuple(
        (
            round(50 + 46 * max(-1.0, min(1.0, (ratio - 1) / reach)), 2),
            round(3 + 14 * place / max(1, len(ratios) - 1), 2),
        )
        for place, ratio in enumerate(ratios)
    )
