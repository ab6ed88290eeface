"""The table of a sweep and the sentence under it: what to ship and why, or that no difference was shown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tabulate import tabulate

from bakeoff.record import Record
from bakeoff.store import Stored, digest

MIB = 1 << 20
LEGEND = (
    "speed-ups: ratio of medians against eager in the same dtype / eager fp32; ~ no difference shown "
    "(the medians' 95 % intervals overlap; rows are not interleaved)"
)
_HEADERS = (
    "variant", "status", "median ms", "p99", "min", "calls/s", "video fps",
    "vs eager", "vs eager fp32", "peak MiB", "SQNR dB", "breaks", "build s cold/warm",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that may stand in one table: the same computation on the same machine."""

    title: str
    rows: tuple[Stored, ...]


def group_key(record: Record) -> tuple[str, str, int, int, str, int, int, str]:
    """What must be equal for two rows to be compared at all; a preset's name may have meant another config once."""
    return (
        record.variant.subject,
        record.host.name(record.variant.device),
        record.batch,
        record.threads,
        record.checkpoint,
        record.weight_seed,
        record.input_seed,
        digest(record.config),
    )


def groups(stored: Iterable[Stored]) -> list[Group]:
    """Rows by what they compute and where, in the order they come."""
    found: dict[tuple[object, ...], list[Stored]] = {}
    for entry in stored:
        found.setdefault(group_key(entry.record), []).append(entry)
    return [Group(title(rows[0].record), tuple(rows)) for rows in found.values()]


def title(record: Record) -> str:
    """The heading of a table: subject, label of a reduced preset, batch, machine, threads, weights."""
    label = f" ({record.label})" if record.label else ""
    weights = record.checkpoint or f"random weights, seed {record.weight_seed}"
    machine = record.host.name(record.variant.device)
    return f"{record.variant.subject}{label}, batch {record.batch}, {machine}, {record.threads} threads, {weights}"


def baselines(rows: Sequence[Stored]) -> Mapping[str, Record]:
    """The rankable baseline record of each dtype."""
    return {
        entry.record.variant.dtype: entry.record
        for entry in rows
        if entry.record.baseline and entry.record.status == "ok"
    }


def speedup(record: Record, baseline: Record | None) -> str:
    """Ratio of medians, marked when the intervals overlap; empty where there is nothing to compare."""
    ours = record.latency
    theirs = baseline.latency if baseline is not None else None
    if ours is None or theirs is None or baseline is None:
        return ""
    mark = " ~" if record is not baseline and shown_faster(record, baseline) is None else ""
    return f"{theirs.median_ms / ours.median_ms:.2f}x{mark}"


def shown_faster(record: Record, baseline: Record) -> bool | None:
    """Whether the medians' 95 % intervals lie apart: True faster, False slower, None no difference shown."""
    ours, theirs = record.latency, baseline.latency
    if ours is None or theirs is None:
        return None
    if ours.high_ms < theirs.low_ms:
        return True
    if ours.low_ms > theirs.high_ms:
        return False
    return None


def peak_mib(record: Record) -> float | None:
    """Device-level peak on CUDA, resident size of the worker on a CPU."""
    memory = record.measurement.memory
    if memory is None:
        return None
    peak = memory.device_peak_bytes if record.variant.device == "cuda" else memory.host_peak_bytes
    return peak / MIB if peak is not None else None


def build_seconds(record: Record) -> str:
    """Cold and warm seconds as `60.1/7.3`; a dash for what was not measured in this record."""
    build = record.measurement.build
    if build is None:
        return ""
    if build.cache == "none":
        return f"{build.build_s:.1f}/-"
    if build.cache == "warm":
        return f"-/{build.build_s:.1f}"
    return f"{build.build_s:.1f}/{'-' if build.warm_s is None else f'{build.warm_s:.1f}'}"


def newest(stored: Iterable[Stored]) -> list[Stored]:
    """Of each variant on each machine the newest record, tables' groups in the order they first appeared."""
    kept: dict[tuple[object, ...], Stored] = {}
    for entry in stored:
        key = (group_key(entry.record), str(entry.record.variant))
        if key in kept and kept[key].record.created > entry.record.created:
            continue
        kept[key] = entry
    return list(kept.values())


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
                    "status": record.status,
                    "reason": record.measurement.reason,
                    "latency": figures,
                    "video_fps": record.video_fps,
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


