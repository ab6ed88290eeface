"""Finds records of single programs (parts) that predict the cost of a mix and choose the best one.

A record counts for a program if it was made on the same machine (all on one host of it) with the same code, library
versions, threads, config, batch and weights. A workload of another name is the same program if the names differ only
in a trailing number and inputs, outputs and work are equal: in preset 200m of wm, `step` is `step29`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
_MAY_WORK = ("ok", "unstable")
"""Statuses of a newest record whose variant ran and computed the right outputs."""


@dataclass(frozen=True, slots=True)
class Part:
    """The newest record of a program with one choice of backends and dtype."""

    id: str
    record: Record

    @property
    def usable(self) -> bool:
        """Whether the record has a reliable median."""
        return self.record.status == "ok" and self.record.latency is not None

    @property
    def median_ns(self) -> int:
        return round(self.record.latency.median_ms * 1e6) if self.record.latency is not None else 0

    @property
    def peak_bytes(self) -> int:
        """Peak memory on the device, else of the process; 0 if the host has no such meter."""
        memory = self.record.measurement.memory
        return (memory.device_peak_bytes or memory.host_peak_bytes or 0) if memory is not None else 0


KnownParts = Callable[[str, Subject], Mapping[SlotChoice, Part]]
"""Function from a slot and the subject of one of its programs to the newest record of the program for each choice of
backends and dtype, preferably an `ok` one."""


def known_parts(stored: Sequence[Stored]) -> KnownParts:
    """Index these records, the oldest first, by subject. Code is hashed when a hash is first needed, and only once."""
    backend_hash = cache(lambda name: backend_source(name).hash if name in backend_names() else "")
    return cache(lambda slot, subject: _parts_of(stored, slot, subject, backend_hash))


def _parts_of(
    stored: Sequence[Stored], slot: str, subject: Subject, backend_hash: Callable[[str], str]
) -> Mapping[SlotChoice, Part]:
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
    found: dict[SlotChoice, Part] = {}
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
            if before is None or not before.usable or record.status != "unstable":
                found[choice] = Part(entry.id, record)
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


def failed_choices(programs: Iterable[Mapping[SlotChoice, Part]]) -> set[SlotChoice]:
    """Return the choices that failed in the newest record of any of these programs of a slot."""
    return {choice for parts in programs for choice, part in parts.items() if part.record.status not in _MAY_WORK}


def best_choice(
    programs: Mapping[str, Mapping[SlotChoice, Part]], calls: Mapping[str, int], quantised: bool
) -> tuple[SlotChoice, tuple[str, ...]] | None:
    """Return the fastest backends and dtype to fill a slot with, and the programs whose records decided; None without
    records.

    `programs` has the known parts of each program of the slot, `calls` its calls in a steady unit. The main program is
    the one with the most time in a unit: its calls times its smallest median. Candidates are the choices with a usable
    record of the main program, without those that failed in the newest record of any program of the slot, and without
    quantised choices unless `quantised`. They are compared by the sum of calls times median over the programs that all
    candidates have records of; ties are broken by the choice's text.
    """
    failed = failed_choices(programs.values())
    usable = {
        program: {
            choice: part.median_ns
            for choice, part in parts.items()
            if part.usable and choice not in failed and (quantised or not part.record.quantisation)
        }
        for program, parts in programs.items()
    }
    known = [program for program in usable if calls.get(program) and usable[program]]
    if not known:
        return None
    main = max(known, key=lambda program: calls[program] * min(usable[program].values()))
    candidates = usable[main]
    compared = tuple(program for program in known if usable[program].keys() >= candidates.keys())

    def cost(choice: SlotChoice) -> tuple[int, str]:
        return sum(calls[program] * usable[program][choice] for program in compared), str(choice)

    return min(candidates, key=cost), compared
