"""Groups comparable records into tables, computes speed-ups, and finds rows that are stale and why.

Rows of a group compute the same on the same machine. They are comparable only if they also ran on one host of it, or on
the hosts over which one sweep was spread, ran the same source of the component, were measured by the same code for the
same times with the same libraries, and if rows with the same backend ran the same source of it. The newest row with
figures decides what is current; a record is never compared with the present checkout.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bakeoff.machine.floors import Ceiling
from bakeoff.machine.identity import Machine
from bakeoff.models.component import Quantisation
from bakeoff.models.grouping import grouped
from bakeoff.models.types import BASELINE_DTYPES
from bakeoff.models.words import counted
from bakeoff.record.comparable import differences, may_divide, row_key, subject_key
from bakeoff.record.finalists import clock_of, representative
from bakeoff.record.floor import best_ceilings
from bakeoff.record.objective import Goal
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, StoredCeilings

_CLASSES: Mapping[Quantisation, str] = {
    "dynamic": "dynamic int8",
    "weight-only": "int8 weights",
    "static": "static int8",
    "fp8": "fp8",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
}


def title(record: Record | PipelineRecord, machine: bool = True, batch: bool = True) -> str:
    """Return the heading of a table: subject, label of a reduced preset, batch or sizes, machine, threads, weights.

    Pages whose own heading names the machine leave it out, and batch curves leave out the batch.
    """
    name = record.machine.name
    if isinstance(record, PipelineRecord):
        subject, sizes = record.mix.subject, [f"{name} {size}" for name, size in record.sizes.items()]
        loaded = ", ".join(f"{slot} {file}" for slot, file in record.checkpoints.items() if file)
    else:
        subject, sizes, loaded = record.variant.subject, [f"batch {record.batch}"] * batch, record.checkpoint
        name = f"{_alike(record)} x {name}" if _alike(record) > 1 else name
    label = f" ({record.label})" if record.label else ""
    weights = loaded or f"random weights, seed {record.weight_seed}"
    return ", ".join([f"{subject}{label}", *sizes, *[name] * machine, counted(record.threads, "thread"), weights])


@dataclass(frozen=True, slots=True)
class Table:
    """A group of records, split into rows that may be compared with each other and stale ones."""

    title: str
    machine: Machine
    rows: tuple[Stored, ...]
    stale: tuple[tuple[Stored, str], ...]
    """Rows that must not be compared with the others, each with the reason."""
    ceilings: tuple[Ceiling, ...]
    """The ceilings from which the floors of all rows are computed."""
    built: tuple[Stored, ...] = ()
    """Rows that were built for other GPUs; they are not compared with anything."""

    @property
    def first(self) -> Record:
        return (self.rows or self.built)[0].record


@dataclass(frozen=True, slots=True)
class Speedup:
    """Ratio by which a record is faster than its baseline, by the medians of the latency clock."""

    ratio: float
    shown: bool
    """False if the 95 % intervals of the two medians overlap, so that no difference is shown."""
    low: float
    """The ratio of the ends of these intervals that are nearest to each other if the record is faster."""
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.2f}x{'' if self.shown else ' ~'}"


def groups(stored: Iterable[Stored]) -> list[list[Stored]]:
    """Return the records of the same computation on the same machine together, keeping the order; their code and
    libraries may differ."""
    return [*grouped((subject_key(entry.record), entry) for entry in stored).values()]


def by_sweep(rows: Sequence[Stored]) -> list[list[Stored]]:
    """Return a group's records grouped by sweep, keeping their order."""
    return [*grouped((entry.record.sweep, entry) for entry in rows).values()]


def _alike(record: Record) -> int:
    """Return over how many machines of one class the rows of the record's table are spread; 0 for one machine."""
    return len(record.calibration.medians_ns) if record.calibration is not None else 0


def name_of(record: Record) -> str:
    """Return a row's name within its table: backend, dtype, and how it is quantised, if it is."""
    quantised = f" ({_CLASSES[record.quantisation]})" if record.quantisation else ""
    return f"{record.variant.backend} {record.variant.dtype}{quantised}"


def newest(stored: Iterable[Stored]) -> list[Stored]:
    """Return one record for each variant, group and host, from the newest sweep that has it, in order of appearance.

    Of several builds and processes in that sweep, it is the record that `bakeoff.record.finalists.representative`
    chooses.
    """
    kept = []
    for entries in grouped((row_key(entry.record), entry) for entry in stored).values():
        ordered = sorted(entries, key=lambda entry: entry.record.created)
        sweep = ordered[-1].record.sweep
        tries = {
            (entry.record.build_number, entry.record.process): entry for entry in ordered if entry.record.sweep == sweep
        }
        kept.append(representative(list(tries.values())))
    return kept


def tables(
    rows: Iterable[Stored], measured: Sequence[StoredCeilings] = (), every: Sequence[Stored] = ()
) -> list[Table]:
    """Return a table for each group: the machine that measured last first, otherwise in the order of the rows.

    Ceilings come from `measured` and from the records `every`, or from `rows` alone if `every` is empty. If titles are
    equal, what tells the tables apart is added to them.
    """
    rows = tuple(rows)
    found = [_table(group, measured, every or rows) for group in groups(rows)]
    last: dict[str, str] = {}
    for entry in rows:
        last[entry.machine.key] = max(last.get(entry.machine.key, ""), entry.record.created)
    found.sort(key=lambda table: last[table.machine.key], reverse=True)
    return [_told_apart(table, [other for other in found if other.title == table.title]) for table in found]


