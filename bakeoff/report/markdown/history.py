"""runs/OPTIMIZATION_HISTORY.md: every sweep as an engineer's log, generated from the records and from nothing else."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from bakeoff.machine.files import write_atomically
from bakeoff.record.schema import Record
from bakeoff.record.statistics import Summary
from bakeoff.record.store import Records, Stored, StoredComparison, load_all
from bakeoff.report.groups import (
    baselines,
    build_seconds,
    group_key,
    groups,
    name_of,
    newest,
    peak_mib,
    selftest_text,
    speedup,
    spread_lines,
    title,
)
from bakeoff.report.markdown.escape import escape
from bakeoff.report.recommendation import recommendation
from bakeoff.report.text.comparison import sentence
from bakeoff.report.text.table import floor_text, share_text

NAME = "OPTIMIZATION_HISTORY.md"
_INTRODUCTION = """\
# Optimization history

Generated from the records beside this file by `make history`; do not edit. A sweep is an entry, a line in it is one
record. Milliseconds are of the latency clock (one call, synchronised); Avg FPS is calls a second, 1000/mean, not video
frames; video fps counts all calls that one frame needs. Peak MiB is what the device's meter saw, on a CPU the worker's
resident size. Speed-ups are ratios of medians against the baseline named in the heading; `~` marks those where the 95 %
intervals of the two medians overlap, so that no difference is shown. Floor is what a call cannot be faster than, in ms,
bound by compute (c) or memory traffic (t) at the rates this machine was measured to reach; beside it the share of the
floor that the median reaches. SQNR is against the judge, of the worst output. A final measures the two best rows of a
sweep against each other in interleaved blocks of calls.
"""
_COLUMNS = (
    "variant", "status", "Mean ms", "Min ms", "Max ms", "Std ms", "Floor ms", "of floor", "Peak MiB", "Avg FPS",
    "video fps", "vs eager", "vs eager fp32", "SQNR dB", "build s cold/warm", "record",
)  # fmt: skip


def render(records: Records) -> str:
    """The whole history; equal records give equal text. Superseded records are listed at the end with their reason."""
    parts = [_INTRODUCTION]
    by_key: dict[object, list[StoredComparison]] = {}
    for compared in records.comparisons:
        by_key.setdefault(group_key(compared.comparison.a), []).append(compared)
    ordered = sorted(records.current, key=lambda entry: _place(entry.record))
    for (component, machine), of_component in groupby(ordered, key=lambda entry: _place(entry.record)[:2]):
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


def _place(record: Record) -> tuple[str, str, str]:
    return record.variant.component, record.host.name(record.variant.device), record.created


def _parameters(record: Record) -> str:
    config = ", ".join(f"{name} {value}" for name, value in record.config.items())
    return f"{record.parameters:,} parameters, {record.flops / 1e9:.2f} GFLOP a call. {config}."


def _apart(compared: Sequence[StoredComparison]) -> list[str]:
    """Comparisons that were asked for by themselves."""
    alone = [entry for entry in compared if not entry.comparison.sweep]
    lines = [
        f"- {entry.comparison.created[:16].replace('T', ' ')} UTC: {_cited(entry)}"
        + (f" ({escape(entry.comparison.a.note)})" if entry.comparison.a.note else "")
        for entry in alone
    ]
    return ["#### Comparisons\n\n" + "\n".join(lines) + "\n"] if lines else []


def _cited(entry: StoredComparison) -> str:
    return f"{escape(sentence(entry.comparison))} [{entry.id.rpartition('_')[2]}](records/{entry.id}.json)"


def _entry(rows: Sequence[Stored], compared: Sequence[StoredComparison]) -> str:
    first = rows[0].record
    finals = [entry for entry in compared if entry.comparison.sweep == first.sweep]
    bases = baselines(rows)
    notes = sorted({entry.record.note for entry in rows if entry.record.note})
    commit = (
        f"commit {first.commit[:12]}{' with changes' if first.dirty else ''}" if first.commit else "outside a checkout"
    )
    lines = [f"#### {first.created[:16].replace('T', ' ')} UTC, sweep {first.sweep}, {commit}", ""]
    lines += [f"> {escape(note)}" for note in notes] + ([""] if notes else [])
    lines += [
        "Versions: " + escape(", ".join(f"{name} {version}" for name, version in first.versions.items())) + ".",
        "",
        "| " + " | ".join(_COLUMNS) + " |",
        "|" + "|".join(" --- " if column in ("variant", "status", "record") else " ---: " for column in _COLUMNS) + "|",
    ]
    lines += ["| " + " | ".join(_cells(entry, bases)) + " |" for entry in rows]
    lines += [""]
    reasons = [
        "- " + escape(f"{name_of(entry.record)}: {entry.record.measurement.reason}")
        for entry in rows
        if entry.record.measurement.reason
    ]
    lines += reasons + ([""] if reasons else [])
    audits = dict.fromkeys(selftest_text(entry.record) for entry in rows if entry.record.code)
    lines += [f"Instrument: {escape(text)}.\n" for text in audits]
    reasons = [f"- {escape(text)}" for text in spread_lines(newest(rows), rows)]
    lines += reasons + ([""] if reasons else [])
    lines += [f"Final: {_cited(entry)}\n" for entry in finals]
    lines += [escape(recommendation(newest(rows), finals)), ""]
    return "\n".join(lines)


def _cells(entry: Stored, bases: Mapping[str, Record]) -> list[str]:
    record = entry.record
    figures = record.latency
    parity = record.measurement.parity
    ranked = record.status == "ok"
    peak, fps = peak_mib(record), record.video_fps
    return [
        escape(name_of(record)),
        record.status,
        *_milliseconds(figures),
        floor_text(record),
        share_text(record),
        "" if peak is None else f"{peak:.0f}",
        "" if figures is None else f"{1000 / figures.mean_ms:.2f}",
        "" if fps is None else f"{fps:.2f}",
        speedup(record, bases.get(record.variant.dtype)) if ranked else "",
        speedup(record, bases.get("fp32")) if ranked else "",
        parity.sqnr_text if parity else "",
        build_seconds(record),
        f"[{entry.id.rpartition('_')[2]}](records/{entry.id}.json)",
    ]


def _milliseconds(figures: Summary | None) -> list[str]:
    if figures is None:
        return ["", "", "", ""]
    return [f"{value:.2f}" for value in (figures.mean_ms, figures.min_ms, figures.max_ms, figures.std_ms)]


def update(runs: Path, records: Records | None = None) -> Path:
    """Write the history of `records`, by default those under `runs`. Raises BakeoffError when it cannot be written."""
    path = runs / NAME
    write_atomically(path, render(load_all(runs) if records is None else records).encode())
    return path


def check(runs: Path, records: Records | None = None) -> str:
    """What is wrong with the file: edited by hand, stale, or citing a record that is missing; "" if nothing is."""
    path = runs / NAME
    if not path.is_file():
        return f"{path} does not exist; run: make history"
    text, records = path.read_text(encoding="utf-8", errors="replace"), load_all(runs) if records is None else records
    if records.problems:
        return records.problems[0]
    known = {entry.id for entry in (*records.current, *(entry for entry, _ in records.superseded))}
    known |= {entry.id for entry in records.comparisons}
    missing = sorted(set(re.findall(r"\(records/([^)]+)\.json\)", text)) - known)
    if missing:
        return f"{NAME} cites {len(missing)} records that are missing, first {missing[0]}; restore it"
    if text != render(records):
        return f"{NAME} is not what the records give: edited by hand or stale; run: make history"
    return ""
