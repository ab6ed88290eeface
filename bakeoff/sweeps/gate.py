"""Measures a gate: a candidate in one race with its baseline, or against records of the same machine."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bakeoff.machine import host, paths
from bakeoff.machine.files import digest
from bakeoff.machine.identity import this_machine
from bakeoff.machine.locks import device_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Row
from bakeoff.record.comparable import same_code
from bakeoff.record.gate import SAME_PAIRS, GatedRow, change_of_pairs, change_of_records, pairs_needed, size_of
from bakeoff.record.schema import Comparison, Record, Status
from bakeoff.record.store import Records, now
from bakeoff.record.verdict import ratios_of_pairs
from bakeoff.sweeps.compare import Entrant, SideFailedError, race_of
from bakeoff.sweeps.context import WeightsMemory, make_context, with_works
from bakeoff.sweeps.progress import Progress
from bakeoff.sweeps.run import run_sweep

_Name = tuple[str, int]
"""Variant and batch of a row."""
_NO_ROW = "the baseline has no such row"


class _Known(NamedTuple):
    """What the race of a side with itself shows."""

    status: Status | None
    """None without such a row."""
    why: str
    same: tuple[float, ...] = ()
    """Logarithms of the pairs' ratios; empty if the side is not ok."""


def gate_live(
    plans: Sequence[tuple[Plan, Plan]],
    runs: Path,
    note: str,
    progress: Progress,
    stated: Callable[[str, float, int], None],
    find: float,
) -> list[GatedRow]:
    """Race each row of the candidates' plans with the same row of its baseline's plan, and return the rows of the gate.

    Each baseline's row is first raced with itself; then `stated` receives the name of each such row, the smallest ratio
    that will be found, and how many pairs it takes to exclude a slowdown by `find`, a share of the time. A row that
    only the baseline has fails. Raises BakeoffError if no worker can be started, or if a request is wrong.
    """
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    device = plans[0][0].rows[0].subject.device
    with closing(WeightsMemory()) as weights, device_lock(device, progress.say, cache) as idle_s:
        load = host.present_load(idle_s)

        def entrants(plan: Plan) -> dict[_Name, Entrant]:
            sweep = f"gate-{digest([plan.key, now()])[:8]}"
            context = with_works(make_context(plan, sweep, note, runs, cache, load, progress))
            return {_name(row): Entrant(replace(context, weights=weights), row) for row in plan.rows}

        sides: list[tuple[_Name, Entrant, Entrant | None]] = []
        gone: list[GatedRow] = []
        for candidate, baseline in plans:
            of_baseline, of_candidate = entrants(baseline), entrants(candidate)
            sides += [(name, each, of_baseline.get(name)) for name, each in of_candidate.items()]
            gone += [
                gone_row(name, "the candidate has no such row") for name in of_baseline if name not in of_candidate
            ]
        known = [_of_baseline(candidate, baseline, progress) for _, candidate, baseline in sides]
        rows = sum(bool(each.same) for each in known)
        for (name, _, _), each in zip(sides, known, strict=True):
            if each.same:
                size = float(np.exp(size_of(each.same, rows)))
                stated(_row(name).name, size, pairs_needed(each.same, rows, find))
        raced = [_raced(*each, before, rows, find, progress) for each, before in zip(sides, known, strict=True)]
        return raced + gone


def gone_row(name: _Name, why: str) -> GatedRow:
    """Return the row of a baseline that the candidate does not have."""
    return GatedRow(*name, None, "ok", why)


def _of_baseline(candidate: Entrant, baseline: Entrant | None, progress: Progress) -> _Known:
    if baseline is None:
        return _Known(None, _NO_ROW)
    inputs = [
        side.context.plan.component.workload(
            side.context.plan.component.preset(side.row.subject.preset).config,
            side.row.subject.workload,
            side.row.subject.batch,
        ).inputs
        for side in (candidate, baseline)
    ]
    if inputs[0] != inputs[1]:
        return _Known(None, "its inputs are others than the candidate's")
    return _with_itself(baseline, progress)


def _raced(
    name: _Name,
    candidate: Entrant,
    baseline: Entrant | None,
    known: _Known,
    rows: int,
    find: float,
    progress: Progress,
) -> GatedRow:
    """Race a candidate with its baseline until the change is known; a candidate without one is only checked."""
    if baseline is None or not known.same:
        alone = _with_itself(candidate, progress, 1)
        why = "; ".join(filter(None, [alone.why, f"baseline: {known.why}" if known.why != alone.why else ""]))
        return _row(name, alone.status or "ok", known.status, why)

    def decided(so_far: Comparison) -> bool:
        is_ok = all(side.status == "ok" for side in so_far.sides)
        return not is_ok or change_of_pairs(known.same, _logs(so_far), rows, find) is not None

    try:
        found = _race(baseline, candidate, progress, decided)
    except SideFailedError as error:
        if error.row is baseline.row:
            return _raced(name, candidate, baseline, _Known(error.status, error.why), rows, find, progress)
        return _row(name, error.status, known.status, error.why)
    wrong = next((side for side in (found.b, found.a) if side.status != "ok"), None)
    if wrong is not None:
        return _row(name, found.b.status, found.a.status, wrong.measurement.reason)
    change, same, pairs = change_of_pairs(known.same, _logs(found), rows, find), known.same, _logs(found)
    made = _row(name, "ok", "ok", "" if found.how == "interleaved" else "measured in turn: memory is short")
    return replace(made, change=change, same=tuple(np.exp(same).tolist()), pairs=tuple(np.exp(pairs).tolist()))


