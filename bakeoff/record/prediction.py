"""Predicts a unit's time from the records of a pipeline's components, and compares it with the measured unit.

A unit is predicted as the calls of its programs, each with the median of the program's own record. The time between
programs is not predicted, so it is a part of the difference.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bakeoff.record.account import account_lines
from bakeoff.record.frames import figures
from bakeoff.record.pipeline import PipelineRecord, SlotProgram
from bakeoff.record.source import typed_backends

BETWEEN = "between programs"


@dataclass(frozen=True, slots=True)
class SlotTime:
    """A slot's time per unit in milliseconds: predicted, of calls alone, and inside the loop."""

    slot: str
    """`between programs` for glue, copies, phases without programs and unattributed time."""
    predicted_ms: float | None
    """Sum over its programs by their own records; None if a program has no such record."""
    alone_ms: float | None
    """From calls of the programs alone in the same process; None if there are none."""
    inside_ms: float
    difference_ms: float | None
    """Time inside the loop minus the predicted time; the differences of all slots add up to that of the unit."""
    share: float | None
    """Share of the unit's difference, negative if of the other sign; None if that difference is unknown or 0."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted time of a unit, from the records of its parts, compared with the mean measured time."""

    slots: tuple[SlotTime, ...]
    unit_ms: float
    """Mean measured time of a unit."""
    predicted_ms: float | None
    frames_per_s: float | None
    """Predicted frames a second."""
    error: float | None
    """Predicted over measured frames a second, minus 1: above 0 if the prediction is too optimistic."""
    missing: tuple[SlotProgram, ...]
    """Programs of a unit that no record predicts."""

    @property
    def largest(self) -> SlotTime | None:
        """The slot with the largest share of the unit's difference, of the same sign; None if there is none."""
        found = [row for row in self.slots if row.share is not None and row.share > 0]
        return max(found, key=lambda row: row.share or 0.0, default=None)


@dataclass(frozen=True, slots=True)
class MemorySum:
    """Peak memory of a run with all components loaded, compared with the sum of its parts' peaks."""

    peak_bytes: int | None
    meter: str
    """`device` or `resident`."""
    parts_bytes: int | None
    """Sum over the programs whose records state a peak; None if none does."""
    without: tuple[str, ...]
    """Programs whose peak is unknown, as `slot.program`."""


@dataclass(frozen=True, slots=True)
class WeightsHeld:
    """Number of copies of a slot's weights in memory."""

    slot: str
    programs: int
    copies: int
    bytes: int
    """Size of all copies."""


def prediction(record: PipelineRecord) -> Prediction | None:
    """Predict a unit's time and compare it with the measured mean; None if the run has no steady unit."""
    measured, rows = figures(record), account_lines(record)
    if measured is None:
        return None
    inside: dict[str, float] = {}
    for row in rows:
        inside[row.slot or BETWEEN] = inside.get(row.slot or BETWEEN, 0.0) + row.ms
    by_records: dict[str, list[float | None]] = {BETWEEN: [0.0]}
    by_calls: dict[str, list[float | None]] = {}
    missing = []
    for program in record.measurement.programs:
        calls = record.calls.get(program.name, 0)
        if calls:
            part_ms = calls * program.part_median_ns / 1e6 if program.part else None
            alone_ms = calls * median(program.alone_ns) / 1e6 if program.alone_ns else None
            by_records.setdefault(program.slot, []).append(part_ms)
            by_calls.setdefault(program.slot, []).append(alone_ms)
            missing += [program] if part_ms is None else []
    unit_ms = sum(inside.values())
    predicted, alone = ({slot: total(parts) for slot, parts in each.items()} for each in (by_records, by_calls))
    predicted_ms = total([predicted.get(slot) for slot in {**predicted, **inside}])
    whole = unit_ms - predicted_ms if predicted_ms is not None else None
    order = [*(slot for slot in {**inside, **predicted} if slot != BETWEEN), BETWEEN]
    frames_per_s = measured.frames / measured.units * 1e3 / predicted_ms if predicted_ms else None
    return Prediction(
        slots=tuple(_slot(slot, predicted.get(slot), alone.get(slot), inside.get(slot, 0.0), whole) for slot in order),
        unit_ms=unit_ms,
        predicted_ms=predicted_ms,
        frames_per_s=frames_per_s,
        error=frames_per_s / measured.frames_per_s - 1 if frames_per_s is not None else None,
        missing=tuple(missing),
    )


def _slot(
    slot: str, predicted_ms: float | None, alone_ms: float | None, inside_ms: float, whole: float | None
) -> SlotTime:
    difference = inside_ms - predicted_ms if predicted_ms is not None else None
    share = difference / whole if difference is not None and whole else None
    return SlotTime(slot, predicted_ms, alone_ms, inside_ms, difference, share)


def total(values: Sequence[float | None]) -> float | None:
    """Return the sum; None without values, or if one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def sweep_command(program: SlotProgram, record: PipelineRecord) -> str:
    """Return the sweep command whose record would predict this program of a run; FILE stands for a weights file."""
    variant = program.variant
    words = ["bakeoff", "sweep", variant.component, "--preset", variant.preset, "--workload", variant.workload]
    words += [
        "--backends",
        typed_backends(variant, program.source),
        "--dtype",
        variant.dtype,
        "--device",
        variant.device,
    ]
    words += ["--batch", str(program.batch)] if program.batch != 1 else []
    words += ["--threads", str(record.threads)]
    if record.checkpoints.get(program.slot) and variant.preset != "live":  # whose folder has them
        words += ["--checkpoint", "FILE"]
    elif record.weight_seed:
        words += ["--seed", str(record.weight_seed)]
    return shlex.join(words)


def memory_sum(record: PipelineRecord) -> MemorySum | None:
    """Return the peak memory of a run and the sum of its parts' peaks; None if the run measured no memory."""
    memory = record.measurement.memory
    if memory is None:
        return None
    on_device = memory.device_peak_bytes is not None
    names = [program.name for program in record.measurement.programs]
    return MemorySum(
        peak_bytes=memory.device_peak_bytes if on_device else memory.host_peak_bytes,
        meter="device" if on_device else "resident",
        parts_bytes=sum(memory.parts_bytes.values()) if memory.parts_bytes else None,
        without=tuple(name for name in names if name not in memory.parts_bytes),
    )


def weights_held(record: PipelineRecord) -> tuple[WeightsHeld, ...]:
    """Return how many copies of its weights each slot has in memory; slots without weights are left out."""
    found: dict[str, list[SlotProgram]] = {}
    for program in record.measurement.programs:
        if program.weights_bytes:
            found.setdefault(program.slot, []).append(program)
    return tuple(
        WeightsHeld(slot, len(programs), len(own), sum(program.weights_bytes for program in own))
        for slot, programs in found.items()
        if (own := [program for program in programs if not program.shares_weights])
    )
