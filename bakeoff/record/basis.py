"""The code and the library versions of a record: where they differ, times are not divided by one another."""

from collections.abc import Mapping
from dataclasses import dataclass

from bakeoff.record.schema import Record


@dataclass(frozen=True, slots=True)
class Basis:
    """What rows of one table must have in common besides what they compute."""

    component: str
    """Hash of the component's source."""
    instrument: str
    """Hash of the measuring side."""
    versions: tuple[tuple[str, str], ...]
    """Library and version, by name; without bakeoff, whose code has a hash of its own."""


def basis_of(record: Record) -> Basis:
    versions = tuple(sorted((name, version) for name, version in record.versions.items() if name != "bakeoff"))
    return Basis(record.source.component, record.source.instrument, versions)


def backends_of(record: Record) -> Mapping[str, str]:
    """Hash of the source of each of the record's backends, by name."""
    return {backend.name: backend.hash for backend in record.source.backends}


def same_code(a: Record, b: Record) -> bool:
    """Whether both ran the same code with the same libraries: basis, and the backends that both use."""
    ours, theirs = backends_of(a), backends_of(b)
    return basis_of(a) == basis_of(b) and all(ours[name] == theirs[name] for name in ours.keys() & theirs.keys())