def row(record: Record, bases: Mapping[str, Record]) -> list[str]:
    figures = record.latency
    proof = record.measurement.proof
    parity = record.measurement.parity
    ranked = record.status == "ok"
    return [
        f"{record.variant.backend} {record.variant.dtype}",
        record.status,
        _number(figures.median_ms if figures else None, 2),
        _number(figures.p99_ms if figures else None, 2),
        _number(figures.min_ms if figures else None, 2),
        _number(1000 / figures.median_ms if figures else None, 2),
        _number(record.video_fps, 2),
        speedup(record, bases.get(record.variant.dtype)) if ranked else "",
        speedup(record, bases.get("fp32")) if ranked else "",
        _number(peak_mib(record), 0),
        parity.sqnr_text if parity else "",
        "" if proof is None or proof.graph_breaks is None else str(proof.graph_breaks),
        build_seconds(record),
    ]


def render(rows: Sequence[Stored], style: str = "simple") -> str:
    """One table per group with its failed rows' reasons, findings, and the recommendation as its last line."""
    parts = []
    for group in groups(rows):
        bases = baselines(group.rows)
        body = tabulate(
            [row(entry.record, bases) for entry in group.rows],
            headers=_HEADERS,
            tablefmt=style,
            disable_numparse=True,
            colalign=("left", "left", *["right"] * (len(_HEADERS) - 2)),
        )
        lines = [group.title, "", body, "", LEGEND]
        lines += [
            f"{_name(entry.record)}: {entry.record.status}: {entry.record.measurement.reason}"
            for entry in group.rows
            if entry.record.measurement.reason
        ]
        lines += _findings(group.rows)
        lines += [recommendation(group.rows)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _findings(rows: Sequence[Stored]) -> list[str]:
    """Findings by text, with the rows they belong to when not all."""
    by_text: dict[str, list[str]] = {}
    for entry in rows:
        for finding in entry.record.measurement.findings:
            by_text.setdefault(finding.text, []).append(f"{entry.record.variant.backend} {entry.record.variant.dtype}")
    return [
        f"note: {text}" + ("" if len(who) == len(rows) else f" ({', '.join(who)})") for text, who in by_text.items()
    ]


def recommendation(rows: Sequence[Stored]) -> str:
    """What to ship, by the medians' intervals; a baseline wins a tie, since it needs no build."""
    ranked = sorted(
        (entry.record for entry in rows if entry.record.status == "ok" and entry.record.latency),
        key=lambda record: _median(record),
    )
    if not ranked:
        return "Ship nothing from this table: no row is ok."
    best = ranked[0]
    level = [record for record in ranked if record is best or shown_faster(best, record) is not True]
    if len(ranked) == 1:
        return f"Ship {_name(best)}: it is the only row that is ok ({_median(best):.2f} ms)."
    names = ", ".join(_name(record) for record in level)
    base = next((record for record in level if record.baseline), None)
    if len(level) > 1 and base is not None:
        return f"No difference shown between {names}; ship {_name(base)}, it needs no build."
    against = baselines(rows).get("fp32")
    gain = (
        f", {_median(against) / _median(best):.2f}x eager fp32" if against is not None and against is not best else ""
    )
    if len(level) > 1:
        return (
            f"No difference shown between {names}; ship {_name(best)}: the lowest median, {_median(best):.2f} ms{gain}."
        )
    second = ranked[1]
    figures, others = best.latency, second.latency
    assert figures is not None
    assert others is not None
    return (
        f"Ship {_name(best)}: {figures.median_ms:.2f} ms [{figures.low_ms:.2f}, {figures.high_ms:.2f}]{gain}; next is "
        f"{_name(second)} with {others.median_ms:.2f} ms [{others.low_ms:.2f}, {others.high_ms:.2f}], intervals apart."
    )


def _name(record: Record) -> str:
    return f"{record.variant.backend} {record.variant.dtype}"


def _median(record: Record) -> float:
    figures = record.latency
    return figures.median_ms if figures else float("inf")
