"""The columns of every table: terminal, `--json`, history, README and HTML choose theirs by key.

To add one, add an entry to `_COLUMNS` and its key to each page that should show it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from bakeoff.machine.floors import Ceiling, Floor
from bakeoff.machine.terminal import one_line
from bakeoff.record.comparable import ON_ANOTHER_HOST
from bakeoff.record.finalists import LimitCheck, check_limits
from bakeoff.record.floor import best_ceilings, floor, is_above, share
from bakeoff.record.objective import LATENCY, Objective
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import BuildCost, Clock, InputCopy, Parity, Record
from bakeoff.record.statistics import FEWEST_FOR_P99, Summary
from bakeoff.record.store import Stored, StoredComparison
from bakeoff.record.verdict import failed_side
from bakeoff.report.format import MIB, milliseconds, with_interval
from bakeoff.report.groups import Speedup, name_of, own_baselines, speedup, stale_reasons, stated_over
from bakeoff.report.recommendation import decision
from bakeoff.report.wording import fit_text, items_per_s, rate_text


@dataclass(frozen=True, slots=True)
class TableRow:
    """A record as a row of a table, with what its columns depend on besides it."""

    entry: Stored
    baselines: Mapping[str, Record] = field(default_factory=dict)
    """The baseline of each dtype by which the record may be divided; empty for a row that other code made stale."""
    ceilings: tuple[Ceiling, ...] = ()
    """The set of ceilings from which the floors of all rows of the group are computed."""
    stale: str | None = None
    """Reason why the row must not be compared with the others of its group; None if it may be."""
    winner: bool = False
    """Whether the record was faster in a final between the two best rows of the group."""
    objective: Objective = LATENCY
    """Objective of the table."""
    in_final: str = ""
    """Reason for which the row failed in the final between the two best rows; "" if it did not."""
    build_in_final: BuildCost | None = None
    """Cost of the build of its side in that final, in a fresh process; None if the row was not in it."""

    @property
    def record(self) -> Record:
        return self.entry.record


def _itself(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Column:
    """One figure or fact of a row: of a TableRow, or of a mix."""

    key: str
    """Stable name, which scripts read in `--json`."""
    heading: str
    explanation: str
    value: Callable[[Any], Any]
    """Reads the value from a row; None, an empty cell on every page, if the row lacks it."""
    format: Callable[[Any], str] = str
    """Turns a value into plain text, which pages escape themselves."""
    order: Callable[[Any], float | str] = _itself
    """Turns a value into one by which rows are sorted."""
    data: Callable[[Any], Any] = _itself
    """Turns a value into one for `--json`."""
    numeric: bool = True
    leaves: int = 0
    """As in `Heading`."""

    def text(self, row: Any) -> str:
        """Return the cell's plain text; empty if the row does not have the value."""
        value = self.value(row)
        return "" if value is None else one_line(self.format(value))


def table_rows(
    rows: Sequence[Stored],
    comparisons: Sequence[StoredComparison] = (),
    ceilings: tuple[Ceiling, ...] | None = None,
    best_of: Sequence[Stored] | None = None,
    every: Sequence[Stored] = (),
) -> Iterator[TableRow]:
    """Yield the rows of one group.

    If `rows` has several records of a variant, `best_of` has one of each, among which the winner is chosen. Baselines
    are of each row's own sweep, among `rows` and `every`. Floors are computed from `ceilings`, or from the best known
    among the rows. A final among `comparisons` decides the winner.
    """
    if not rows:
        return
    if ceilings is None:
        ceilings = best_ceilings(rows, (), rows[0].machine, rows[0].record.threads)
    chosen = rows if best_of is None else best_of
    decided, eager = decision(chosen, comparisons), [entry for entry in (*rows, *every) if entry.record.baseline]
    final = decided.final or decided.failed
    built = {side.variant: side.measurement.build for side in final.sides} if final is not None else {}
    failed = failed_side(decided.failed) if decided.failed is not None else None
    for entry, stale in zip(rows, stale_reasons(rows), strict=True):
        own = own_baselines(entry.record, eager) if stale is None or ON_ANOTHER_HOST in stale else {}
        wins, named = entry is decided.winner, failed is not None and failed.variant == entry.record.variant
        in_final = f"in the final {failed.status}: {failed.measurement.reason}" if failed and named else ""
        build = built.get(entry.record.variant)
        yield TableRow(entry, own, ceilings, stale, wins, decided.objective, in_final, build)


