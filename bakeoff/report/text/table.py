"""The table of a sweep and the sentence under it: what to ship and why, or that no difference was shown."""

from collections.abc import Mapping, Sequence

from tabulate import tabulate

from bakeoff.record.floor import floor, floors, share
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, StoredComparison
from bakeoff.report.groups import (
    baselines,
    build_seconds,
    groups,
    name_of,
    peak_mib,
    selftest_text,
    speedup,
    spread_lines,
)
from bakeoff.report.recommendation import recommendation

LEGEND = (
    "speed-ups: ratio of medians against eager in the same dtype / eager fp32; ~ no difference shown "
    "(the medians' 95 % intervals overlap; rows are not interleaved)"
)
FLOOR_LEGEND = (
    "floor: what a call cannot be faster than, by its work (c) or its memory traffic (t) and what this {source}; "
    "of floor: floor over median"
)
_HEADERS = (
    "variant", "status", "median ms", "p99", "min", "floor ms", "of floor", "calls/s", "video fps",
    "vs eager", "vs eager fp32", "peak MiB", "SQNR dB", "breaks", "build s cold/warm",
)  # fmt: skip


def as_rows(rows: Sequence[Stored]) -> list[dict[str, object]]:
    """The tables' cells under stable keys, with figures as numbers."""
    found: list[dict[str, object]] = []
    for group in groups(rows):
        bases = baselines(group.rows)
        for entry in group.rows:
            record, figures = entry.record, entry.record.latency
            parity = record.measurement.parity
            found.append(
                {
                    "record": entry.id,
                    "variant": str(record.variant),
                    "quantisation": record.quantisation,
                    "status": record.status,
                    "reason": record.measurement.reason,
                    "latency": figures,
                    "video_fps": record.video_fps,
                    "floor": floor(record),
                    "of_floor": share(record),
                    "vs_eager": _ratio(record, bases.get(record.variant.dtype)),
                    "vs_eager_fp32": _ratio(record, bases.get("fp32")),
                    "peak_mib": peak_mib(record),
                    "sqnr_db": parity.sqnr_db if parity else None,
                    "build": record.measurement.build,
                }
            )
    return found


def _ratio(record: Record, baseline: Record | None) -> float | None:
    ours = record.latency
    theirs = baseline.latency if baseline is not None else None
    return theirs.median_ms / ours.median_ms if ours and theirs and record.status == "ok" else None


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def floor_text(record: Record) -> str:
    """Milliseconds and what bounds them; empty where no ceiling is known."""
    bound = floor(record)
    return "" if bound is None else f"{bound.ms:.3g} {bound.bound[:1]}"


def share_text(record: Record) -> str:
    reached = share(record)
    return "" if reached is None else f"{reached:.0%}"


def row(record: Record, bases: Mapping[str, Record]) -> list[str]:
    figures = record.latency
    proof = record.measurement.proof
    parity = record.measurement.parity
    ranked = record.status == "ok"
    return [
        name_of(record),
        record.status,
        _number(figures.median_ms if figures else None, 2),
        _number(figures.p99_ms if figures else None, 2),
        _number(figures.min_ms if figures else None, 2),
        floor_text(record),
        share_text(record),
        _number(1000 / figures.median_ms if figures else None, 2),
        _number(record.video_fps, 2),
        speedup(record, bases.get(record.variant.dtype)) if ranked else "",
        speedup(record, bases.get("fp32")) if ranked else "",
        _number(peak_mib(record), 0),
        parity.sqnr_text if parity else "",
        "" if proof is None or proof.graph_breaks is None else str(proof.graph_breaks),
        build_seconds(record),
    ]


def render(rows: Sequence[Stored], comparisons: Sequence[StoredComparison] = (), every: Sequence[Stored] = ()) -> str:
    """One table per group with its failed rows' reasons, findings, and the recommendation as its last line.

    `every` holds the other builds and processes of rows that were measured in several.
    """
    parts = []
    for group in groups(rows):
        bases = baselines(group.rows)
        body = tabulate(
            [row(entry.record, bases) for entry in group.rows],
            headers=_HEADERS,
            disable_numparse=True,
            colalign=("left", "left", *["right"] * (len(_HEADERS) - 2)),
        )
        lines = [group.title, "", body, "", LEGEND, *_floor_legend(group.rows)]
        lines += [
            f"{name_of(entry.record)}: {entry.record.status}: {entry.record.measurement.reason}"
            for entry in group.rows
            if entry.record.measurement.reason
        ]
        lines += spread_lines(group.rows, every)
        lines += _findings(group.rows)
        lines += [f"note: {text}" for text in dict.fromkeys(selftest_text(entry.record) for entry in group.rows)]
        lines += [recommendation(group.rows, comparisons)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _floor_legend(rows: Sequence[Stored]) -> list[str]:
    sources = {bound.source for entry in rows for bound in floors(entry.record)[-1:]}
    if not sources:
        return []
    source = "machine was measured to do at best" if "measured" in sources else "GPU's datasheet states"
    return [FLOOR_LEGEND.format(source=source)]


def _findings(rows: Sequence[Stored]) -> list[str]:
    """Findings by text, with the rows they belong to when not all."""
    by_text: dict[str, list[str]] = {}
    for entry in rows:
        for finding in entry.record.measurement.findings:
            by_text.setdefault(finding.text, []).append(name_of(entry.record))
    return [
        f"note: {text}" + ("" if len(who) == len(rows) else f" ({', '.join(who)})") for text, who in by_text.items()
    ]
