"""runs/OPTIMIZATION_HISTORY.md: an entry for every sweep, generated from the records alone."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from bakeoff.machine.files import write_atomically
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored, StoredComparison, load_all
from bakeoff.report.columns import legend
from bakeoff.report.comparisons import sentence
from bakeoff.report.format import minute
from bakeoff.report.groups import group_key, groups, newest, title
from bakeoff.report.markdown.escape import escape
from bakeoff.report.markdown.table import link, table
from bakeoff.report.notes import reasons, selftest_text
from bakeoff.report.recommendation import recommendation
from bakeoff.report.spread import spread_lines

NAME = "OPTIMIZATION_HISTORY.md"
_COLUMNS = (
    "name", "status", "mean_ms", "min_ms", "max_ms", "std_ms", "floor", "of_floor", "peak_mib", "mean_calls_per_s",
    "video_fps", "vs_eager", "vs_eager_fp32", "sqnr_db", "build", "record",
)  # fmt: skip
_INTRODUCTION = """\
# Optimization history

Generated from the records beside this file by `make history`; do not edit. Each sweep has an entry, and each record a
line in it. Milliseconds are of the latency clock: one call, synchronised. A final measures the two best rows of a sweep
against each other in interleaved blocks of calls.

"""


def render(records: Records) -> str:
    """The whole history; equal records give equal text. Superseded records are listed at the end with their reason."""
    parts = [_INTRODUCTION + "".join(f"- {escape(line)}\n" for line in legend(_COLUMNS))]
    by_key: dict[object, list[StoredComparison]] = {}
    for compared in records.comparisons:
        by_key.setdefault(group_key(compared.comparison.a), []).append(compared)
    ordered = sorted(records.current, key=lambda entry: _order(entry.record))
    for (component, machine), of_component in groupby(ordered, key=lambda entry: _order(entry.record)[:2]):
        parts.append(f"## {escape(component)} on {escape(machine)}\n")
        found = groups(sorted(of_component, key=lambda entry: (str(group_key(entry.record)), entry.record.created)))
        for group in found:
            first = group.rows[0].record
            parts.append(f"### {escape(title(first))}\n\n{escape(_parameters(first))}\n")
            by_sweep: dict[str, list[Stored]] = {}
            for entry in group.rows:
                by_sweep.setdefault(entry.record.sweep, []).append(entry)
            of_group = by_key.get(group_key(first), [])
            parts += [_entry(rows, of_group) for rows in by_sweep.values()]
            parts += _apart(of_group)
    if records.superseded:
        parts.append("## Superseded\n")
        parts.append("".join(f"- `{entry.id}`: {escape(reason)}\n" for entry, reason in records.superseded))
    if not records.current:
        parts.append("No records yet.\n")
    return "\n".join(parts)


def _order(record: Record) -> tuple[str, str, str]:
    """Sections are by component and machine, records in them by time."""
    return record.variant.component, record.host.name(record.variant.device), record.created


def _parameters(record: Record) -> str:
    config = ", ".join(f"{name} {value}" for name, value in record.config.items())
    return f"{record.parameters:,} parameters, {record.flops / 1e9:.2f} GFLOP a call. {config}."


def _apart(compared: Sequence[StoredComparison]) -> list[str]:
    """Comparisons that were not the final of a sweep."""
    alone = [entry for entry in compared if not entry.comparison.sweep]
    lines = [
        f"- {minute(entry.comparison.created)} UTC: {_cited(entry)}"
        + (f" ({escape(entry.comparison.a.note)})" if entry.comparison.a.note else "")
        for entry in alone
    ]
    return ["#### Comparisons\n\n" + "\n".join(lines) + "\n"] if lines else []


def _cited(entry: StoredComparison) -> str:
    return f"{escape(sentence(entry.comparison))} {link(entry.id, 'records')}"


def _entry(rows: Sequence[Stored], compared: Sequence[StoredComparison]) -> str:
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
        *table(rows, _COLUMNS, "records"),
        "",
        *_block(f"- {escape(f'{name}: {reason}')}" for name, _, reason in reasons(rows)),
    ]
    selftests = dict.fromkeys(selftest_text(entry.record) for entry in rows if entry.record.code)
    lines += [f"{escape(text[0].upper() + text[1:])}.\n" for text in selftests]
    lines += _block(f"- {escape(text)}" for text in spread_lines(newest(rows), rows))
    lines += [f"Final: {_cited(entry)}\n" for entry in finals]
    lines += [escape(recommendation(newest(rows), finals)), ""]
    return "\n".join(lines)


def _block(lines: Iterable[str]) -> list[str]:
    """Lines and the empty one that ends them; nothing where there are none."""
    found = list(lines)
    return [*found, ""] if found else []


def update(runs: Path, records: Records | None = None) -> Path:
    """Write the history of `records`, by default those under `runs`. Raises BakeoffError when it cannot be written."""
    path = runs / NAME
    write_atomically(path, render(load_all(runs) if records is None else records).encode())
    return path


def check(runs: Path, records: Records | None = None) -> str | None:
    """What is wrong with the file: missing, edited by hand, stale, or citing a missing record. None: nothing is."""
    path = runs / NAME
    if not path.is_file():
        return f"{path} does not exist. Write it with: make history"
    text, records = path.read_text(encoding="utf-8", errors="replace"), load_all(runs) if records is None else records
    if records.problems:
        return records.problems[0]
    known = {entry.id for entry in (*records.current, *(entry for entry, _ in records.superseded))}
    known |= {entry.id for entry in records.comparisons}
    missing = sorted(set(re.findall(r"\(records/([^)]+)\.json\)", text)) - known)
    if missing:
        return f"{NAME} cites {len(missing)} records that are missing, the first is {missing[0]}. Restore their files."
    if text != render(records):
        return f"{NAME} differs from what the records give: it was edited by hand or is stale. Run: make history"
    return None
