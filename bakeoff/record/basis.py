"""The code and the library versions of a record: where they differ, times are not divided by one another."""

from collections.abc import Mapping
from dataclasses import dataclass

from bakeoff.record.schema import Record


@dataclass(frozen=True, slots=True)
class Basis:
    """What rows of one table must have in common besides what they compute."""

    component: str
    """Hash of the component's source. For a record of schema 1, which has none, its code, commit and changes."""
    instrument: str
    """Hash of the measuring side; for schema 1 the same as `component`."""
    versions: tuple[tuple[str, str], ...]
    """Library and version, by name; without bakeoff, whose code has a hash of its own."""
    hashed: bool
    """False for records of schema 1."""


def basis_of(record: Record) -> Basis:
    versions = tuple(sorted((name, version) for name, version in record.versions.items() if name != "bakeoff"))
    if record.source is None:
        code = f"{record.code} {record.commit} {'with changes' if record.dirty else ''}".strip()
        return Basis(code, code, versions, hashed=False)
    return Basis(record.source.component, record.source.instrument, versions, hashed=True)


def backends_of(record: Record) -> Mapping[str, str]:
    """Hash of the source of each of the record's backends, by name; none for schema 1."""
    return {} if record.source is None else {backend.name: backend.hash for backend in record.source.backends}


def same_code(a: Record, b: Record) -> bool:
    """Whether both ran the same code with the same libraries: basis, and the backends that both use."""
    ours, theirs = backends_of(a), backends_of(b)
    return basis_of(a) == basis_of(b) and all(ours[name] == theirs[name] for name in ours.keys() & theirs.keys())
