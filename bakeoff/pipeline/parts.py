"""Finds records of single programs (parts) by which mixes are promised and chosen.

A record counts for a program if it was made on the same machine (all on one host of it) with the same code, library
versions, threads, config, batch and weights. A workload of another name is the same program if the names differ only
in a trailing number and inputs, outputs and work are equal: in preset 200m of wm, `step` is `step29`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import msgspec

from bakeoff.backends import backend_names
from bakeoff.machine import host
from bakeoff.machine.identity import this_machine
from bakeoff.mix import SlotChoice
from bakeoff.models import resolve_component
from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import Subject
from bakeoff.record.comparable import Computation, computation_of
from bakeoff.record.schema import Record, libraries, weights_key
from bakeoff.record.source import backend_source, component_hash, instrument_hash
from bakeoff.record.store import Stored, of_one_host

_DIGITS = "0123456789"


KnownParts = Callable[[str, Subject], Mapping[SlotChoice, Stored]]
"""Function from a slot and the subject of one of its programs to the newest record of the program for each choice of
backends and dtype, preferably an `ok` one."""


def usable(record: Record) -> bool:
    """Return whether a record has a reliable time."""
    return record.status == "ok" and record.latency is not None


def known_parts(stored: Sequence[Stored]) -> KnownParts:
    """Index these records, the oldest first, by subject. Code is hashed when a hash is first needed, and only once."""
    backend_hash = cache(lambda name: backend_source(name).hash if name in backend_names() else "")
    return cache(lambda slot, subject: _parts_of(stored, slot, subject, backend_hash))


def _parts_of(
    stored: Sequence[Stored], slot: str, subject: Subject, backend_hash: Callable[[str], str]
) -> Mapping[SlotChoice, Stored]:
    component = resolve_component(subject.component)
    config = component.preset(subject.preset).config
    weights = weights_key(component.weights) or subject.checkpoint_hash
    computation = Computation(
        component=component.name,
        preset=subject.preset,
        device=subject.device,
        batch=subject.batch,
        threads=subject.threads,
        weights=weights,
        weight_seed=None if weights else subject.weight_seed,
        component_source=component_hash(subject.component),
        instrument=instrument_hash(),
        libraries=libraries(host.read_versions()),
    )
    plain = msgspec.json.decode(msgspec.json.encode(config))
    found: dict[SlotChoice, Stored] = {}
    for entry in of_one_host(stored, this_machine(subject.device)):
        record = entry.record
        variant = record.variant
        if (
            computation_of(record) == computation
            and record.config == plain
            and all(one.hash == backend_hash(one.name) for one in record.source.backends)
            and same_program(component, config, variant.workload, subject.workload, subject.batch)
        ):
            choice = SlotChoice(slot, variant.backends, variant.dtype)
            before = found.get(choice)
            if before is None or not usable(before.record) or record.status != "unstable":
                found[choice] = entry
    return found


def same_program(component: Component, config: object, one: str, other: str, batch: int) -> bool:
    """Return whether two workloads of a component are the same program under two names."""
    if one == other:
        return True
    if one.rstrip(_DIGITS) != other.rstrip(_DIGITS):
        return False
    try:
        first, second = (component.workload(config, name, batch) for name in (one, other))
    except BakeoffError:  # the record's workload is gone
        return False
    return (first.inputs, first.outputs, first.work) == (second.inputs, second.outputs, second.work)
