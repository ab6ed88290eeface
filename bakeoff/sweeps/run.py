"""Runs a plan: measures the rows in random order, shows the ranking, and runs the finals.

With a time limit, the rows that are likely to tell most come first, as many as fit.
"""

import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from bakeoff.plan.costs import FINAL_S, Costs, finals_of
from bakeoff.plan.history import by_priority, known_history
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Key, Row
from bakeoff.record.objective import LATENCY, Objective
from bakeoff.record.schema import MEASURED, Record
from bakeoff.record.store import Stored, StoredComparison
from bakeoff.sweeps.assemble import against_floor
from bakeoff.sweeps.context import (
    SweepContext,
    WeightsMemory,
    make_context,
    with_ceilings,
    with_ceilings_again,
    with_works,
)
from bakeoff.sweeps.finals import finals_ahead, run_finals, undecided
from bakeoff.sweeps.progress import Progress, Running
from bakeoff.sweeps.resume import RowRecords, measured_of, open_run
from bakeoff.sweeps.time_limit import OutOfTime, TimeIsUpError, TimeLimit
from bakeoff.sweeps.wave import Try, next_wave, time_wave


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Result of a sweep."""

    sweep: str
    stored: tuple[Stored, ...]
    interrupted: tuple[str, ...]
    """Labels of the rows that were not completed because of an interruption; `--resume` runs them."""
    finals: tuple[StoredComparison, ...] = ()
    """Comparisons of the two best rows of each subject."""
    objective: Objective = LATENCY
    """Objective by which the rows are ranked."""
    out_of_time: OutOfTime | None = None
    """Rows and finals left out because the time was up; `--resume` runs them."""
    used_s: float = 0.0
    """Seconds that it took, without waiting for other sweeps."""


def run_sweep(
    plan: Plan,
    runs: Path,
    note: str,
    resume: bool,
    progress: Progress,
    started: float | None = None,
    rows: Sequence[Row] | None = None,
) -> SweepResult:
    """Measure every row of `plan` that has no record yet, show the ranking, and run the finals.

    With `rows`, only these rows of the plan are timed, in their order and even if they have records, as a part of the
    newest sweep of the plan; a first one is begun.

    Ceilings that are not known are measured first.

    Ctrl-C ends the sweep cleanly: measured rows are stored, the running worker is killed, and the remaining rows are in
    `interrupted`. A time limit counts from `started` by time.monotonic() (None: from now), without waiting for other
    sweeps. When it and its grace period are over, the sweep ends as after Ctrl-C, and the remaining rows are in
    `out_of_time`. Raises BakeoffError before anything is measured if
    records cannot be written or the weights file is wrong.
    """
    asked = time.monotonic()
    device = plan.rows[0].subject.device if plan.rows else "cpu"
    measures = any(row.never_runs is None for row in plan.rows)
    with (
        open_run(plan.key, plan.component.name, device, measures, runs, resume, progress, rows is not None) as opening,
        closing(WeightsMemory()) as weights,
    ):
        state, cache = opening.state, opening.cache
        limit = TimeLimit(plan, Costs(known_history(runs)), (started or asked) + opening.waited_s)
        seed = None if limit.seconds or rows is not None else state.order_seed
        context = make_context(plan, state.sweep, note, runs, cache, opening.load, progress, seed)
        context = context if rows is None else replace(context, order=tuple(rows))
        if limit.seconds:
            context = replace(context, order=by_priority(plan.rows, limit.costs.history, plan.request.objective.goal))
        own = cache / "changed" / state.name
        context = replace(context, weights=weights, own=own, own_seed=state.order_seed)
        measured = measured_of(state, runs, cache)
        for row in rows or ():
            measured.stored.pop(row.key, None)
        sweep = _Sweep(context, measured, limit)
        interrupted = False
        try:
            with limit.enforced():
                sweep.time_rows()
                if rows is None:
                    sweep.repeat_baselines()
                sweep.run_finals()
        except TimeIsUpError:
            progress.say("The time is up; what was running is stopped.")
        except KeyboardInterrupt:
            interrupted = True
    done = sweep.done(interrupted)
    if not done.interrupted and done.out_of_time is None:
        opening.finish()
        if rows is None:
            shutil.rmtree(own, ignore_errors=True)
    return done


_TURN_S = 15.0
"""Seconds for which a row is timed, before any was."""


def _turn_s(record: Record) -> float:
    """Return the seconds of a row's phases after it was built."""
    phases = list(record.phase_s)
    after = phases[phases.index("turn") + 1 :] if "turn" in phases else []
    return sum(record.phase_s[phase] for phase in after)


