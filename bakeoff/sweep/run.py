"""From a plan to records: judge first, then one worker process per variant, each ending in exactly one record."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bakeoff.machine import build_cache, host, paths
from bakeoff.machine.files import digest, write_atomically
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Entry, Plan, reference_folder
from bakeoff.process.supervisor import Outcome
from bakeoff.record.representative import representative
from bakeoff.record.schema import Measurement, Record
from bakeoff.record.store import Stored, StoredComparison, load_all, now, save
from bakeoff.sweep.compare import race
from bakeoff.sweep.progress import Progress
from bakeoff.sweep.row import Session, begin, device_lock, judge, make_record, measure

Key = tuple[str, int, int]
"""A variant, which of its builds, and which of that build's processes."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a sweep leaves behind."""

    sweep: str
    stored: tuple[Stored, ...]
    interrupted: tuple[str, ...]
    """Variants that were not run to an end: `--resume` runs them."""
    finals: tuple[StoredComparison, ...] = ()
    """The two best rows of each subject, measured against each other."""


@dataclass(frozen=True, slots=True)
class _State:
    """What `--resume` needs, kept in the cache folder until a sweep is complete."""

    sweep: str
    key: str
    runs: str
    component: str
    finished: bool


def run_sweep(plan: Plan, runs: Path, note: str, resume: bool, progress: Progress) -> Done:
    """Run every entry of `plan` that has no record yet, then a final between the two best rows of each subject.

    Of a variant that was built several times, the best build's cache folder becomes the usual one in the end; the other
    builds' folders are left for `bakeoff cache clear`. Ctrl-C ends it cleanly: what is done is kept, the running worker
    is dead, the rest is in `interrupted`. Raises BakeoffError before anything is measured when records cannot be
    written or the weights' file is wrong.
    """
    paths.ensure_writable(runs / "records", "records")
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    load = host.load_average()
    interrupted = False
    finals: list[StoredComparison] = []
    with device_lock(cache, plan.entries[0].subject.device if plan.entries else "cpu", progress):
        # Read now: the sweep that was waited for may have been this one, resumed twice.
        state, stored = _continue(plan, runs, cache) if resume else (_begin(plan, runs, cache), {})
        if load > host.usable_cores() / 2:
            progress.say(f"This host is busy (load {load:.1f}): numbers will say so.")
        try:
            session = begin(plan, state.sweep, note, cache, load, progress)
            for key, record in _run(session, set(stored)):
                stored[key] = Stored(save(runs, record), record)
                progress.finish(record.status, _line(record))  # what is said to be finished is kept
            finals = [*_finals(session, stored, runs)] if plan.request.final_s else []
            _keep_best_builds(plan, stored, progress)
        except KeyboardInterrupt:
            interrupted = True
    left = tuple(plan.label(entry) for entry in plan.entries if entry.key not in stored)
    if not left and not interrupted:
        _save_state(cache, replace(state, finished=True))
    if interrupted and not left:
        left = ("the final between the two best rows",)
    order = {entry.key: index for index, entry in enumerate(plan.entries)}
    rows = tuple(stored[key] for key in sorted(stored, key=lambda key: order[key]))
    return Done(state.sweep, rows, left, tuple(finals))


def _run(session: Session, done: set[Key]) -> Iterator[tuple[Key, Record]]:
    """Records of the entries not in `done`, in order, a judge being made when the first worker needs it.

    Judges are known by their folders: when somebody edits a component meanwhile, the rows that follow get a new one.
    """
    plan, progress = session.plan, session.progress
    judged: dict[Path, Outcome] = {}
    for position, entry in enumerate(plan.entries, 1):
        if entry.key in done:
            continue
        progress.start(position, len(plan.entries), plan.label(entry))
        if entry.settled is not None:
            outcome = Outcome("result", value=Measurement(*entry.settled))
        else:
            folder = reference_folder(entry, plan.component)
            if folder not in judged:
                judged[folder] = judge(session, entry, folder)
            outcome = judged[folder]
            if outcome.kind == "result":
                if entry.builds > 1 and entry.process == 1:
                    build_cache.begin_anew(entry.cache_folder)
                outcome = measure(session, entry)
        yield entry.key, make_record(session, entry, outcome)


