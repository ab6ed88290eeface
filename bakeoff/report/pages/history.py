"""The optimization history: a line on the result of each sweep and run, and their details folded below."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from urllib.parse import quote

from bakeoff.machine.floors import Ceiling
from bakeoff.machine.identity import Machine, same_machine
from bakeoff.models.words import counted
from bakeoff.record.comparable import differences, subject_key
from bakeoff.record.floor import best_ceilings
from bakeoff.record.frames import figures
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored, StoredComparison, StoredPipeline, is_run
from bakeoff.report.built import built_table, only_built
from bakeoff.report.columns import COLUMNS, TableRow, table_rows
from bakeoff.report.document import Details, Document, Link, Listed, Section, Text, blocks, listed
from bakeoff.report.format import milliseconds, minute, origin
from bakeoff.report.groups import (
    USUAL,
    baselines,
    by_sweep,
    drift,
    groups,
    name_of,
    newest,
    speedup,
    stale_reasons,
    stated_over,
    title,
)
from bakeoff.report.links import Cited, cited_by, folders_of, links_from
from bakeoff.report.notes import overlapped_text, policies, selftest_text, spread_lines
from bakeoff.report.pages import deadline, pipelines, results, rollout, sweep
from bakeoff.report.pipelines import by_run, named
from bakeoff.report.recommendation import decision, deployment, gain_in
from bakeoff.report.wording import goal_text, sentence

NAME = "OPTIMIZATION_HISTORY.md"
_KEYS: Final = (
    "name", "status", "mean_ms", "min_ms", "max_ms", "std_ms", "copy_ms", "floor", "of_floor", "peak_mib",
    "mean_calls_per_s", "items_per_s", "video_fps", "vs_eager", "vs_eager_fp32", "sqnr_db", "lossless", "build",
    "limits", "record",
)  # fmt: skip
_INTRODUCTION: Final = (
    "Generated from the records by `make history` (published ones by `make publish`); do not edit. Milliseconds are of "
    "the latency clock: one call, synchronised. A line says what was best in a sweep, and in the sweep of the same "
    "subject before; they were not measured together, and sweeps drift."
)


def of_all(records: Records) -> Document:
    """Return the page of all machines: links to the pages of each, and the lines of its history."""
    folders = folders_of(records)
    made = [_overview(records, one, folders[one.key]) for one in records.machines()]
    return Document("Optimization history", blocks(Text(_INTRODUCTION if made else "No records yet."), *made))


def of_machine(records: Records, machine: Machine) -> Document:
    """Return the page of one machine, for its folder: the lines, then each sweep and run, by component and subject."""
    own, cited = records.of_machines([machine.key]), cited_by(links_from(folders_of(records)[machine.key]))
    superseded = listed(Text(reason, entry.id) for entry, reason in own.superseded)
    return Document(
        f"Optimization history of {_named(machine)}",
        blocks(
            Text(_INTRODUCTION),
            Section("Newest first", (lines,)) if (lines := _lines(own, records)) is not None else None,
            *_components(own, cited),
            pipelines.every_run(own.pipelines, cited),
            rollout.every_run(own.rollouts, cited),
            deadline.every_run(own.sustained, cited),
            Section("Superseded", (superseded,)) if superseded is not None else None,
        ),
    )


def _named(machine: Machine) -> str:
    """Return a machine's name with its tag, since another one may have the same name."""
    return f"{machine.name} ({machine.tag})"