@dataclass(slots=True)
class _Sweep:
    """A sweep while it runs."""

    context: SweepContext
    measured: RowRecords
    limit: TimeLimit
    finals: list[StoredComparison] = field(default_factory=list)
    _before: frozenset[Key] = field(init=False)
    _expected_s: dict[Key, float] = field(init=False)

    def __post_init__(self) -> None:
        self._before = frozenset(self.measured.stored)
        self._expected_s = {row.key: self.limit.costs.of(row).seconds for row in self.context.order}

    def time_rows(self) -> None:
        """Measure the rows that have no record from before an interruption, wave by wave."""
        known = self.measured.stored
        for entry in known.values():
            self.context.progress.result(entry.record)
        self._expect()
        self.context.begun.extend(sorted(known, key=lambda key: known[key].record.created))
        self.context = with_ceilings(with_works(self.context), self.measured.runs)
        while fitting := self._fitting():
            wave = next_wave(fitting)
            self.context.begun.extend(row.key for row in wave)
            tries = [Try(row, self._start(row)) for row in wave]
            time_wave(self.context, tries, self._keep, self._patience_s)

    def _patience_s(self, built: int) -> float:
        """Return for how many seconds builds may go on while so many rows are built and wait to be timed."""
        turns = [_turn_s(entry.record) for entry in self.measured.stored.values() if entry.record.status in MEASURED]
        return self.limit.left_s - built * max(turns, default=_TURN_S) if built else inf

    def repeat_baselines(self) -> None:
        """Time baselines that were unstable once more, before anything is ranked: rows are compared with them."""
        for row in self.context.order:
            before = self.measured.stored.get(row.key)
            unstable = row.baseline and before is not None and before.record.status == "unstable"
            fits = self._expected_s[row.key] <= self.limit.left_s
            if unstable and fits and row.key not in self._before:
                self.context.progress.say(f"{row.label} was unstable and is timed again.")
                time_wave(self.context, [Try(row, self._start(row))], self._keep)

    def _fitting(self) -> Sequence[Row]:
        """Return the rows still to be timed, in order; with a time limit only those that fit."""
        known = self.measured.stored
        begun = known.keys() | set(self.context.begun)  # one whose build was stopped is not begun again
        left = [row for row in self.context.order if row.key not in begun]
        if not left or not self.limit.seconds:
            return left
        finals = finals_ahead(self.context, known, left, self.measured.runs)
        return self.limit.costs.fitting(left, self.limit.left_s, finals)

    def _start(self, row: Row) -> Running:
        return self.context.progress.start(self.context.position(row), len(self.context.plan.rows), row.label)

    def _keep(self, record: Record, running: Running) -> None:
        """Store the record of a row whose turn has ended; ceilings that it exceeds are measured again before."""
        self.context = with_ceilings_again(self.context, self.measured.runs, record)
        record = against_floor(record, self.context.ceilings)
        self.measured.keep(record)
        running.finish()
        self._expect()
        self.context.progress.result(record)

    def _expect(self) -> None:
        timed, rows = self.measured.stored.keys(), self.context.order
        finals = finals_of(rows) if self.context.plan.request.final_s else ()
        left_s = sum(self._expected_s[row.key] for row in rows if row.key not in timed) + FINAL_S * len(finals)
        self.context.progress.expect(max(0.0, min(left_s, self.limit.left_s)), self.limit.left_s)

    def run_finals(self) -> None:
        """Show the ranking, and run the finals."""
        if self.context.plan.request.final_s and len(self.measured.stored) > 1:
            self.context.progress.ranked("The rows are timed. Still to come: the final.")
            self.finals += run_finals(self.context, self.measured.stored, self.measured.runs, self.limit)

    def done(self, interrupted: bool) -> SweepResult:
        """Return the result of the sweep."""
        plan, stored, limit = self.context.plan, self.measured.stored, self.limit
        out_of_time = None
        if limit.seconds and not interrupted:
            pairs = undecided(plan, stored, limit.finals_ended)
            out_of_time = limit.left_out(stored, self.context.begun, tuple(pairs))
        left = tuple(row.label for row in plan.rows if row.key not in stored)
        return SweepResult(
            self.context.sweep,
            tuple(stored[row.key] for row in plan.rows if row.key in stored),
            (left or ("what comes after the ranking",)) if interrupted else (),
            tuple(self.finals),
            plan.request.objective,
            out_of_time,
            limit.used_s,
        )
