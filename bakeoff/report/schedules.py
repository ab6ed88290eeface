"""Sentences on mixes that ran under a schedule: what was promised and measured of it, and whether it gains anything."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from bakeoff.models.words import counted
from bakeoff.record.account import Account, account_of, middle, steady
from bakeoff.record.forecast import typical
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.report.document import Text
from bakeoff.report.format import milliseconds, size_text
from bakeoff.report.pipelines import MixRow, gain

_FELT = 1.05
"""Slowdown of a program beside another one from which a sentence names it."""


def latency_ms(record: PipelineRecord) -> float | None:
    """Return the mean time from the beginning of a steady unit until its outputs are ready; None without such units.

    What the lab does between two units is left out.
    """
    units, chosen = record.measurement.units, steady(record.measurement.units) if record.measurement.units else []
    if units is None or not chosen:
        return None
    if not record.mix.schedule.startswith("decode-behind"):
        return fmean(units.wall_ns[unit] for unit in chosen) / 1e6
    found = [units.wall_ns[unit] + units.done_ns[unit + 1] for unit in chosen if unit + 1 in chosen]
    return fmean(found) / 1e6 if found else None


def as_data(record: PipelineRecord) -> dict[str, object]:
    """Return for `--json` what only a mix under a schedule has; empty for a sequential one."""
    if not record.mix.schedule:
        return {}
    lines = second.lines if (second := _second(record)) is not None else ()
    beside = [{"name": line.name, "kind": line.kind, "slot": line.slot, "ns": line.ns, "ms": line.ms} for line in lines]
    found = {"schedule": record.mix.schedule, "latency_ms": latency_ms(record), "beside": beside}
    return {**found, "added_bytes": (promised := record.measurement.promised) and promised.memory_bytes}


def texts(rows: Sequence[MixRow]) -> Iterator[Text]:
    """Yield the sentences on each mix with a schedule of its own; nothing for sequential ones."""
    for row in rows:
        record, promised = row.record, row.record.measurement.promised
        unit, latency = typical(record), latency_ms(record)
        if not record.mix.schedule or promised is None or unit is None or latency is None:
            continue
        plain = replace(record.mix, schedule="")
        others = (other.record for other in rows if other.record.run == record.run and other.record.mix == plain)
        sequential = next(others, None)
        text = f"a unit takes {milliseconds(unit.unit_ms)} ms, {milliseconds(promised.ms)} were promised; its outputs "
        ready = milliseconds(promised.latency_ms or 0)
        text += f"are ready {milliseconds(latency)} ms after it begins, {ready} were promised"
        yield Text(f"{text}{_lanes(record)}; buffers for it take {size_text(promised.memory_bytes or 0)}", row.name)
        if sequential is not None:
            yield _against(row, sequential)


def _against(row: MixRow, sequential: PipelineRecord) -> Text:
    """Return whether the schedule gains anything against the same mix run sequentially, in the same turns."""
    promised, before = row.record.measurement.promised, sequential.measurement.promised
    found = gain(sequential, row.record)
    assert promised is not None
    text = f"{before.ms / promised.ms:.2f}x the rate was promised" if before is not None else "no rate was promised"
    felt = {pair: factor for pair, factor in promised.slowdowns.items() if factor >= _FELT}
    worst = max(felt, key=lambda pair: felt[pair], default="")
    why = f"; {worst} takes {felt[worst]:.2f}x as long" if worst else ""
    if found is None:
        return Text(f"not compared with the sequential unit, {text}{why}", row.name)
    ends = f" [{found.interval[0]:.2f}, {found.interval[1]:.2f}]" if found.interval is not None else ""
    said = f"{found.ratio:.2f}x{ends} the rate of the sequential unit in "
    said += f"{counted(found.pairs, 'pair')} of units, {text}{why}"
    if found.word == "faster":
        return Text(f"gains: {said}", row.name, tone="good")
    return Text(f"{'loses' if found.word == 'slower' else 'gains nothing shown'}: {said}", row.name, tone="open")


def _second(record: PipelineRecord) -> Account | None:
    """Return the account of the second lane."""
    units = record.measurement.units
    return account_of(replace(units, lines=units.beside), {}, middle(units)) if units is not None else None


def _lanes(record: PipelineRecord) -> str:
    """Return how long each line of the second lane takes, and how long each lane is idle; "" without one."""
    first, second = typical(record), _second(record)
    if second is None:
        return ""
    parts = [f"{line.name} {line.ms:.3f}" for line in second.lines if line.ns]
    waited = sum(line.ms for line in (first.lines if first is not None else ()) if line.kind == "idle")
    return f"; second lane: {', '.join(parts)} ms; the first one is idle for {waited:.3f} ms"
