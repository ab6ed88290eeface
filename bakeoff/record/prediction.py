"""Predicts a unit's time from the records of a pipeline's components, and compares it with the measured unit.

A unit is predicted as the calls of its programs, each with the median of the program's own record. The time between
programs is not predicted, so it is a part of the difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.record.account import account_lines
from bakeoff.record.frames import figures
from bakeoff.record.pipeline import PipelineRecord

BETWEEN = "between programs"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted time of a unit, from the records of its parts, compared with the mean measured time."""

    unit_ms: float
    """Mean measured time of a unit."""
    predicted_ms: float | None
    frames_per_s: float | None
    """Predicted frames a second."""
    error: float | None
    """Predicted over measured frames a second, minus 1: above 0 if the prediction is too optimistic."""
    differences_ms: dict[str, float]
    """By slot, the time inside the loop minus the predicted time, and `between programs` for glue, copies, phases
    without programs and unattributed time; they add up to the difference of the unit. Empty without a prediction."""
    explained_by: str
    """The slot with the largest part of the unit's difference, of the same sign; "" if there is none."""
    missing: tuple[str, ...]
    """Programs of a unit that no record predicts, as `slot.program`."""


def prediction(record: PipelineRecord) -> Prediction | None:
    """Predict a unit's time and compare it with the measured mean; None if the run has no steady unit."""
    measured, lines = figures(record), account_lines(record)
    if measured is None:
        return None
    inside: dict[str, float] = {}
    for line in lines:
        inside[line.slot or BETWEEN] = inside.get(line.slot or BETWEEN, 0.0) + line.ms
    unit_ms = sum(inside.values())
    called = [program for program in record.measurement.programs if record.calls.get(program.name)]
    predicted = dict.fromkeys((*inside, *(program.slot for program in called)), 0.0)
    for program in called:
        predicted[program.slot] += record.calls[program.name] * program.part_median_ns / 1e6
    missing = tuple(program.name for program in called if not program.part)
    if missing or not called:
        return Prediction(unit_ms, None, None, None, {}, "", missing)
    predicted_ms = sum(predicted.values())
    frames_per_s = measured.frames / measured.units * 1e3 / predicted_ms if predicted_ms else None
    differences = {slot: inside.get(slot, 0.0) - ms for slot, ms in predicted.items()}
    largest = max(differences, key=lambda slot: differences[slot] * (unit_ms - predicted_ms))
    return Prediction(
        unit_ms=unit_ms,
        predicted_ms=predicted_ms,
        frames_per_s=frames_per_s,
        error=frames_per_s / measured.frames_per_s - 1 if frames_per_s is not None else None,
        differences_ms=differences,
        explained_by=largest if differences[largest] * (unit_ms - predicted_ms) > 0 else "",
        missing=(),
    )


def total(values: Sequence[float | None]) -> float | None:
    """Return the sum; None without values, or if one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