def _overview(records: Records, machine: Machine, folder: str) -> Section:
    """Return a section on a machine: its processor, how much it has measured, links to its pages, and the lines of its
    history."""
    own = records.of_machines([machine.key])
    runs, stepping = len(own.ran), own.current[-1].record.host.cpu_stepping if own.current else ""
    counts = [counted(len(own.current), "record"), f"{runs} of pipelines" if runs else ""]
    last = max((entry.record.created for entry in own.current), default="")
    counts += [f"the last at {minute(last)} UTC"] if last else []
    counts += [f"processor of family, model and stepping {stepping}"] if stepping else []
    names = {"results": results.NAME, "history": NAME}
    pages = tuple(Link(f"{each} of {machine.tag}", f"{quote(folder)}/{name}") for each, name in names.items())
    return Section(_named(machine), blocks(Text(", ".join(filter(None, counts)), links=pages), _lines(own, records)))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Result of a sweep of a subject, a run of a pipeline, or a comparison."""

    created: str
    key: object
    """Equal for outcomes that may be compared with each other."""
    title: str
    best: Stored | StoredPipeline | None = None
    name: str = "nothing is ok"
    """Name of the best row or mix."""
    figure: str = ""
    said: Sequence[str] = ()


def _lines(own: Records, records: Records) -> Listed | None:
    """List the results of sweeps, runs and comparisons, with the best of the one before each, the newest first.

    The first of a subject is told with what `records` have of its host on another processor, such as before a virtual
    machine moved. If several subjects have one name, the whole title is given.
    """
    ids, keys = ({getattr(host, name) for host in own.hosts()} for name in ("id", "key"))
    moved = _outcomes(records.of_machines({host.key for host in records.hosts() if host.id in ids} - keys))
    elsewhere = [one for one in moved if one.best is not None and one.best.machine.id in ids]
    found = _outcomes(own)
    known = Counter(map(_short, {one.title for one in found}))
    before: dict[object, _Outcome] = {}
    lines = []
    for one in sorted([*found, *elsewhere], key=lambda one: one.created):
        said = [f"{one.name} {one.figure}".rstrip(), *one.said]
        last = before.get(one.key) or before.get(_anywhere(one.key))
        if last is not None and last.best is not None and one.best is not None:
            name = "" if last.name == one.name else f"{last.name} "
            said.append(f"was {name}{last.figure} {_changed(last.best, one.best)}".rstrip())
        heading = _short(one.title) if known[_short(one.title)] == 1 else one.title
        if one not in elsewhere:
            lines.append(f"{minute(one.created)} {heading}: {', '.join(said)}")
        before |= {one.key: one, _anywhere(one.key): one} if one.best is not None else {}
    return listed(reversed(lines))


def _anywhere(key: object) -> object:
    """Return the key of an outcome without its machine."""
    return (key[0], *key[2:]) if isinstance(key, tuple) else key


def _outcomes(own: Records) -> list[_Outcome]:
    found = [_of_sweep(rows, own.comparisons) for group in groups(own.current) for rows in by_sweep(group)]
    found += [_of_run(entries) for entries in by_run(own.pipelines)]
    found += [_of_sustained(entry) for entry in own.sustained]
    apart = [entry.record for entry in own.comparisons if not entry.record.sweep]
    return found + [_Outcome(one.created, None, title(one.a, machine=False), None, sentence(one)) for one in apart]


def _short(title: str) -> str:
    """Return the subject in a title."""
    return title.partition(" ")[0].rstrip(",")


def _changed(before: Stored | StoredPipeline, now: Stored | StoredPipeline) -> str:
    """Describe how the machine, code or libraries of the earlier result differ; "" if they do not."""
    if not same_machine(before.machine, now.machine):
        processors = [(host.cpu, host.cpu_stepping, host.all_flags) for host in (before.record.host, now.record.host)]
        return "on another processor" if processors[0] != processors[1] else "on a machine with other parts"
    reason: str | None = ""
    if is_run(before) and is_run(now):
        reason = differences(before.record, now.record)
    elif not is_run(before) and not is_run(now):
        reason = stale_reasons((before, now))[0]
    return (reason or "").removeprefix("measured ")


def _of_sweep(rows: Sequence[Stored], comparisons: Sequence[StoredComparison]) -> _Outcome:
    """Return the outcome of a sweep: the winner of its final, else the best of the rows that are ok."""
    first, kept = rows[0].record, newest(rows)
    decided = decision(kept, _finals(rows, comparisons))
    best, about = decided.winner or next(iter(decided.best), None), (first.created, subject_key(first))
    if best is None:
        targets = only_built(rows)
        return _Outcome(
            *about, title(first, machine=False), None, f"built for {targets}" if targets else "nothing is ok"
        )
    base, goal = stated_over(baselines(kept)), decided.objective.goal
    gain = speedup(best.record, base) if base is not best.record and goal == "latency" else None
    raced = gain_in(decided.final, best.record) if decided.final is not None and goal == "latency" else None
    said = [] if gain is None or base is None else [f"{gain.ratio:.2f}x {name_of(base)}"]
    said += ["no difference to it shown"] if gain is not None and not gain.shown else []
    said = [f"{raced.ratio:.2f}x eager fp32 in the final"] if raced is not None else said
    said += ["faster in a final"] if decided.winner is not None else []
    figure = f"{COLUMNS['median_ms'].text(TableRow(best))} ms"
    figure = figure if goal == "latency" else goal_text(best.record, goal)
    return _Outcome(*about, title(first, machine=False), best, name_of(best.record), figure, said)


def _of_run(entries: Sequence[StoredPipeline]) -> _Outcome:
    """Return the outcome of a pipeline's run: its fastest mix that is ok."""
    first = entries[0].record
    about = first.created, subject_key(first), title(first, machine=False)
    timed = [(row, made) for row in named(entries) if row.record.status == "ok" and (made := figures(row.record))]
    if not timed:
        return _Outcome(*about)
    best, found = min(timed, key=lambda pair: pair[1].ms_a_frame)
    figure = f"{milliseconds(found.ms_a_frame)} {pipelines.in_words_of(first, 'ms a frame (median)')}"
    typed = {row.name: row.record.mix.variants for row, _ in timed if not row.record.role}
    said = [f"{best.gain.ratio:.2f}x {typed.get(best.against, best.against)}"] if best.gain is not None else []
    return _Outcome(*about, best.entry, best.record.mix.variants, figure, said)


