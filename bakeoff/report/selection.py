"""Selects the records that a page shows: by machine, and the newest ones, which README and published pages show."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import inf

from bakeoff.machine.identity import Machine, this_machine
from bakeoff.models import component_names, resolve_component
from bakeoff.models.errors import BakeoffError
from bakeoff.models.grouping import grouped
from bakeoff.models.types import DEVICES
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored, StoredComparison
from bakeoff.report.groups import Table, baselines, newest, own_baselines, stated_over, tables
from bakeoff.report.links import folders_of
from bakeoff.report.pipelines import newest_budgets, newest_rollouts, pipeline_tables, sustained_tables
from bakeoff.report.recommendation import decision

_BEST = 3
"""Number of rows of a component that README shows beside eager."""


ALL = "all"
_LEAST_ID = 4
"""Least number of characters of an id that name a machine."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected machines and their records."""

    records: Records
    machines: tuple[Machine, ...]
    """Machines with records, the one that measured last first."""
    foreign: bool
    """Whether the records are another machine's although none was asked for, because this one has no records."""


def chosen(records: Records) -> Records:
    """Return the records that are published.

    They are the newest record of each variant, mix, rollout and sustained run, the eager rows of these variants' sweeps
    and the eager mix of each of these runs, the runs of the newest budget of each pipeline, and the final between the
    two best rows of each table.
    """
    rows = sorted(newest(records.current), key=order)
    eager = [each for row in rows for each in own_baselines(row.record, records.current).values()]
    held = {id(record) for record in (*eager, *(row.record for row in rows))}
    finals = [final for found in tables(rows) if (final := final_of(found, records.comparisons)) is not None]
    mixes = {row.entry.id for found in pipeline_tables(records.pipelines) for row in (*found.rows, *found.stale)}
    runs = {entry.record.run for entry in records.pipelines if entry.id in mixes}
    mixes |= {entry.id for entry in records.pipelines if entry.record.role == "eager" and entry.record.run in runs}
    mixes |= {entry.id for entries in newest_budgets(records.pipelines) for entry in entries}
    return replace(
        records,
        current=tuple(sorted((entry for entry in records.current if id(entry.record) in held), key=order)),
        superseded=(),
        problems=(),
        comparisons=tuple(finals),
        pipelines=tuple(entry for entry in records.pipelines if entry.id in mixes),
        rollouts=newest_rollouts(records.rollouts),
        sustained=tuple(entry for entries in sustained_tables(records.sustained) for entry in entries),
    )


def ordered_tables(records: Records) -> list[Table]:
    """Return the tables of records chosen by `chosen`, by machine, then in the order in which components are listed."""
    return tables(newest(sorted(records.current, key=order)), every=records.current)


def final_of(found: Table, comparisons: Sequence[StoredComparison]) -> StoredComparison | None:
    """Return the final between the two best rows of a table, also one without a verdict; None if there is none."""
    made = decision(found.rows, comparisons)
    return next((entry for entry in comparisons if entry.record is (made.final or made.failed)), None)


def shorts(records: Records) -> list[tuple[Table, tuple[Stored, ...]]]:
    """Return README's table of each component on each machine with an ok row, that of its usual workload, else the
    largest, with the rows that README shows."""
    by_component = grouped(
        ((found.machine.key, found.rows[0].record.variant.component), found)
        for found in ordered_tables(records)
        if any(_ms(entry.record) is not None for entry in found.rows)
    )
    kept = [max(held, key=lambda found: (_is_usual(found), len(found.rows))) for held in by_component.values()]
    return [(found, _best(found, final_of(found, records.comparisons))) for found in kept]


def _best(found: Table, final: StoredComparison | None) -> tuple[Stored, ...]:
    """Return the three fastest rows of a table that are ok or were in its final; of the others those that were in it,
    and eager fp32 if it is ok."""
    sides = {side.variant for side in final.record.sides} if final is not None else set()
    ranked = [entry for entry in found.rows if _ms(entry.record) is not None or entry.record.variant in sides]
    ranked.sort(key=lambda entry: entry.record.latency.median_ms if entry.record.latency is not None else inf)
    base = stated_over(baselines(found.rows))
    return (
        *ranked[:_BEST],
        *(entry for entry in ranked[_BEST:] if entry.record is base or entry.record.variant in sides),
    )


def _ms(record: Record) -> float | None:
    """Return the median of a row that may be ranked; None for other rows."""
    return record.latency.median_ms if record.status == "ok" and record.latency is not None else None


def _is_usual(found: Table) -> bool:
    """Return whether a table has the preset and workload that a sweep of its component takes by default."""
    variant = found.rows[0].record.variant
    if variant.component not in component_names():
        return False
    spec = resolve_component(variant.component)
    usual = spec.default_preset.get(variant.device), *spec.default_workloads.get(variant.device, ())[:1]
    return (variant.preset, variant.workload) == usual


def order(entry: Stored) -> tuple[int, str, str]:
    """Return a sort key: by component as the list of components has them, then by time."""
    known = component_names()
    name = entry.record.variant.component
    return known.index(name) if name in known else len(known), entry.record.created, entry.id


def own_keys() -> frozenset[str]:
    """Return the keys of this machine, one for each kind of device."""
    return frozenset(this_machine(device).key for device in DEVICES)


def select(records: Records, asked: Sequence[str], own: Collection[str]) -> Selection:
    """Return the records of the machines in `asked`; if it is empty, of those in `own`, else of the one measured last.

    `asked` contains names, names of folders, beginnings of ids or of classes, or `all`; a name or an id may fit several
    machines. `own` has keys. Raises BakeoffError for a name that fits none.
    """
    known = records.machines()
    if asked:
        keys = {machine.key for text in asked for machine in _fitting(text, records.hosts(), folders_of(records))}
        return _of(records, [machine for machine in known if machine.key in keys], foreign=False)
    mine = [machine for machine in known if machine.key in own]
    return _of(records, mine or known[:1], foreign=not mine and bool(known))


def _of(records: Records, machines: Sequence[Machine], foreign: bool) -> Selection:
    return Selection(records.of_machines([machine.key for machine in machines]), tuple(machines), foreign)


def _fitting(text: str, known: Sequence[Machine], folders: dict[str, str]) -> list[Machine]:
    """Return the machines that a text names: one name, which may contain commas, or else names separated by commas."""
    wanted = text.strip().lower()
    found = [
        machine
        for machine in known
        if wanted in (ALL, machine.name.lower(), folders[machine.key].lower(), folders[machine.key].rpartition("-")[0])
        or (len(wanted) >= _LEAST_ID and (machine.id.startswith(wanted) or machine.machine_class.startswith(wanted)))
    ]
    if found or wanted == ALL:
        return found
    if "," in text:
        return [machine for part in text.split(",") for machine in _fitting(part, known, folders)]
    told = dict.fromkeys(f"{folders[machine.key]} ({machine.name})" for machine in known)
    names = ", ".join(told) or "none has records"
    raise BakeoffError(f"no machine '{text}'; known: {names}, or {ALL}", "unknown-name")
