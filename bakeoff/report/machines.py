"""Whose records a page shows: those of this machine, of the machines that were asked for, or of all."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bakeoff.machine.identity import Machine, this_machine
from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import DEVICES
from bakeoff.record.store import Records
from bakeoff.report.links import folders_of

ALL = "all"
_LEAST_ID = 4
"""Characters of an id that name a machine."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The records of some machines."""

    records: Records
    machines: tuple[Machine, ...]
    """Those with records, the one that measured last first."""
    foreign: bool
    """Whether they are another machine's although none was asked for, because this one has no records."""


def own_ids() -> frozenset[str]:
    """The ids of this host, one for each device that it has."""
    return frozenset(this_machine(device).id for device in DEVICES)


def select(records: Records, asked: Sequence[str], own: Collection[str]) -> Selection:
    """The records of the machines in `asked`; where it is empty, those of `own`, or else of the one measured last.

    `asked` holds names, names of folders, beginnings of ids, or `all`; a name may fit several machines. Raises
    BakeoffError for one that fits none.
    """
    known = records.machines()
    if asked:
        ids = {machine.id for text in asked for machine in _fitting(text, known, folders_of(records))}
        return _of(records, [machine for machine in known if machine.id in ids], foreign=False)
    mine = [machine for machine in known if machine.id in own]
    return _of(records, mine or known[:1], foreign=not mine and bool(known))


def _of(records: Records, machines: Sequence[Machine], foreign: bool) -> Selection:
    return Selection(records.of_machines([machine.id for machine in machines]), tuple(machines), foreign)


def _fitting(text: str, known: Sequence[Machine], folders: dict[str, str]) -> list[Machine]:
    """The machines that a text names; a list of names is separated by commas, which a name may hold too."""
    wanted = text.strip().lower()
    found = [
        machine
        for machine in known
        if wanted in (ALL, machine.name.lower(), folders[machine.id].lower(), folders[machine.id].rpartition("-")[0])
        or (len(wanted) >= _LEAST_ID and machine.id.startswith(wanted))
    ]
    if found or wanted == ALL:
        return found
    if "," in text:
        return [machine for part in text.split(",") for machine in _fitting(part, known, folders)]
    names = ", ".join(f"{folders[machine.id]} ({machine.name})" for machine in known) or "none has records"
    raise BakeoffError(f"no machine '{text}'; known: {names}, or {ALL}", "unknown-name")