def _of_sustained(entry: StoredPipeline) -> _Outcome:
    """Return the outcome of a sustained run: whether its mix held the rate."""
    record = entry.record
    subject = f"{title(record, machine=False)}, sustained"
    return _Outcome(record.created, None, subject, None, record.mix.variants, deadline.verdict(entry))


def _finals(rows: Sequence[Stored], comparisons: Sequence[StoredComparison]) -> list[StoredComparison]:
    """Return the finals that the rows' own sweep made of their subject."""
    first = rows[0].record
    return [
        entry
        for entry in comparisons
        if entry.record.sweep == first.sweep and subject_key(entry.record.a) == subject_key(first)
    ]


def _components(own: Records, cited: Cited) -> Iterator[Section]:
    """Yield a section for each component and, in it, subject: sweeps, the newest first, then other comparisons."""
    between = drift(own.current, own.current[0].machine) if own.current else USUAL
    subjects: dict[tuple[str, str], tuple[list[Stored], list[StoredComparison]]] = {}
    for entry in own.current:
        subjects.setdefault(_key(entry.record), ([], []))[0].append(entry)
    for compared in own.comparisons:
        subjects.setdefault(_key(compared.record.a), ([], []))[1].append(compared)
    for component, found in groupby(sorted(subjects), key=lambda key: key[0]):
        yield Section(component, tuple(_subject(*subjects[key], own, between, cited) for key in found))


def _key(record: Record) -> tuple[str, str]:
    return record.variant.component, str(subject_key(record))


def _subject(
    rows: Sequence[Stored], compared: Sequence[StoredComparison], own: Records, between: float, cited: Cited
) -> Section:
    first = rows[0].record if rows else compared[0].record.a
    ceilings = best_ceilings(own.current, own.ceilings, first.machine, first.threads)
    config = ", ".join(f"{name} {value}" for name, value in first.config.items())
    parameters = counted(first.parameters, "parameter", form=",")
    apart = [entry for entry in compared if not entry.record.sweep]
    return Section(
        title(first, machine=False),
        blocks(
            Text(f"{parameters}, {first.flops / 1e9:.2f} GFLOP a call. {config}."),
            *(_sweep(each, _finals(each, compared), ceilings, between, cited) for each in reversed(by_sweep(rows))),
            listed((_compared(entry, cited) for entry in apart), "Comparisons"),
        ),
    )


def _compared(entry: StoredComparison, cited: Cited) -> Text:
    made = entry.record
    note = f" ({made.a.note})" if made.a.note else ""
    return Text(f"{minute(made.created)} UTC: {sentence(made)}{note}", links=(cited(entry),))


def _sweep(
    rows: Sequence[Stored],
    finals: Sequence[StoredComparison],
    ceilings: tuple[Ceiling, ...],
    between: float,
    cited: Cited,
) -> Details:
    """Return a sweep, folded: the verdict, a row for each record that could run here, and notes."""
    first, kept = rows[0].record, newest(rows)
    held = sweep.ordered(table_rows(rows, finals, ceilings, best_of=kept))
    versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
    stale = [(row.entry, row.stale) for row in held if row.stale is not None]
    builds, selftests = overlapped_text(rows), (selftest_text(row.record) for row in held)
    return Details(
        origin(first.created, f"sweep {first.sweep}", first.commit, first.dirty),
        blocks(
            *(Text(note, "note") for note in sorted({entry.record.note for entry in rows if entry.record.note})),
            *deployment(kept, finals, between),
            *(Text(f"{sentence(entry.record)}.", "Final", links=(cited(entry),)) for entry in finals),
            sweep.rows_table(held, _KEYS, cited),
            built_table(kept, cited),
            *sweep.cannot_run(rows),
            listed(
                [
                    *policies(row.record for row in held),
                    *sweep.reasons(row.entry for row in held),
                    *filter(None, [builds]),
                    *spread_lines(kept, rows),
                    *selftests,
                ]
            ),
            Text(versions, "versions", "faint"),
            *sweep.stale_rows(stale, cited),
        ),
    )