def _with_itself(side: Entrant, progress: Progress, pairs: int = SAME_PAIRS) -> _Known:
    try:
        found = _race(side, side, progress, lambda so_far: len(_logs(so_far)) >= pairs)
    except SideFailedError as error:
        return _Known(error.status, error.why)
    shown = next((each for each in found.sides if each.status != "ok"), found.a)
    return _Known(shown.status, shown.measurement.reason, _logs(found) if shown.status == "ok" else ())


def _race(a: Entrant, b: Entrant, progress: Progress, decided: Callable[[Comparison], bool]) -> Comparison:
    what = "the baseline with itself" if a is b else "candidate and baseline"
    running = progress.start(0, 0, f"{_row(_name(a.row)).name}: {what}")
    try:
        found = race_of((a, b), running, secrets.randbits(32), decided)
    except SideFailedError as error:
        running.finish(error.status, error.why)
        raise
    running.finish("ok", f"{counted(len(_logs(found)), 'pair')} of processes")
    return found


def _logs(found: Comparison) -> tuple[float, ...]:
    return tuple(np.log(ratios_of_pairs(found.rounds, 0, 1)).tolist())


def gate_records(
    plans: Sequence[Plan], baseline: Records, runs: Path, note: str, progress: Progress, find: float
) -> list[GatedRow]:
    """Sweep the candidates' plans, which have several processes a row, and compare them with the baseline's records of
    this machine: a model of the user's with its former self.

    Raises BakeoffError before anything is measured if the baseline has none of the rows, and KeyboardInterrupt if the
    sweep is interrupted.
    """
    rows = {_name(row) for plan in plans for row in plan.rows}
    if rows.isdisjoint((str(stored.record.variant), stored.record.batch) for stored in baseline.current):
        raise BakeoffError("the baseline has no record of this suite's rows; sweep the suite there first", "no-record")
    measured: dict[_Name, list[Record]] = {}
    for plan in plans:
        done = run_sweep(plan, runs, note, False, progress)
        if done.interrupted:
            raise KeyboardInterrupt
        for stored in done.stored:
            measured.setdefault((str(stored.record.variant), stored.record.batch), []).append(stored.record)
    known = {name: _comparable(records[0], baseline) for name, records in measured.items()}
    count = sum(bool(_medians(records)) and bool(_medians(known[name][0])) for name, records in measured.items())
    return [_against(name, records, *known[name], count, find) for name, records in measured.items()]


def _comparable(candidate: Record, baseline: Records) -> tuple[list[Record], str]:
    """Return the baseline's newest records of a row, all of one code, and "" or why their times are not compared."""
    machine = this_machine(candidate.variant.device)
    same = [
        stored.record
        for stored in baseline.current
        if (stored.record.variant, stored.record.batch) == (candidate.variant, candidate.batch)
    ]
    here = [record for record in same if record.machine.host == machine.host]
    if not here:
        return [], "the baseline has records of other machines or hosts alone" if same else _NO_ROW
    newest = here[-1]
    alike = [record for record in here if same_code(record, newest)]
    if others := _differences(newest, candidate):
        return alike[-1:], f"the baseline's record is of {others}"
    if newest.source.instrument != candidate.source.instrument:
        return alike[-1:], "the baseline's record was measured by another version of this lab"
    return [record for record in alike if record.config_id == newest.config_id], ""


def _differences(a: Record, b: Record) -> str:
    """Return what keeps two records from being of one row before and after a change of its model; "": nothing."""
    brought = set(a.config) == set(b.config) == {"content", "source"}  # of a brought model: they are the question
    facts = {
        "another configuration": (a.config, b.config) if not brought else (),
        "other seeds": ((a.weight_seed, a.input_seed), (b.weight_seed, b.input_seed)),
        "other weights": (a.checkpoint, b.checkpoint) if not brought else (),
        "another number of threads": (a.threads, b.threads),
        "other inputs": tuple(one.measurement.input_copy and one.measurement.input_copy.bytes for one in (a, b)),
    }
    return ", ".join(what for what, both in facts.items() if both and both[0] != both[1])


def _against(name: _Name, candidate: list[Record], known: list[Record], why: str, rows: int, find: float) -> GatedRow:
    steady = [each for each in candidate if each.status == "ok"]
    failed = [each for each in candidate if each.status not in ("ok", "unstable")]
    unstable = [each for each in candidate if each.status == "unstable"]
    shown = (failed or (steady if len(steady) > len(unstable) else unstable))[0]
    made = _row(name, shown.status, known[-1].status if known else None, shown.measurement.reason or why)
    made = replace(made, live=False)
    if why or shown.status != "ok":
        return made
    change = change_of_records(_medians(steady), _medians(known), rows, find)
    return replace(made, change=change, reason="" if change else "the baseline has no steady record of this row")


def _medians(records: Sequence[Record]) -> list[float]:
    found = [record.latency for record in records if record.status == "ok"]
    return [float(np.log(latency.median_ms)) for latency in found if latency is not None]


def _name(row: Row) -> _Name:
    return str(row.variant), row.subject.batch


def _row(name: _Name, candidate: Status = "ok", baseline: Status | None = None, reason: str = "") -> GatedRow:
    return GatedRow(*name, candidate, baseline, reason)
