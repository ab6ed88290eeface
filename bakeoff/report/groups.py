"""Rows that may stand in one table, and what they are called: the words that all pages share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bakeoff.machine.files import digest
from bakeoff.models.component import Quantisation
from bakeoff.record.representative import representative
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored

MIB = 1 << 20
BUILDS_LEGEND = (
    "a variant built several times is shown by its best build, the one with the lowest median (of its processes' "
    "medians), if every build is ok; one that is not ok stands for all"
)
_CLASSES: Mapping[Quantisation, str] = {
    "dynamic": "dynamic int8",
    "weight-only": "int8 weights",
    "static": "static int8",
    "fp8": "fp8",
}


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
    """A row's name within its table; a quantised one carries its class, since it is no plain `bf16`."""
    quantised = f" ({_CLASSES[record.quantisation]})" if record.quantisation else ""
    return f"{record.variant.backend} {record.variant.dtype}{quantised}"


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

    Of several builds and processes of one sweep it is the one that stands for them: see bakeoff.record.representative.
    """
    found: dict[tuple[object, ...], list[Stored]] = {}
    for entry in stored:
        found.setdefault((group_key(entry.record), str(entry.record.variant)), []).append(entry)
    kept = []
    for entries in found.values():
        ordered = sorted(entries, key=lambda entry: entry.record.created)
        sweep = ordered[-1].record.sweep
        tries = {
            (entry.record.build_number, entry.record.process): entry for entry in ordered if entry.record.sweep == sweep
        }
        kept.append(representative(list(tries.values())))
    return kept


@dataclass(frozen=True, slots=True)
class Spread:
    """How far one variant's figures lie apart: within its processes, between them, and between its builds."""

    builds: int
    processes: int
    """In all builds together."""
    low_ms: float
    high_ms: float
    """Smallest and largest of the builds' medians, each the median of its processes'; of the processes' medians where
    there is one build."""
    between: float
    """(high - low) over their median."""
    between_processes: float | None
    """The same of the processes of a build, where there are several builds; the median of that over the builds. None
    where no build has two processes."""
    within: float
    """Interquartile range of a process's samples over their median; the median of that over the processes."""


def spread(records: Sequence[Record]) -> Spread | None:
    """None for fewer than two processes with samples."""
    builds: dict[int, list[float]] = {}
    within = []
    for record in records:
        clock = record.measurement.latency
        if clock is None or not clock.samples_ns:
            continue
        low, median, high = np.percentile(np.asarray(clock.samples_ns) / 1e6, [25, 50, 75])
        builds.setdefault(record.build_number, []).append(float(median))
        within.append(float(high - low) / float(median))
    if len(within) < 2:
        return None
    several = len(builds) > 1
    medians = [float(np.median(each)) for each in builds.values()] if several else next(iter(builds.values()))
    inside = [_apart(each) for each in builds.values() if several and len(each) > 1]
    return Spread(
        builds=len(builds),
        processes=len(within),
        low_ms=min(medians),
        high_ms=max(medians),
        between=_apart(medians),
        between_processes=float(np.median(inside)) if inside else None,
        within=float(np.median(within)),
    )


def _apart(medians: Sequence[float]) -> float:
    return (max(medians) - min(medians)) / float(np.median(medians))


def spreads(rows: Iterable[Stored], every: Iterable[Stored]) -> list[tuple[Stored, Spread]]:
    """The spread of each row that was measured in several builds or processes of its sweep."""
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
    what = f"{found.builds} builds" if found.builds > 1 else f"{found.processes} processes"
    text = (
        f"{name_of(record)} in {what}: medians {found.low_ms:.2f} to {found.high_ms:.2f} ms, {found.between:.1%} apart"
    )
    if found.between_processes is not None:
        text += f"; within a build those of its processes lie {found.between_processes:.1%} apart"
    return f"{text}; within a process the middle half of the samples spans {found.within:.1%}"


def spread_lines(rows: Iterable[Stored], every: Iterable[Stored]) -> list[str]:
    """What `spreads` found as sentences, with the rule by which a build stands for the others."""
    found = spreads(rows, every)
    lines = [spread_text(entry.record, each) for entry, each in found]
    return [*lines, BUILDS_LEGEND] if any(each.builds > 1 for _, each in found) else lines


def selftest_text(record: Record) -> str:
    """What the instrument's own test said when a record was made."""
    stamp = record.selftest
    if stamp is None:
        return "no selftest on this machine before it was measured; run: bakeoff selftest"
    verdict = "passed" if stamp.passed else "FAILED"
    which = "quick selftest" if stamp.quick else "selftest"
    text = f"{which} {verdict} {stamp.created[:16].replace('T', ' ')} UTC"
    return text if stamp.code == record.code else f"{text}, STALE: the lab's code has changed since"
