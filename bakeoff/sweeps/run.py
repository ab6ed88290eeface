"""From a plan to records: the rows in random order, then the finals; Ctrl-C keeps what is done.

With a budget the rows come in the order of what they are likely to tell, as many as fit.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from bakeoff.machine import build_cache, host, paths
from bakeoff.machine.locks import device_lock
from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.plan.dry_run import estimate
from bakeoff.plan.history import History
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Key, Row
from bakeoff.process.alarm import alarm_waits
from bakeoff.record.objective import LATENCY, Objective
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored, StoredComparison, save
from bakeoff.sweeps.finals import finals_ahead, known_finals, representatives, run_finals, undecided
from bakeoff.sweeps.headers import make_headers
from bakeoff.sweeps.progress import Progress, Running
from bakeoff.sweeps.resume import begin, continue_unfinished, mark_finished
from bakeoff.sweeps.session import Session, WeightsMemory, open_session, with_ceilings, with_ceilings_again, with_works
from bakeoff.sweeps.time_limit import OutOfTime, TimeIsUpError, TimeLimit, open_limit
from bakeoff.sweeps.wave import next_wave, run_wave


@dataclass(frozen=True, slots=True)
class Done:
    """What a sweep leaves behind."""

    sweep: str
    stored: tuple[Stored, ...]
    interrupted: tuple[str, ...]
    """Variants that were not measured to the end: `--resume` runs them."""
    finals: tuple[StoredComparison, ...] = ()
    """The two best rows of each subject, measured against each other."""
    objective: Objective = LATENCY
    """What they are the best by."""
    out_of_time: OutOfTime | None = None
    """What was left out because the budget allowed no more: `--resume` does it."""
    spent_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by what was done, the largest first: their sum is the time since the device's lock was held."""


def run_sweep(
    plan: Plan, runs: Path, note: str, resume: bool, progress: Progress, started: float | None = None
) -> Done:
    """Run every row of `plan` that has no record yet, then a final between the two best rows of each subject.

    Of a variant that was built several times, the best build's cache folder becomes the usual one; those of the other
    builds are left for `bakeoff cache --clear`. Ctrl-C ends the sweep cleanly: what is done is kept, the running worker
    is dead, the rest is in `interrupted`. A budget counts from `started` by time.monotonic() (None: from now) without
    the time in which other sweeps are waited for or torch's headers precompiled; when it and its grace are over, the
    sweep ends as by Ctrl-C, and the rest is in `out_of_time`. Raises BakeoffError before anything is measured when
    records cannot be written or the weights file is wrong.
    """
    paths.ensure_writable(runs, "records")
    cache = paths.ensure_writable(paths.cache_folder(), "caches")
    interrupted = False
    session: Session | None = None
    finals: list[StoredComparison] = []
    begun: list[Key] = []
    device = plan.rows[0].subject.device if plan.rows else "cpu"
    asked = time.monotonic()
    started = asked if started is None else started
    if resume:
        continue_unfinished(plan, runs, cache)
    measures = any(row.never_runs is None for row in plan.rows)
    with device_lock(device, progress.say, cache, measures) as held:
        waited_s = time.monotonic() - asked
        # Under the lock: the sweep that was waited for was the load, and may have been this one, resumed twice.
        load = host.present_load(held.idle_s)
        limit = open_limit(plan, runs, started + waited_s)
        state, stored = continue_unfinished(plan, runs, cache) if resume else (begin(plan, runs, cache), {})
        if load > host.usable_cores() / 2:
            progress.say(f"This host is busy ({host.busy_text(load)}); each record will say so.")
        seed = None if plan.request.budget_s else state.order_seed
        try:
            with closing(WeightsMemory()) as weights, limit.enforced():
                session = open_session(plan, state.sweep, note, runs, cache, load, progress, seed)
                session = replace(session, order=limit.order(session.order), begun=begun, weights=weights)
                session = with_works(session)
                session = _run_rows(session, runs, stored, limit, held.tell)
                if plan.request.final_s:
                    finals += run_finals(session, stored, runs, limit)
            if all(row.key in stored for row in plan.rows):
                _keep_best_builds(session, stored)
        except TimeIsUpError:
            progress.say("The time is up; what was running is stopped.")
        except KeyboardInterrupt:
            interrupted = True
    left = tuple(row.label for row in plan.rows if row.key not in stored)
    pairs = undecided(plan, stored, limit.finals_ended) if limit.limits else ()
    out_of_time = limit.left_out(stored, begun, tuple(pairs)) if limit.limits else None
    if not left and not interrupted and out_of_time is None:
        mark_finished(cache, state)
    if interrupted and not left:
        left = ("the final between the two best rows",)
    kept = tuple(stored[row.key] for row in plan.rows if row.key in stored)
    return Done(
        state.sweep,
        kept,
        left if interrupted else (),
        tuple(finals),
        plan.request.objective,
        None if interrupted else out_of_time,
        {} if session is None else session.spent.seconds(),
    )


