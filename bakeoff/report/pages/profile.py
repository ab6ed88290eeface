"""The page of a profile: where a unit's time goes, what could be gained, and the HTML files beside the records.

Spans come from the timed units, and busy time from the traced ones; both are means in milliseconds per unit.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bakeoff.advice.evidence import Advice, evidence_of
from bakeoff.advice.rules import advise
from bakeoff.models.types import Scalar
from bakeoff.models.words import counted
from bakeoff.record.account import account_lines
from bakeoff.record.pipeline import PipelineRecord, Profile, Units
from bakeoff.record.statistics import summarise_ns
from bakeoff.record.store import Records, StoredPipeline
from bakeoff.report import links
from bakeoff.report.document import (
    Block,
    Cell,
    Details,
    Document,
    Figures,
    Heading,
    Link,
    Listed,
    Section,
    Table,
    Text,
    Tone,
    blocks,
    listed,
    number,
    section,
    table,
)
from bakeoff.report.figures import profile as figures
from bakeoff.report.figures.pipeline import units_figure
from bakeoff.report.format import MIB, kernel_name
from bakeoff.report.groups import title
from bakeoff.report.notes import advice_list, sentences
from bakeoff.report.pipelines import MixRow
from bakeoff.report.render import html
from bakeoff.trace.table import ProfileRow, ProfileTable, RankedRow, operators_scale, own_kernels, profile_table, ranked

_OWN = "Kernels of programs that show nothing of themselves, by a traced build of each"
_PARTS, _NAMED = 20, 3
"""Largest number of listed parts of networks, and of lines that the first sentence names."""


@dataclass(frozen=True, slots=True)
class Profiled:
    """A record with a profile and steady units, with the table and advice that are computed from it."""

    entry: StoredPipeline
    profile: Profile
    units: Units
    table: ProfileTable
    advice: tuple[Advice, ...]

    @property
    def record(self) -> PipelineRecord:
        return self.entry.record


def profiled(entry: StoredPipeline, records: Records) -> Profiled | None:
    """Return what the page and JSON of a record's profile show; None if it has no profile or no steady units."""
    made, units, facts = profile_table(entry.record), entry.record.measurement.units, evidence_of(entry, records)
    profile = entry.record.measurement.profile
    if made is None or profile is None or units is None or facts is None:
        return None
    return Profiled(entry, profile, units, made, advise(facts))


def as_json(found: Profiled) -> dict[str, object]:
    """Return the record with its id, and the figures that are computed from it."""
    return {"id": found.entry.id, "record": found.record, "figures": derived(found)}


def derived(found: Profiled) -> dict[str, object]:
    """Return figures in milliseconds per unit; shares are thousandths that add up to 1,000 within their list."""
    made = found.table
    names = "unit_ms", "busy_ms", "idle_ms", "hidden_ms", "cores", "overlap_ms"
    return {
        **{name: getattr(made, name) for name in names},
        "stamps_ms": _stamps(found.profile),
        "lines": [_line(row) for row in made.rows],
        **rankings(found),
        "hidden": list(hidden(found)),
        "advice": found.advice,
    }


def _line(row: ProfileRow) -> dict[str, object]:
    phase = row.phase
    named = {"name": phase.name, "kind": phase.kind, "slot": phase.slot, "calls": phase.unit_calls}
    idle = {"host_wait_ms": row.host_wait_ms, "gap_ms": row.gap_ms, "other_ms": row.other_ms}
    times = {"ms": phase.ms, "share": phase.thousandths, "busy_ms": row.busy_ms, "idle_ms": row.idle_ms, **idle}
    return {**named, **times, "inconsistent": row.inconsistent, "told_by": row.told_by}


def rankings(found: Profiled) -> dict[str, tuple[RankedRow, ...]]:
    """Return the kernels, those of programs that only a traced build shows, and operators, the longest first."""
    profile, scale = found.profile, operators_scale(found.profile, account_lines(found.record))
    return {
        "kernels": ranked(profile.kernels, profile.units, {}) if profile.kernels is not None else (),
        "own_kernels": own_kernels(profile.programs, found.record.calls),
        "operators": ranked(profile.operators, profile.units, scale) if profile.operators is not None else (),
    }


