"""Groups of comparable records: what belongs in one table, its title, and the names of its rows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bakeoff.machine.files import digest
from bakeoff.models.component import Quantisation
from bakeoff.models.words import counted
from bakeoff.record.finalists import representative
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored

_CLASSES: Mapping[Quantisation, str] = {
    "dynamic": "dynamic int8",
    "weight-only": "int8 weights",
    "static": "static int8",
    "fp8": "fp8",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
}


@dataclass(frozen=True, slots=True)
class Group:
    """Records of the same computation on the same machine; their code and libraries may differ (report/comparable)."""

    title: str
    rows: tuple[Stored, ...]


def group_key(record: Record) -> tuple[str, str, int, int, str, int, int, str]:
    """What must be equal for two records to be compared. It holds the config, since a preset's config may change."""
    return (
        record.variant.subject,
        record.machine.id,
        record.batch,
        record.threads,
        record.weights_key,
        record.weight_seed,
        record.input_seed,
        digest(record.config),
    )


def groups(stored: Iterable[Stored]) -> list[Group]:
    """Records by `group_key`, groups and rows in the order they come."""
    found: dict[tuple[object, ...], list[Stored]] = {}
    for entry in stored:
        found.setdefault(group_key(entry.record), []).append(entry)
    return [Group(title(rows[0].record), tuple(rows)) for rows in found.values()]


def title(record: Record, machine: bool = True, batch: bool = True) -> str:
    """The heading of a table: subject, label of a reduced preset, batch, machine, threads, weights.

    Pages whose own heading names the machine leave it out, and batch curves the batch.
    """
    label = f" ({record.label})" if record.label else ""
    weights = record.checkpoint or f"random weights, seed {record.weight_seed}"
    parts = [f"batch {record.batch}"] * batch + [record.machine.name] * machine
    return ", ".join([f"{record.variant.subject}{label}", *parts, counted(record.threads, "thread"), weights])


def name_of(record: Record) -> str:
    """A row's name within its table: backend, dtype, and how it is quantised, if it is."""
    quantised = f" ({_CLASSES[record.quantisation]})" if record.quantisation else ""
    return f"{record.variant.backend} {record.variant.dtype}{quantised}"


def newest(stored: Iterable[Stored]) -> list[Stored]:
    """One record for each variant and group, from the newest sweep that has it, in the order of first appearance.

    Of several builds and processes in that sweep it is the one that `bakeoff.record.finalists` chooses.
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