def _finals(session: Session, stored: Mapping[Key, Stored], runs: Path) -> Iterator[StoredComparison]:
    """Measure the two best rows of each subject against each other, unless that was done before an interruption."""
    known = [entry for entry in load_all(runs).comparisons if entry.comparison.sweep == session.sweep]
    subjects = dict.fromkeys(entry.subject for entry in session.plan.entries)
    for subject in subjects:
        of_subject = [entry for entry in session.plan.entries if entry.subject == subject]
        before = [entry for entry in known if entry.comparison.a.variant.subject == of_subject[0].variant.subject]
        if before:
            yield before[0]
            continue
        best = _two_best(of_subject, stored)
        if len(best) < 2:
            continue
        session.progress.start(
            0,
            0,
            f"final: {best[0].variant.backend} {best[0].variant.dtype} against "
            f"{best[1].variant.backend} {best[1].variant.dtype}",
        )
        try:
            comparison = race(session, best[0], best[1])
        except BakeoffError as error:
            session.progress.finish("no final", str(error))
            continue
        kept = StoredComparison(save(runs, comparison), comparison)
        session.progress.finish("ok", f"{len(comparison.rounds)} rounds, {comparison.how}")
        yield kept


def _two_best(entries: Sequence[Entry], stored: Mapping[Key, Stored]) -> list[Entry]:
    """Of the variants whose rows are ok, those with the lowest medians, each with its best build."""
    medians = []
    for entry in _rows(entries, stored):
        record = stored[entry.key].record
        if record.status == "ok" and record.latency is not None:
            medians.append((record.latency.median_ms, entry))
    ranked = sorted(medians, key=lambda pair: pair[0])
    return [entry for _, entry in ranked[:2]]


def _rows(entries: Sequence[Entry], stored: Mapping[Key, Stored]) -> list[Entry]:
    """Of each variant the try that stands for it."""
    tries: dict[str, list[Entry]] = {}
    for entry in entries:
        tries.setdefault(str(entry.variant), []).append(entry)
    by_key = {entry.key: entry for entry in entries}
    return [by_key[_key(representative([stored[entry.key] for entry in each]).record)] for each in tries.values()]


def _keep_best_builds(plan: Plan, stored: Mapping[Key, Stored], progress: Progress) -> None:
    """Of each variant that was built several times, all of them ok, make the best build's folder the usual one.

    What keeps that from being done is said: the next sweep has a cold build more, and nothing else is lost.
    """
    for entry in _rows(plan.entries, stored):
        if entry.builds > 1 and stored[entry.key].record.status == "ok":
            try:
                build_cache.take_usual_place(entry.cache_folder)
            except BakeoffError as error:
                progress.say(str(error))


def _key(record: Record) -> Key:
    return str(record.variant), record.build_number, record.process


def _line(record: Record) -> str:
    figures = record.latency
    if figures is None:
        return record.measurement.reason
    text = f"{figures.median_ms:.2f} ms [{figures.low_ms:.2f}, {figures.high_ms:.2f}]"
    return f"{text}  {record.measurement.reason}".rstrip()


def _begin(plan: Plan, runs: Path, cache: Path) -> _State:
    created = now()
    sweep = f"{created[:19].replace('-', '').replace(':', '')}-{digest([plan.key, created, os.getpid()])[:6]}"
    state = _State(sweep, plan.key, str(runs.resolve()), plan.component.name, finished=False)
    _save_state(cache, state)
    return state


def _save_state(cache: Path, state: _State) -> None:
    write_atomically(cache / "sweeps" / f"{state.sweep}.json", msgspec.json.encode(state))


def _continue(plan: Plan, runs: Path, cache: Path) -> tuple[_State, dict[Key, Stored]]:
    """The newest unfinished sweep of the same plan, and its records so far."""
    states = []
    for path in sorted((cache / "sweeps").glob("*.json"), reverse=True):
        with contextlib.suppress(msgspec.MsgspecError, OSError):
            states.append(msgspec.json.decode(path.read_bytes(), type=_State))
    unfinished = [state for state in states if not state.finished and state.runs == str(runs.resolve())]
    for state in unfinished:
        if state.key == plan.key:
            kept = [entry for entry in load_all(runs).current if entry.record.sweep == state.sweep]
            return state, {_key(entry.record): entry for entry in kept}
    if any(state.component == plan.component.name for state in unfinished):
        raise BakeoffError(
            "--resume: the unfinished sweep had another plan, host, version or commit; run without --resume"
        )
    raise BakeoffError(f"--resume: no unfinished sweep of {plan.component.name} writes to {runs}; run without --resume")