def _stamps(profile: Profile) -> tuple[float, float, float] | None:
    """Return the milliseconds per unit that time stamps cost, with the interval; None if their cost is unknown."""
    if not profile.stamps_ns:
        return None
    one = summarise_ns(profile.stamps_ns)
    return profile.stamps * one.median_ms, profile.stamps * one.low_ms, profile.stamps * one.high_ms


def document(found: Profiled, link: links.Link, siblings: Sequence[StoredPipeline] = ()) -> Document:
    """Return the page of one profile, with links to its record and to the profiles of the other mixes of its run."""
    others = (
        Link(f"profile of {other.record.role or other.record.mix}", links.profile_page(link, other))
        for other in siblings
    )
    addresses = [Link("record", link(found.entry)), *others]
    return Document(f"Where a {found.record.unit} goes: {found.record.mix}", _blocks(found, addresses))


def together(found: Sequence[Profiled], others: Sequence[StoredPipeline] = (), copies: Path | None = None) -> Document:
    """Return a page with a section for each mix, and why `others` have no profile; `copies` is the traces' folder."""
    missing = listed(Text(_why(other), f"{other.record.mix}: no profile") for other in others)
    sections = [Section(str(one.record.mix), _blocks(one, (), copies)) for one in found]
    return Document("Profiles", blocks(*sections, missing))


def _why(entry: StoredPipeline) -> str:
    made = entry.record.measurement
    if made.profile is not None:
        return f"{made.status}: {made.reason or 'no steady unit'}; without steady units there is nothing to hold it to"
    return f"{made.status}: {made.reason}" if made.reason else "the traced units were left to another profiler"


def _blocks(found: Profiled, addresses: Sequence[Link], copies: Path | None = None) -> tuple[Block | Section, ...]:
    record, profile, unit = found.record, found.profile, found.record.unit
    drawn = figures.waterfall(found.table, unit)
    units = units_figure([MixRow(found.entry, record.role or "this mix")])
    whole = counted(found.units.kinds.count("steady"), "timed steady unit")
    about = f"{title(record)}. {whole}, then {counted(profile.units, 'traced one')}, level {profile.level}."
    return blocks(
        *_answer(found),
        Text(about, tone="faint", links=tuple(addresses)),
        section(f"One {unit}", [*_account(found), Figures((drawn,)), Figures((units,)) if units is not None else None]),
        Section("Advice", (advice_list(found.advice, unit),)),
        *_inside(found),
        _memory(profile),
        section("Notes", [listed(Text(finding.text, finding.code) for finding in record.measurement.findings)]),
        section("Environment", [listed(_remarks(found, copies)), _environment(record)]),
    )  # fmt: skip


def _answer(found: Profiled) -> Iterator[Text]:
    """Yield a sentence on where the time goes, and one on what could be gained most."""
    made, record, unit = found.table, found.record, found.record.unit
    if record.status != "ok":
        tone: Tone = "open" if record.status == "unstable" else "bad"
        yield Text(record.measurement.reason, record.status, tone)
    longest = sorted(made.rows, key=lambda row: -row.phase.thousandths)[:_NAMED]
    shares = ", ".join(f"{row.phase.name} {row.phase.share}" for row in longest if row.phase.thousandths)
    unseen = f", {made.hidden_ms:.2f} not visible" if made.hidden_ms else ""
    apart = f"; with a synchronisation at each border {made.overlap_ms:+.2f} ms" if made.overlap_ms is not None else ""
    busy = f"{made.busy_ms:.2f} ms busy, {made.idle_ms:.2f} idle{unseen}"
    text = f"{made.unit_ms:.2f} ms a {unit}: {shares}; {busy}. {made.cores:.2f} cores busy while traced{apart}."
    yield Text(text, tone="good" if record.status == "ok" else "")
    best = next(iter(found.advice), None)
    if best is not None and best.gain_ms is not None and made.unit_ms:
        share = f"{100 * best.gain_ms / made.unit_ms:.0f} % of a {unit}"
        yield Text(f"{best.says} ({best.code}: at most {best.gain_ms:.2f} ms, {share}).", "Most to gain", "open")


