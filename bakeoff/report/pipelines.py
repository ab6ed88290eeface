"""Tables of pipelines' runs: which mixes belong in one table, the names of its rows, and which rows are stale."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from string import ascii_uppercase

from bakeoff.machine.identity import Machine
from bakeoff.models.grouping import grouped
from bakeoff.record.budget import promised_ms
from bakeoff.record.comparable import differences, subject_key
from bakeoff.record.frames import FrameFigures, before_after, figures
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.store import StoredPipeline
from bakeoff.record.verdict import PairRatio
from bakeoff.report.groups import title


@dataclass(frozen=True)
class MixRow:
    """A mix as a row of a table."""

    entry: StoredPipeline
    name: str
    """Name within the table: `eager`, `best`, `best-full`, or `mix A` for one that the user typed."""
    gain: PairRatio | None = None
    """Comparison with the baseline of its run, with which it took turns; None for the baseline or if one is not ok."""
    against: str = ""
    """Name of that baseline: the eager mix, or the first mix of a run without it."""
    stale: str = ""
    """Reason why it must not be compared with the rows of its table; "" if it may be."""

    @property
    def record(self) -> PipelineRecord:
        return self.entry.record

    @cached_property
    def figures(self) -> FrameFigures | None:
        return figures(self.record)


@dataclass(frozen=True, slots=True)
class PipelineTable:
    """The newest record of each mix of one subject on one machine, the fastest first."""

    title: str
    """Heading: the subject, its sizes, machine, threads and weights."""
    machine: Machine
    rows: tuple[MixRow, ...]
    stale: tuple[MixRow, ...] = ()


def pipeline_tables(runs: Iterable[StoredPipeline]) -> list[PipelineTable]:
    """Return a table for each subject and machine, the machine that measured last first.

    Tables of one machine are in the order of their first records. The newest row with units decides which code and
    libraries are current.
    """
    ordered = sorted(runs, key=lambda run: (run.record.created, run.id))
    last = {entry.machine.key: entry.record.created for entry in ordered}
    tables = [_table(entries) for entries in grouped((subject_key(entry.record), entry) for entry in ordered).values()]
    return sorted(tables, key=lambda table: last[table.machine.key], reverse=True)


def newest_rollouts(runs: Iterable[StoredPipeline]) -> tuple[StoredPipeline, ...]:
    """Return the newest rollout of each mix of each subject on each machine; `runs` are the oldest first."""
    return tuple({(subject_key(entry.record), str(entry.record.mix)): entry for entry in runs}.values())


def sustained_tables(runs: Iterable[StoredPipeline]) -> list[list[StoredPipeline]]:
    """Return the newest sustained run of each mix, by subject, machine, and rate, pace and buffer of the viewer,
    cold ones apart."""
    found: dict[tuple[object, ...], dict[str, StoredPipeline]] = {}
    for entry in sorted(runs, key=lambda run: (run.record.created, run.id)):
        key = *subject_key(entry.record), entry.record.sustained, entry.record.how == "cold"
        found.setdefault(key, {})[str(entry.record.mix)] = entry
    return [[*entries.values()] for entries in found.values()]


def _table(known: Sequence[StoredPipeline]) -> PipelineTable:
    """Return the table of one subject's records, given in order of time.

    A budget's runs took turns with each other and not with eager: they are rows only where nothing else is current.
    """
    without = [entry for entry in known if entry.record.budget is None]
    here = _deciding(known)
    if any(not differences(entry.record, here) for entry in without):
        known, here = without, _deciding(without)
    entries = list({(str(entry.record.mix), entry.machine.host): entry for entry in known}.values())
    reasons = {entry.id: differences(entry.record, here) for entry in entries}
    stale = named([entry for entry in entries if reasons[entry.id]], known)
    return PipelineTable(
        title=title(here),
        machine=here.machine,
        rows=tuple(named([entry for entry in entries if not reasons[entry.id]], known)),
        stale=tuple(replace(row, stale=reasons[row.entry.id]) for row in stale),
    )


def _deciding(known: Sequence[StoredPipeline]) -> PipelineRecord:
    """Return the record that decides which code and libraries are current."""
    newest = {str(entry.record.mix): entry.record for entry in known}.values()
    return max(newest, key=lambda record: (record.measurement.units is not None, record.created))


def newest_budgets(runs: Iterable[StoredPipeline]) -> list[list[StoredPipeline]]:
    """Return the runs of the newest budget of each subject on each host, unless code or libraries differ since.

    `runs` are the oldest first; the mix that was promised to be the fastest comes first.
    """
    newest = []
    for own in grouped(((subject_key(entry.record), entry.machine.host), entry) for entry in runs).values():
        last = next((entry.record for entry in reversed(own) if entry.record.budget is not None), None)
        if last is not None and last.budget is not None and not differences(last, _deciding(own)):
            newest.append(sorted((entry for entry in own if entry.record.run == last.run), key=promised_ms))
    return newest


def named(entries: Sequence[StoredPipeline], known: Sequence[StoredPipeline] = ()) -> list[MixRow]:
    """Return rows with distinct names, each compared with its run's baseline: ok ones, the fastest first, then others.

    The baseline may be one of the `known` records that is not a row because a later run has replaced it. The newest mix
    of a role has the role's name; earlier ones have their time added.
    """
    newest = {_role(entry): entry.id for entry in sorted(entries, key=lambda entry: entry.record.created)}
    names, typed = [], dict[object, str]()
    for entry in entries:
        role, plain = entry.record.role, replace(entry.record.mix, schedule="")
        name = role or typed.setdefault((entry.record.run, str(plain)), f"mix {letter(len(typed))}")
        known_as = f"{name} {entry.record.mix.schedule}".rstrip()
        names.append(known_as if not role or newest[_role(entry)] == entry.id else _dated(entry.record))
    name_of = {entry.id: name for entry, name in zip(entries, names, strict=True)}
    baselines: dict[str, tuple[str, PipelineRecord]] = {}
    for entry in known or entries:
        if _role(entry) == ("eager", "") or entry.record.run not in baselines:
            baselines[entry.record.run] = name_of.get(entry.id, _dated(entry.record)), entry.record
    rows = []
    for entry in entries:
        against, baseline = baselines[entry.record.run]
        rows.append(MixRow(entry, name_of[entry.id], gain(baseline, entry.record), against))
    return sorted(rows, key=_rank)


def _role(entry: StoredPipeline) -> tuple[str, str]:
    return entry.record.role, entry.record.mix.schedule


def _rank(row: MixRow) -> tuple[bool, float]:
    found = row.figures
    return row.record.status != "ok", found.ms_a_frame if found is not None else inf


def _dated(record: PipelineRecord) -> str:
    return f"{record.role or record.mix} of {record.created[:19].replace('T', ' ')}"


def letter(place: int) -> str:
    """Return the name of the mix at a place: a letter, or a number after the 26th."""
    return ascii_uppercase[place] if place < len(ascii_uppercase) else str(place + 1)


def gain(baseline: PipelineRecord, record: PipelineRecord) -> PairRatio | None:
    """Return the comparison with the baseline; None for the baseline itself, or if one of the two is not ok."""
    if record is baseline or not (baseline.status == record.status == "ok"):
        return None
    return before_after(baseline, record)


def by_run(runs: Iterable[StoredPipeline]) -> list[list[StoredPipeline]]:
    """Return the records grouped by subject and run, keeping their order."""
    return [*grouped(((subject_key(entry.record), entry.record.run), entry) for entry in runs).values()]