def _still_measured(
    found: Generator[tuple[Row, Record], None, None], error: TimeIsUpError
) -> Iterator[tuple[Row, Record]]:
    """What a wave still yields where the time was up while a row of it was saved."""
    with suppress(TimeIsUpError):
        yield found.throw(error)
        yield from found


def _run_rows(
    session: Session, runs: Path, stored: dict[Key, Stored], limit: TimeLimit, tell: Callable[[str], None]
) -> Session:
    """Run the rows that are not in `stored`; each record is on disk before its row is shown as finished.

    Ceilings are measured for the first row that is no baseline, or else for the table: there is soon a first row, and
    no baseline skips work. Where a row is faster than its floor they are measured again after the last one, once in a
    sweep. The session that is returned has them.
    """
    progress, before = session.progress, frozenset(stored)
    costs, began = estimate_costs(session.plan, limit.costs.history), time.monotonic()

    def expect() -> None:
        left = [row.key for row in session.order if row.key not in stored]
        left_s = seconds_left(costs, left, stored.keys() - before, time.monotonic() - began)
        progress.expect(max(0.0, min(left_s, limit.left_s)))
        tell(f"{len(left)} of {counted(len(session.order), 'row')} left")

    for kept in stored.values():
        progress.result(kept.record)
    expect()
    session.begun.extend(sorted(stored, key=lambda key: stored[key].record.created))
    left = [row for row in session.order if row.key not in stored]
    floored = False
    known = known_finals(session, runs) if before and limit.limits else {}
    while fitting := limit.fitting(left, tuple(finals_ahead(session.plan, stored, left, known)), stored):
        wave = next_wave(fitting)
        if any(not row.baseline for row in wave):
            if not floored:
                session, floored = with_ceilings(session, runs), True
            with session.spent.on("precompiled headers"), limit.paused():
                make_headers(wave if limit.limits else fitting, session.cache, progress.say)
        session.begun.extend(row.key for row in wave)
        running = {row.key: progress.start(session.position(row), len(session.order), row.label) for row in wave}

        def keep(row: Row, record: Record, running: Mapping[Key, Running] = running) -> None:
            with alarm_waits():
                stored[row.key] = Stored(save(runs, record), record)
                running[row.key].finish()
                expect()
                progress.result(record)

        with closing(run_wave(session, wave, running)) as found:
            try:
                for row, record in found:
                    keep(row, record)
            except TimeIsUpError as error:
                for row, record in _still_measured(found, error):
                    keep(row, record)
                raise
        left = [row for row in left if row.key not in stored]
    session = session if floored else with_ceilings(session, runs)
    if stored.keys() == before:
        return session
    return with_ceilings_again(session, runs, [entry.record for entry in stored.values()])


@dataclass(frozen=True, slots=True)
class Costs:
    """Estimated seconds."""

    rows: Mapping[Key, float]
    """Zero for a row that cannot run."""
    finals: float = 0.0
    """Of all finals together."""


def estimate_costs(plan: Plan, history: History) -> Costs:
    """What the rows of a plan took in earlier records, or else a guess; without references, which are made once."""
    in_order = replace(plan, request=replace(plan.request, budget_s=0.0))  # a budget orders the lines otherwise
    found = estimate(in_order, history)
    rows = {row.key: line.seconds for row, line in zip(plan.rows, found.lines, strict=True)}
    return Costs(rows, max(0.0, found.seconds - found.references_s - sum(rows.values())))


def seconds_left(costs: Costs, left: Iterable[Key], done: Iterable[Key] = (), taken_s: float = 0.0) -> float:
    """Seconds that the rows `left` and the finals will take, where those `done` took `taken_s` together.

    Rows that overlap take less than the sum of their estimates, rows on a busy host more: what is left is scaled by the
    ratio so far. One average row that took as long as estimated is counted as done too, since the first row alone says
    little.
    """
    left_s = sum(costs.rows[key] for key in left)
    if not left_s:
        return costs.finals
    estimates = [seconds for seconds in costs.rows.values() if seconds]
    average_s = sum(estimates) / len(estimates)
    done_s = sum(costs.rows[key] for key in done)
    return left_s * (taken_s + average_s) / (done_s + average_s) + costs.finals


def _keep_best_builds(session: Session, stored: Mapping[Key, Stored]) -> None:
    """Of each variant that was built several times, all of them ok, make the best build's folder the usual one.

    Where that fails the reason is shown: the next sweep has one more cold build, and nothing else is lost.
    """
    for row in representatives(session.plan.rows, stored):
        if row.builds > 1 and stored[row.key].record.status == "ok":
            try:
                with session.entry_lock(build_cache.usual_of(row.cache_folder)):
                    build_cache.replace_usual_folder(row.cache_folder)
            except BakeoffError as error:
                session.progress.say(str(error))