def _account(found: Profiled) -> Iterator[Table | Text | None]:
    """Yield a table of the lines of a unit, which add up to it, and the tracer if all lines have the same."""
    made, unit = found.table, found.record.unit
    headings = (
        Heading("phase"), number("calls", leaves=1), number(f"mean ms a {unit}"), number("share"), number("busy ms"),
        number("idle ms"), number("host wait", leaves=2), number("queue gap", leaves=2), number("other", leaves=2),
        Heading("told by", "who saw what is inside", leaves=3),
    )  # fmt: skip
    told = {row.told_by for row in made.rows if row.told_by}
    total = ["sum", "", f"{made.unit_ms:.3f}", "100.0 %", f"{made.busy_ms:.3f}", f"{made.idle_ms:.3f}", *[""] * 4]
    yield table(headings, [*(_cells(row, len(told) > 1) for row in made.rows), [*map(Cell, total)]])
    if len(told) == 1:
        yield Text(f"What is busy inside was told by {told.pop()}.", tone="faint")


def _cells(row: ProfileRow, told: bool) -> list[Cell | str]:
    phase, split = row.phase, (row.host_wait_ms, row.gap_ms, row.other_ms)
    return [
        phase.name,
        str(phase.unit_calls) if phase.unit_calls is not None else "",
        _ms(phase.ms),
        phase.share,
        "not visible" if row.busy_ms is None else _ms(row.busy_ms),
        Cell("inconsistent", tone="bad") if row.inconsistent else _ms(row.idle_ms),
        *map(_ms, split),
        re.sub(r"record \S+_", "record ", row.told_by) if told else "",
    ]


def _ms(value: float | None) -> str:
    return f"{value:.3f}" if value is not None else ""


def _inside(found: Profiled) -> Iterator[Section | None]:
    """Yield sections on kernels and operators, and on parts of networks."""
    unit, titles = found.record.unit, {"kernels": "Kernels", "own_kernels": _OWN, "operators": "Operators, own time"}
    tables = [_ranking(titles[name], rows, unit) for name, rows in rankings(found).items()]
    sights = (
        f"{sight.slot}.{sight.program}: {sight.sight}{f', told by {sight.tracer}' if sight.tracer else ''}"
        for sight in found.profile.programs
    )
    seen = listed(sights)
    where = Details("Where the inside of each program was seen", (seen,)) if seen is not None else None
    yield section("Kernels and operators", [*tables, listed(hidden(found)), where])
    yield section("Parts of networks, while traced", [_parts(found)])


def _percent(row: RankedRow) -> str:
    return f"{row.thousandths / 10:.1f} %"


def _ranking(heading: str, rows: Sequence[RankedRow], unit: str) -> Table | None:
    headings = (
        Heading("name"), Heading("in"), number(f"calls a {unit}", leaves=1), number(f"ms a {unit}"), number("share"),
    )  # fmt: skip
    cells = (
        (kernel_name(row.name), row.line, f"{row.calls:g}" if row.calls else "", _ms(row.ms), _percent(row))
        for row in rows
    )
    return table(headings, cells, heading)


def _parts(found: Profiled) -> Table | None:
    """Return a table of the parts that took longest on the host; a part's time includes the parts within it."""
    unit, units = found.record.unit, found.profile.units
    longest = sorted(found.profile.parts, key=lambda part: -part.ns)[:_PARTS]
    headings = (
        Heading("module"), Heading("slot"), Heading("tag"), number("level", leaves=2),
        number(f"calls a {unit}", leaves=1), number(f"ms a {unit}"),
    )  # fmt: skip
    cells = (
        (part.path, part.slot, part.tag, str(part.level), f"{part.calls / units:g}", _ms(part.ns / units / 1e6))
        for part in longest
    )
    return table(headings, cells)


