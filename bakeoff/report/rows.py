"""Rows that may stand in one table, and what they are called: the words that all pages share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.record import Record
from bakeoff.store import Stored, digest

MIB = 1 << 20


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


def name_of(record: Record) -> str:
    """A row's name within its table."""
    return f"{record.variant.backend} {record.variant.dtype}"


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
    """Of each variant on each machine the newest sweep's record, tables' groups in the order they first appeared.

    Of several processes of one sweep it is the one with the median of their medians.
    """
    found: dict[tuple[object, ...], list[Stored]] = {}
    for entry in stored:
        found.setdefault((group_key(entry.record), str(entry.record.variant)), []).append(entry)
    kept = []
    for entries in found.values():
        ordered = sorted(entries, key=lambda entry: entry.record.created)
        sweep = ordered[-1].record.sweep
        processes = {entry.record.process: entry for entry in ordered if entry.record.sweep == sweep}
        kept.append(_representative(list(processes.values())))
    return kept


def _representative(entries: Sequence[Stored]) -> Stored:
    """The process with the median of the medians; one that is not ok stands for all, since a variant that fails
    sometimes fails."""
    failed = [entry for entry in entries if entry.record.status != "ok"]
    if failed or len(entries) == 1:
        return (failed or entries)[-1]
    ranked = sorted(entries, key=lambda entry: entry.record.latency.median_ms if entry.record.latency else 0.0)
    return ranked[(len(ranked) - 1) // 2]


@dataclass(frozen=True, slots=True)
class Spread:
    """How far one variant's figures lie apart, within its processes and between them."""

    processes: int
    low_ms: float
    high_ms: float
    """Smallest and largest of the processes' medians."""
    between: float
    """(high - low) over their median."""
    within: float
    """Interquartile range of a process's samples over their median; the median of that over the processes."""


def spread(records: Sequence[Record]) -> Spread | None:
    """None for fewer than two processes with samples."""
    clocks = [record.measurement.latency for record in records]
    samples = [np.asarray(clock.samples_ns) / 1e6 for clock in clocks if clock is not None and clock.samples_ns]
    if len(samples) < 2:
        return None
    medians = [float(np.median(part)) for part in samples]
    quartiles = [np.percentile(part, [25, 75]) for part in samples]
    within = [float(high - low) / median for (low, high), median in zip(quartiles, medians, strict=True)]
    between = (max(medians) - min(medians)) / float(np.median(medians))
    return Spread(len(samples), min(medians), max(medians), between, float(np.median(within)))


def spreads(rows: Iterable[Stored], every: Iterable[Stored]) -> list[tuple[Stored, Spread]]:
    """The spread of each row that was measured in several processes of its sweep."""
    found: dict[tuple[object, ...], list[Record]] = {}
    for entry in every:
        record = entry.record
        found.setdefault((group_key(record), record.sweep, str(record.variant)), []).append(record)
    pairs = []
    for entry in rows:
        record = entry.record
        known = spread(found.get((group_key(record), record.sweep, str(record.variant)), []))
        if known is not None:
            pairs.append((entry, known))
    return pairs


def spread_text(record: Record, found: Spread) -> str:
    return (
        f"{name_of(record)} in {found.processes} processes: medians {found.low_ms:.2f} to {found.high_ms:.2f} ms, "
        f"{found.between:.1%} apart; within a process the middle half of the samples spans {found.within:.1%}"
    )


def selftest_text(record: Record) -> str:
    """What the instrument's own test said when a record was made."""
    stamp = record.selftest
    if stamp is None:
        return "no selftest on this machine before it was measured; run: bakeoff selftest"
    verdict = "passed" if stamp.passed else "FAILED"
    which = "quick selftest" if stamp.quick else "selftest"
    text = f"{which} {verdict} {stamp.created[:16].replace('T', ' ')} UTC"
    return text if stamp.code == record.code else f"{text}, STALE: the lab's code has changed since"
