"""The optimization history: an entry for every sweep of a machine, generated from the records alone."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from urllib.parse import quote

from bakeoff.machine.identity import Machine
from bakeoff.models.words import counted
from bakeoff.record.ceilings import KnownCeilings, best_ceilings
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored, StoredComparison
from bakeoff.report.columns import legend
from bakeoff.report.comparisons import sentence
from bakeoff.report.drift import USUAL, drift
from bakeoff.report.format import minute
from bakeoff.report.groups import group_key, groups, newest, title_without_machine
from bakeoff.report.links import Link, folders_of, links_from
from bakeoff.report.markdown import elsewhere, pipelines
from bakeoff.report.markdown.escape import escape
from bakeoff.report.markdown.results import NAME as RESULTS
from bakeoff.report.markdown.table import cited, table
from bakeoff.report.notes import overlapped_text, reasons, selftest_text
from bakeoff.report.recommendation import recommendation
from bakeoff.report.spread import spread_lines

NAME = "OPTIMIZATION_HISTORY.md"
_COLUMNS = (
    "name", "status", "mean_ms", "min_ms", "max_ms", "std_ms", "copy_ms", "floor", "of_floor", "peak_mib",
    "mean_calls_per_s", "items_per_s", "video_fps", "vs_eager", "vs_eager_fp32", "sqnr_db", "lossless", "build",
    "limits", "record",
)  # fmt: skip
_HEADING = "# Optimization history"
_INTRODUCTION = """\
Generated from the records by `make history` (published ones by `make publish`); do not edit. Each sweep has an entry,
and each record a line in it. Milliseconds are of the latency clock: one call, synchronised. A final measures the two
best rows of a sweep against each other in interleaved blocks of calls.

"""


def render(records: Records) -> str:
    """The page of all machines: their names with links to their pages, the whole history of the one that measured last,
    and what others published of the same architectures. Equal records give equal text.
    """
    machines, folders = records.machines(), folders_of(records)
    parts = [f"{_HEADING}\n\n"]
    if not machines:
        return f"{parts[0]}{_introduction()}\nNo records yet.\n"
    last = machines[0]
    parts.append(f"Measured last: **{_named(last)}**. Its history is below; other machines have their own pages.\n\n")
    parts += [_line(machine, folders[machine.id], records) for machine in machines]
    parts.append(f"\n{_introduction()}\n")
    quoted = elsewhere.section({entry.record.variant.component for entry in records.current})
    return "".join(parts) + _body(records.of_machines([last.id]), links_from("")) + (f"\n{quoted}" if quoted else "")


def render_machine(records: Records, machine: Machine) -> str:
    """The page of one machine, for its folder; superseded records are listed at the end with their reason."""
    own, folder = records.of_machines([machine.id]), folders_of(records)[machine.id]
    return f"{_HEADING} of {_named(machine)}\n\n{_introduction()}\n{_body(own, links_from(folder))}"


def _introduction() -> str:
    return _INTRODUCTION + "".join(f"- {escape(line)}\n" for line in legend(_COLUMNS))


def _named(machine: Machine) -> str:
    """A machine's name, with its id: another one may have the same parts."""
    return f"{escape(machine.name)} ({machine.id[:6]})"


def _line(machine: Machine, folder: str, records: Records) -> str:
    """A machine in the table of contents."""
    own = records.of_machines([machine.id])
    entries = [entry.record for entry in own.current]
    last = f", the last at {minute(max(record.created for record in entries))} UTC" if entries else ""
    count = counted(len(entries), "record")
    count += f", {len(own.pipelines)} of pipelines" if own.pipelines else ""
    where = quote(folder)
    return f"- {_named(machine)}: {count}{last}: [results]({where}/{RESULTS}), [history]({where}/{NAME})\n"


def _body(records: Records, link: Link) -> str:
    """The sections of one machine's records."""
    by_key: dict[object, list[StoredComparison]] = {}
    for compared in records.comparisons:
        by_key.setdefault(group_key(compared.comparison.a), []).append(compared)
    return "\n".join(_sections(records, by_key, link))