def hidden(found: Profiled) -> Iterator[str]:
    """Yield a sentence on each program or slot whose inside is not visible, with the reason."""
    for sight in found.profile.programs:
        if sight.sight == "hidden":
            why = sight.problem or "its engine shows nothing of itself, and there is no traced build"
            yield f"{sight.slot}.{sight.program}: inside not visible: {why}"
    if found.profile.level < 4:
        return
    seen = {part.slot for part in found.profile.parts}
    for slot in found.record.mix.slots:
        if slot.slot not in seen:
            text = "compiled region, inside not visible at levels 4 and 5; see the eager mix"
            yield f"{slot.slot} ({slot.backend}/{slot.dtype}): {text}"


def _memory(profile: Profile) -> Section | None:
    drawn = figures.memory(profile.memory)
    if drawn is None:
        return None
    span, most = profile.memory[-1].t_ns / 1e6, max(point.bytes for point in profile.memory) / MIB
    text = f"Allocated over the traced units: {span:.0f} ms, peak {most:.1f} MiB."
    return Section("Memory", (Text(text), Figures((drawn,))))


def _remarks(found: Profiled, copies: Path | None) -> Iterator[Text]:
    """Yield remarks on the cost of time stamps, compiling within traced units, and where the files are."""
    profile, unit_ms = found.profile, found.table.unit_ms
    stamps = _stamps(profile)
    if stamps is not None and unit_ms:
        share, least, most = (100 * each / unit_ms for each in stamps)
        cost = f"{stamps[0]:.4f} ms a {found.record.unit}, {share:.3f} % of it [{least:.3f}, {most:.3f}]"
        yield Text(cost, "The time stamps of the phases take")
    if profile.compiled:
        yield Text(", ".join(profile.compiled), "Compiled within the traced units", "bad")
    if profile.note:
        yield Text(profile.note, "Note")
    where = "in the cache folder of the machine"
    if profile.trace is not None:
        place = copies / Path(profile.trace.path).name if copies is not None else f"{profile.trace.path} {where}"
        yield Text(f"{place}; open it at ui.perfetto.dev", "Trace")
    if profile.snapshot is not None:
        yield Text(f"{profile.snapshot.path} {where}", "Memory snapshot")
    if profile.compiler:
        yield Text(f"{profile.compiler} {where}", "Compiler's log")


def _environment(record: PipelineRecord) -> Details:
    dirty = " with changes" if record.dirty else ""
    found: Mapping[str, Scalar] = {
        "machine": record.machine.name, "system": record.host.system, "threads": record.threads,
        "created": record.created, "commit": f"{record.commit[:12]}{dirty}",
        **record.versions, **record.measurement.settings, **record.measurement.device_state,
    }  # fmt: skip
    told = [Text(str(value), name) for name, value in found.items()]
    told += [Text(sentence, "monitor") for sentence in sentences(record)]
    return Details("Machine, versions and settings", (Listed(tuple(told)),))


def pages(records: Records) -> Iterator[tuple[str, str]]:
    """Yield the path, relative to the folder of all runs, and the text of the page of each record with a profile.

    Equal records give equal text. Raises BakeoffError if a library is missing.
    """
    made = [found for entry in records.pipelines if (found := profiled(entry, records)) is not None]
    for found in made:
        folder = f"{links.home_of(found.entry)}/{links.PROFILES}"
        run = found.record.run, found.entry.machine.host
        others = (one.entry for one in made if one is not found)
        siblings = [other for other in others if (other.record.run, other.machine.host) == run]
        page = document(found, links.links_from(folder), siblings)
        yield f"{folder}/{found.entry.id}.html", html.render(page, interactive=False)


def paths_of(runs: Path, entries: Sequence[StoredPipeline]) -> list[Path]:
    """Return the paths of the pages of those `entries` that have a profile."""
    held = [entry for entry in entries if profile_table(entry.record) is not None]
    return [runs / links.home_of(entry) / links.PROFILES / f"{entry.id}.html" for entry in held]
