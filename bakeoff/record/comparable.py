"""Decides whether the times of records may be compared: of two rows, of two mixes, and of a row and a mix's program.

A table must not divide the time of one model, or of one way of measuring, by that of another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bakeoff.machine.files import digest
from bakeoff.machine.identity import same_machine
from bakeoff.models.types import Device
from bakeoff.record.pipeline import PipelineRecord, SlotProgram
from bakeoff.record.schema import Record, Source, weights_key
from bakeoff.variant import Variant

ON_ANOTHER_HOST = "on another host of this class"
_SHOWN = 3
"""Largest number of libraries that a reason names."""


def subject_key(record: Record | PipelineRecord) -> tuple[Any, ...]:
    """Return the key that two records must share to be compared: what they compute and on which machine.

    It includes a row's config, as a preset's may change. The hash of a brought model's content is left out: after an
    edit, rows from before it are stale in the same table.
    """
    if isinstance(record, PipelineRecord):
        return record.subject_id, record.machine.key, record.threads
    spread = record.calibration
    config = {name: value for name, value in record.config.items() if name != "content"}
    return (
        record.variant.subject,
        f"{spread.sweep} {record.machine.key}" if spread is not None else record.machine.key,
        record.batch,
        record.threads,
        record.weights_key,
        record.weight_seed,
        record.input_seed,
        digest(config),
    )


def row_key(record: Record) -> tuple[object, ...]:
    """Return the key that the records of one row share: subject, variant and, unless it is spread over hosts, host."""
    return subject_key(record), str(record.variant), record.calibration is None and record.machine.host


def same_code(a: Record | PipelineRecord, b: Record | PipelineRecord) -> bool:
    """Return whether two records ran the same code with the same libraries; of sources, those that both have count."""
    return a.libraries == b.libraries and not _code_differences(a, b)


def differences(record: Record | PipelineRecord, other: Record | PipelineRecord, backends: bool = True) -> str:
    """Return why a record's times must not be compared with those of another that computes the same: they were
    measured on another host, by other code or for other times; "" if they may be.

    Rows that one sweep spread over several hosts may be compared. Without `backends`, these may have other sources.
    """
    spread = isinstance(record, Record) and record.calibration is not None
    found = [] if spread or record.machine.host == other.machine.host else [ON_ANOTHER_HOST]
    found += _code_differences(record, other, backends)
    if isinstance(record, Record) and isinstance(other, Record) and record.policy.window != other.policy.window:
        found.append("for other times")
    ours, theirs = record.libraries, other.libraries
    if names := [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]:
        shown = [f"{name} ({ours.get(name, 'none')}, not {theirs.get(name, 'none')})" for name in names[:_SHOWN]]
        more = [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
        found.append(f"with another version of {', '.join([*shown, *more])}")
    return f"measured {', '.join(found)}" if found else ""


def _code_differences(a: Record | PipelineRecord, b: Record | PipelineRecord, backends: bool = True) -> list[str]:
    """Return how the code of two records differs: of what they run as a whole, of the measuring side, of its parts."""
    ours, theirs = a.sources, b.sources
    changed = [name for name in ours if ours[name] != theirs.get(name, ours[name])]
    whole = [name for name in changed if name.startswith("the ")]
    parts = [name for name in sorted(changed) if name not in whole and (backends or not name.startswith("backend "))]
    found = [f"with another source of {name}" for name in whole]
    found += ["with other measuring code"] if a.instrument != b.instrument else []
    return [*found, f"with another source of {', '.join(parts)}"] if parts else found


def may_divide(a: Record, b: Record) -> bool:
    """Return whether a ratio of two rows' times says something: they are of one sweep, on one host or on those that the
    sweep was spread over, and of the same code. All other ratios are of races."""
    if a.sweep != b.sweep or not same_machine(a.machine, b.machine):
        return False
    return (a.machine.host == b.machine.host or None not in (a.calibration, b.calibration)) and same_code(a, b)


@dataclass(frozen=True, slots=True)
class Computation:
    """What decides the time of a program on one host, whatever backends and dtype it is built with.

    Its workload is left out, since one program may have two names.
    """

    component: str
    preset: str
    device: Device
    batch: int
    threads: int
    weights: str
    """Content hash of the weights; "" if they are random."""
    weight_seed: int | None
    """None if the weights are not random."""
    component_source: str
    instrument: str
    libraries: Mapping[str, str]


def computation_of(record: Record) -> Computation:
    """Return what decides a row's time, apart from its backends and dtype."""
    return _computation(record, record.variant, record.batch, record.weights_key, record.source)


def computation_in(record: PipelineRecord, program: SlotProgram) -> Computation | None:
    """Return the same of a program of a mix; None if its record does not state the program's source."""
    if program.source is None:
        return None
    weights = weights_key(record.checkpoints.get(program.slot, ""))
    return _computation(record, program.variant, program.batch, weights, program.source)


def _computation(
    record: Record | PipelineRecord, variant: Variant, batch: int, weights: str, source: Source
) -> Computation:
    seed = None if weights else record.weight_seed
    of = variant.component, variant.preset, variant.device, batch, record.threads, weights, seed
    return Computation(*of, source.component, source.instrument, record.libraries)