def columns(keys: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of a page, in the page's order. Raises KeyError for an unknown key."""
    return tuple(COLUMNS[key] for key in keys)


def cells(keys: Sequence[str], row: TableRow) -> list[str]:
    """Return a row of a table as plain texts."""
    return [column.text(row) for column in columns(keys)]


def data(keys: Sequence[str], row: TableRow) -> dict[str, object]:
    """Return a row as `--json` prints it, by column key."""
    values = [(column, column.value(row)) for column in columns(keys)]
    return {column.key: None if value is None else column.data(value) for column, value in values}


def peak_mib(record: Record) -> float | None:
    """Return the peak memory in MiB; None if it is unknown.

    On CUDA it is the device's, on a CPU the resident size of the worker and of processes that the backend started.
    """
    return record.peak_bytes / MIB if record.peak_bytes is not None else None


def worst_error(record: Record | PipelineRecord) -> float | None:
    """Return the largest relative L2 over the outputs; None if none was compared, or one could not be."""
    parity = record.measurement.parity
    if parity is None or not parity.outputs:
        return None
    errors = [output.rel_l2 for output in parity.outputs if output.rel_l2 is not None]
    return max(errors) if len(errors) == len(parity.outputs) else None


def _build(row: TableRow) -> BuildCost | None:
    """Return the cost of the row's build; if it was cold, with that of its side in the final, which was warm."""
    build, again = row.record.measurement.build, row.build_in_final
    if build is None or again is None or build.cache != "cold" or again.cache == "cold":
        return build
    if build.warm_s is not None or build.warm_cpu_s is not None:  # of former records, whose cold builds were repeated
        return build
    return replace(build, warm_s=again.build_s, warm_cpu_s=again.cpu_s)


def build_seconds(build: BuildCost) -> str:
    """Format cold and warm seconds as `60.1/7.3`, with a dash for what was not measured in this record.

    If other builds ran at the same time, they are CPU seconds, as in `71.0 cpu/9.1 cpu`.
    """
    built = _seconds(build.build_s, build.cpu_s)
    if build.cache == "none":
        return f"{built}/-"
    if build.cache in ("warm", "stored"):
        return f"-/{built}"
    return f"{built}/{_seconds(build.warm_s, build.warm_cpu_s)}"


def _seconds(wall_s: float | None, cpu_s: float | None) -> str:
    """Format seconds as `60.1`; if they are unknown, the CPU seconds as `71.0 cpu`; if these are too, a dash."""
    if wall_s is not None:
        return f"{wall_s:.1f}"
    return "-" if cpu_s is None else f"{cpu_s:.1f} cpu"


def _by_build(build: BuildCost) -> float:
    """Return the cost of a build by which rows are sorted; infinite if it is unknown."""
    known = [cost for cost in (build.build_s, build.cpu_s) if cost is not None]
    return known[0] if known else inf


def _duration(
    key: str, heading: str, explanation: str, read: Callable[[Summary], float | None], leaves: int = 0
) -> Column:
    """Return a column for a figure of the latency clock, with as many decimals as the row's median."""

    def value(row: TableRow) -> tuple[float, float] | None:
        figures = row.record.latency
        ms = read(figures) if figures is not None else None
        return (ms, figures.median_ms) if figures is not None and ms is not None else None

    return Column(
        key,
        heading,
        explanation,
        value,
        lambda pair: milliseconds(*pair),
        lambda pair: pair[0],
        lambda pair: pair[0],
        leaves=leaves,
    )


def _clock(record: Record) -> Clock | None:
    """Return the latency clock; None without samples."""
    clock = record.measurement.latency
    return clock if clock is not None and clock.figures is not None else None


def _median_ms(clock: Clock) -> float:
    return clock.figures.median_ms if clock.figures is not None else 0.0


def _median_text(clock: Clock) -> str:
    """Format the median or, if samples have two modes, both with the slower one's share: `115.00 | 215.10 (41 %)`.

    A median between two modes would be the time of no call.
    """
    found = clock.modes
    if found is None:
        return milliseconds(_median_ms(clock))
    fast, slow = found
    return f"{milliseconds(fast.median_ms)} | {milliseconds(slow.median_ms, fast.median_ms)} ({slow.share * 100:.0f} %)"


def latency_text(clock: Clock) -> str:
    """Format the median with its interval or, if samples have two modes, both modes."""
    if clock.figures is None or clock.modes is not None:
        return _median_text(clock)
    return with_interval(clock.figures)


def _rate(ms: float | None) -> float | None:
    """Return calls per second; None if the time is unknown or zero."""
    return 1000 / ms if ms else None


def _against(record: Record, baseline: Record | None) -> Speedup | None:
    """Return the speedup over the baseline; None for rows that are not ok, as only ok ones are ranked."""
    return speedup(record, baseline) if record.status == "ok" else None


def _sqnr(record: Record) -> Parity | None:
    parity = record.measurement.parity
    return parity if parity is not None and parity.sqnr_text else None


def _lossless(row: TableRow) -> bool | None:
    """Return whether outputs equal eager's bit for bit; None if unknown, or if they and eager's own rerun differ."""
    known, eager = row.record.measurement.lossless, row.baselines.get(row.record.variant.dtype)
    differs = eager is not None and eager.measurement.lossless is False
    return None if differs and not known else known


def _hundredths(value: float) -> str:
    return f"{value:.2f}"


def _floor_text(bound: Floor) -> str:
    return f"{bound.ms:.3g} {bound.bound[:1]}"


def _of_floor(row: TableRow) -> tuple[float, bool] | None:
    """Return floor over median, and whether it is above 1 because the ceilings are too low; None without a floor."""
    part = share(row.record, row.ceilings)
    return None if part is None else (part, is_above(row.record, row.ceilings))


def _copy_text(copy: InputCopy) -> str:
    return "in call" if copy.median_ms is None else milliseconds(copy.median_ms)


def _copy_data(copy: InputCopy) -> dict[str, object]:
    return {"in_call": copy.in_call, "bytes": copy.bytes, "median_ms": copy.median_ms}


def _limits(row: TableRow) -> tuple[LimitCheck, ...] | None:
    """Check the row's figures against the limits of the table's objective; None without limits or figures."""
    return check_limits(row.record, row.objective) or None if row.record.latency is not None else None


_WINNER: Final = (
    "bold or starred: faster in a final between the two best rows, without quantised ones on random weights"
)
_COLUMNS: Final = (
    Column("name", "variant", _WINNER, lambda row: name_of(row.record), numeric=False),
    Column("variant", "variant", "", lambda row: str(row.record.variant), numeric=False),
    Column("quantisation", "quantisation", "", lambda row: row.record.quantisation, numeric=False),
    Column("status", "status", "", lambda row: row.record.status, numeric=False),
    Column("reason", "reason", "", lambda row: row.record.measurement.reason or row.in_final, numeric=False),
    Column("stale", "stale", "", lambda row: row.stale, numeric=False),
    Column(
        "median_ms",
        "median ms",
        "median of the latency clock: one call, synchronised; a | b (n %): two modes, n % of the samples in the second",
        lambda row: _clock(row.record),
        _median_text,
        _median_ms,
        _median_ms,
    ),
    Column(
        "latency",
        "median ms [95 %]",
        "median of the latency clock (one call, synchronised) and its 95 % interval; a | b (n %): two modes, n % of "
        "the samples in the second",
        lambda row: _clock(row.record),
        latency_text,
        _median_ms,
        lambda clock: clock.figures,
    ),
    _duration("mean_ms", "mean ms", "of the latency clock, as are min, max and std", lambda f: f.mean_ms),
    _duration("min_ms", "min ms", "", lambda f: f.min_ms, leaves=13),
    _duration("max_ms", "max ms", "", lambda f: f.max_ms),
    _duration("std_ms", "std ms", "", lambda f: f.std_ms),
    _duration(
        "p99_ms",
        "p99 ms",
        f"99 % of the calls took less; -: fewer than {FEWEST_FOR_P99} samples",
        lambda f: f.p99_ms,
        leaves=4,
    ),
    Column(
        "copy_ms",
        "copy ms",
        "what a caller pays besides each call to copy its inputs into the buffers of a captured graph; in call: the "
        "call copies its inputs itself, so that its times hold it",
        lambda row: row.record.measurement.input_copy,
        _copy_text,
        lambda copy: copy.median_ms or 0.0,
        _copy_data,
        leaves=11,
    ),
    Column(
        "floor",
        "floor ms",
        "time of a call's FLOPs (c) or its memory traffic (t) at the best rates measured on this machine (the "
        "ceilings); where none were measured, at those of the GPU's datasheet",
        lambda row: floor(row.record, row.ceilings),
        _floor_text,
        lambda bound: bound.ms,
        leaves=12,
    ),
    Column(
        "of_floor",
        "of floor",
        "floor over median; !: above 100 %, the ceilings are too low there and the floor is none",
        _of_floor,
        lambda found: f"{found[0]:.0%}{' !' if found[1] else ''}",
        lambda found: found[0],
        lambda found: found[0],
        leaves=7,
    ),
    Column(
        "calls_per_s",
        "calls/s",
        "1000 / median ms, of rows that are ok",
        lambda row: _rate(row.record.latency.median_ms) if row.record.latency and row.record.status == "ok" else None,
        _hundredths,
        leaves=2,
    ),
    Column(
        "items_per_s",
        "items/s [95 %]",
        "items of the batch a second by the throughput clock (calls queued without waiting), and its 95 % interval, of "
        "rows that are ok",
        lambda row: (
            items_per_s(row.record) if row.objective.goal == "throughput" and row.record.status == "ok" else None
        ),
        rate_text,
        lambda rate: rate[0],
    ),
    Column(
        "limits",
        "limits",
        "met: the 95 % interval of a percentile of the latency clock, or the peak memory, is within its limit; "
        "unclear: the interval holds the limit",
        _limits,
        fit_text,
        fit_text,
        numeric=False,
    ),
    Column(
        "mean_calls_per_s",
        "avg FPS",
        "calls a second, 1000 / mean ms; not video frames",
        lambda row: _rate(row.record.latency.mean_ms) if row.record.latency else None,
        _hundredths,
    ),
    Column(
        "video_fps",
        "video fps",
        "video frames a second of this component alone, with all calls that a frame needs, of rows that are ok",
        lambda row: row.record.video_fps if row.record.status == "ok" else None,
        _hundredths,
        leaves=5,
    ),
    Column(
        "vs_eager",
        "vs eager",
        "ratio of medians against eager in the same dtype; ~ no difference shown (the medians' 95 % intervals overlap; "
        "rows are not interleaved)",
        lambda row: _against(row.record, row.baselines.get(row.record.variant.dtype)),
        str,
        lambda gain: gain.ratio,
        lambda gain: gain.ratio,
        leaves=3,
    ),
    Column(
        "vs_eager_fp32",
        "vs eager fp32",
        "ratio of medians against eager fp32; ~ no difference shown",
        lambda row: _against(row.record, stated_over(row.baselines)),
        str,
        lambda gain: gain.ratio,
        lambda gain: gain.ratio,
    ),
    Column(
        "peak_mib",
        "peak MiB",
        "device memory on CUDA; on a CPU resident size of the worker and what it started, malloc as when timed",
        lambda row: peak_mib(row.record),
        lambda peak: f"{peak:.0f}",
        leaves=1,
    ),
    Column(
        "error",
        "error",
        "largest relative L2 of an output against the reference",
        lambda row: worst_error(row.record),
        lambda error: f"{error:.1e}" if error else "exact",
        leaves=10,
    ),
    Column(
        "sqnr_db",
        "SQNR dB",
        "signal to quantisation noise against the reference, of the worst output",
        lambda row: _sqnr(row.record),
        lambda parity: parity.sqnr_text,
        lambda parity: inf if parity.sqnr_db is None else parity.sqnr_db,
        lambda parity: parity.sqnr_db,
        leaves=6,
    ),
    Column(
        "lossless",
        "lossless",
        "whether every output that was compared equals eager's in the same dtype bit for bit, on all inputs and sizes; "
        "empty where eager differs between two runs of its own",
        _lossless,
        lambda equal: "yes" if equal else "no",
        lambda equal: "yes" if equal else "no",
        numeric=False,
        leaves=9,
    ),
    Column(
        "graph_breaks",
        "breaks",
        "graph breaks of torch.compile",
        lambda row: row.record.measurement.proof.graph_breaks if row.record.measurement.proof else None,
        leaves=14,
    ),
    Column(
        "build",
        "build s cold/warm",
        "seconds with empty and with filled compiler caches; - not measured",
        _build,
        build_seconds,
        _by_build,
        leaves=8,
    ),
    Column(
        "record", "record", "", lambda row: row.entry.id, lambda name: name.rpartition("_")[2], numeric=False, leaves=15
    ),
)
COLUMNS: Final[Mapping[str, Column]] = {column.key: column for column in _COLUMNS}