def _table(rows: Sequence[Stored], measured: Sequence[StoredCeilings], every: Sequence[Stored]) -> Table:
    """Return the table of one group's rows, split into current and stale ones."""
    machine, threads = rows[0].machine, rows[0].record.threads
    heading = title(max((row.record for row in rows), key=_alike))
    built = tuple(entry for entry in rows if entry.record.status == "built")
    rows = [entry for entry in rows if entry.record.status != "built"]
    reasons = stale_reasons(rows)
    return Table(
        title=heading,
        machine=machine,
        rows=tuple(entry for entry, reason in zip(rows, reasons, strict=True) if reason is None),
        stale=tuple((entry, reason) for entry, reason in zip(rows, reasons, strict=True) if reason is not None),
        ceilings=best_ceilings(every, measured, machine, threads),
        built=built,
    )


def _told_apart(table: Table, alike: Sequence[Table]) -> Table:
    """Return the table with a title that says how it differs from those `alike` in title, itself among them."""
    title = table.title
    if len({other.machine.key for other in alike}) > 1:
        title = title.replace(table.machine.name, f"{table.machine.name} ({table.machine.tag})", 1)
    if len({other.first.input_seed for other in alike}) > 1:
        title += f", {seeded(table.first)}"
    return replace(table, title=title)


def seeded(record: Record) -> str:
    """Return what is added to the titles of tables that differ in the inputs' seed alone."""
    return f"input seed {record.input_seed}"


def current(rows: Sequence[Stored]) -> list[Stored]:
    """Return the rows of a group that are not stale."""
    return [entry for entry, reason in zip(rows, stale_reasons(rows), strict=True) if reason is None]


def stale_reasons(rows: Sequence[Stored]) -> list[str | None]:
    """Return for each row of a group why it must not be compared with the newest one; None if it may.

    The newest row is the newest with figures, or of all if none has any: a row that could not be measured must not
    replace measured ones. Among otherwise current rows with the same backend, the newest decides which source of it is
    current. Rows that were built for other GPUs are never stale, and make no row stale.
    """
    timed = [entry for entry in rows if entry.record.status != "built"]
    if len(timed) < len(rows):
        known = iter(stale_reasons(timed))
        return [None if entry.record.status == "built" else next(known) for entry in rows]
    if not rows:
        return []
    newest = _newest(rows)
    reasons = [differences(entry.record, newest, backends=False) or None for entry in rows]
    sources: dict[str, tuple[str, str]] = {}
    for entry, reason in zip(rows, reasons, strict=True):
        for name, source in entry.record.backends.items() if reason is None else ():
            sources[name] = max(sources.get(name, ("", "")), (entry.record.created, source))
    return [reason or _changed_backend(entry.record, sources) for entry, reason in zip(rows, reasons, strict=True)]


def _newest(rows: Sequence[Stored]) -> Record:
    """Return the newest record with figures, or the newest of all if none has any."""
    return max(rows, key=lambda entry: (entry.record.latency is not None, entry.record.created, entry.id)).record


def baselines(rows: Sequence[Stored]) -> Mapping[str, Record]:
    """Return the baseline of each dtype among a group's rows that are ok and not stale."""
    return {
        entry.record.variant.dtype: entry.record
        for entry in current(rows)
        if entry.record.baseline and entry.record.status == "ok"
    }


def own_baselines(record: Record, every: Iterable[Stored]) -> Mapping[str, Record]:
    """Return the baseline of each dtype that is ok, among a group's records, by which the record may be divided."""
    own = [entry for entry in every if entry.record.baseline and may_divide(record, entry.record)]
    own = [entry for entry in own if subject_key(entry.record) == subject_key(record)]
    return {entry.record.variant.dtype: entry.record for entry in newest(own) if entry.record.status == "ok"}


def stated_over(found: Mapping[str, Record]) -> Record | None:
    """Return the one of `baselines` over which a table's speed-ups are stated; None if there is none."""
    return next((found[dtype] for dtype in BASELINE_DTYPES if dtype in found), None)


def _changed_backend(record: Record, sources: Mapping[str, tuple[str, str]]) -> str | None:
    changed = [name for name, source in record.backends.items() if sources[name][1] != source]
    return f"measured with another source of its backend {', '.join(changed)}" if changed else None


def speedup(record: Record, baseline: Record | None, goal: Goal = "latency") -> Speedup | None:
    """Return the baseline's median over the record's, by the goal's clock; None if either has no samples, or if they
    may not be divided. A baseline has 1.00x over itself."""
    ours = clock_of(record, goal)
    theirs = clock_of(baseline, goal) if baseline is not None and may_divide(record, baseline) else None
    if ours is None or theirs is None or baseline is None or ours.median_ms <= 0:
        return None
    shown = record == baseline or shown_faster(record, baseline, goal) is not None
    ends = theirs.low_ms / ours.high_ms, theirs.high_ms / ours.low_ms
    return Speedup(theirs.median_ms / ours.median_ms, shown, *ends)


def shown_faster(record: Record, baseline: Record, goal: Goal = "latency") -> bool | None:
    """Compare the 95 % intervals of the medians by the goal's clock: True if the record is faster, False if slower,
    None if they overlap, or if the two may not be divided.

    Intervals from two machines are also apart by more than what these machines differ by.
    """
    ours, theirs = clock_of(record, goal), clock_of(baseline, goal)
    if ours is None or theirs is None or not may_divide(record, baseline):
        return None
    calibrations = [each.calibration for each in (record, baseline) if each.calibration is not None]
    apart = max((each.spread for each in calibrations if record.machine.host != baseline.machine.host), default=1.0)
    if ours.high_ms * apart < theirs.low_ms:
        return True
    if ours.low_ms > theirs.high_ms * apart:
        return False
    return None