def _sections(records: Records, by_key: dict[object, list[StoredComparison]], link: Link) -> Iterator[str]:
    """By component, by group, by sweep; then comparisons of groups without a record, and what is superseded."""
    known: dict[int, KnownCeilings] = {}
    between_sweeps = drift(records.current, records.current[0].machine.name) if records.current else USUAL
    ordered = sorted(records.current, key=_order)
    seen: set[object] = set()
    for component, of_component in groupby(ordered, key=lambda entry: entry.record.variant.component):
        yield f"## {escape(component)}\n"
        found = groups(sorted(of_component, key=lambda entry: (str(group_key(entry.record)), entry.record.created)))
        for group in found:
            first = group.rows[0].record
            yield f"### {escape(title_without_machine(first))}\n\n{escape(_parameters(first))}\n"
            by_sweep: dict[str, list[Stored]] = {}
            for entry in group.rows:
                by_sweep.setdefault(entry.record.sweep, []).append(entry)
            seen.add(group_key(first))
            of_group = by_key.get(group_key(first), [])
            if first.threads not in known:
                machine = group.rows[0].machine.id
                known[first.threads] = best_ceilings(records.current, records.ceilings, machine, first.threads)
            for rows in by_sweep.values():
                yield _entry(rows, of_group, known[first.threads], between_sweeps, link)
            yield from _apart(of_group, link)
    for key, compared in by_key.items():
        if key not in seen:
            yield f"### {escape(title_without_machine(compared[0].comparison.a))}\n"
            yield from _apart(compared, link)
    yield from pipelines.every_run(records.pipelines, link)
    if records.superseded:
        yield "## Superseded\n"
        yield "".join(f"- `{entry.id}`: {escape(reason)}\n" for entry, reason in records.superseded)


def _order(entry: Stored) -> tuple[str, str]:
    """Sections are by component, records in them by time."""
    return entry.record.variant.component, entry.record.created


def _parameters(record: Record) -> str:
    config = ", ".join(f"{name} {value}" for name, value in record.config.items())
    return f"{counted(record.parameters, 'parameter', form=',')}, {record.flops / 1e9:.2f} GFLOP a call. {config}."


def _apart(compared: Sequence[StoredComparison], link: Link) -> list[str]:
    """Comparisons that were not the final of a sweep."""
    alone = [entry for entry in compared if not entry.comparison.sweep]
    lines = [
        f"- {minute(entry.comparison.created)} UTC: {_stated(entry, link)}"
        + (f" ({escape(entry.comparison.a.note)})" if entry.comparison.a.note else "")
        for entry in alone
    ]
    return ["#### Comparisons\n\n" + "\n".join(lines) + "\n"] if lines else []


def _stated(entry: StoredComparison, link: Link) -> str:
    return f"{escape(sentence(entry.comparison))} {cited(entry, link)}"


def _entry(
    rows: Sequence[Stored],
    compared: Sequence[StoredComparison],
    ceilings: KnownCeilings,
    between_sweeps: float,
    link: Link,
) -> str:
    """A sweep: its heading, notes and versions, the table, remarks about its rows, and the recommendation."""
    first = rows[0].record
    finals = [entry for entry in compared if entry.comparison.sweep == first.sweep]
    commit = (
        f"commit {first.commit[:12]}{' with changes' if first.dirty else ''}" if first.commit else "outside a checkout"
    )
    versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    lines = [
        f"#### {minute(first.created)} UTC, sweep {first.sweep}, {commit}",
        "",
        *_block(f"> {escape(note)}" for note in sorted({entry.record.note for entry in rows if entry.record.note})),
        f"Versions: {escape(versions)}.",
        "",
        *table(rows, _COLUMNS, link, finals, ceilings, best_of=newest(rows)),
        "",
        *_block(f"- {escape(f'{name}: {reason}')}" for name, _, reason in reasons(rows)),
    ]
    lines += _block(f"- {escape(text)}" for text in [overlapped_text(rows)] if text is not None)
    selftests = dict.fromkeys(selftest_text(entry.record) for entry in rows if entry.record.code)
    lines += [f"{escape(text[0].upper() + text[1:])}.\n" for text in selftests]
    lines += _block(f"- {escape(text)}" for text in spread_lines(newest(rows), rows))
    lines += [f"Final: {_stated(entry, link)}\n" for entry in finals]
    lines += [escape(recommendation(newest(rows), finals, between_sweeps)), ""]
    return "\n".join(lines)


def _block(lines: Iterable[str]) -> list[str]:
    """Lines and the empty one that ends them; nothing where there are none."""
    found = list(lines)
    return [*found, ""] if found else []
