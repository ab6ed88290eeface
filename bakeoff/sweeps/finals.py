"""Runs the final of each subject: its two best rows compared with each other, with eager fp32 as the baseline."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path

from bakeoff.models.errors import BakeoffError
from bakeoff.plan.costs import pair_of
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.rows import Key, Row
from bakeoff.process.jobs import Subject
from bakeoff.record.finalists import call_ms, finalists, representative
from bakeoff.record.objective import LATENCY, Objective
from bakeoff.record.store import Stored, StoredComparison, load_all, save
from bakeoff.sweeps.compare import race, say_end
from bakeoff.sweeps.context import SweepContext
from bakeoff.sweeps.resume import key_of
from bakeoff.sweeps.time_limit import TimeLimit


def run_finals(
    context: SweepContext, stored: Mapping[Key, Stored], runs: Path, time: TimeLimit
) -> Iterator[StoredComparison]:
    """Run the final of each subject that has two rows to compare, and yield the comparisons.

    A final that was stored before an interruption is yielded again, not repeated. A final that does not fit into
    the time limit is skipped.
    """
    known = _known_finals(context, runs)
    for subject, best in best_of(context.plan, stored).items():
        measured = [row for row in context.plan.rows if row.subject == subject and row.key in stored]
        before = known.get(_pair(best))
        if before is not None:
            time.finals_ended.append(subject)
            yield before
            continue
        if len(best) < 2 or not time.final_fits:
            continue
        names = [f"{row.variant.backend} {row.variant.dtype}" for row in best]
        of_batch = f", batch {subject.batch}" if len(context.plan.request.batches) > 1 else ""
        running = context.progress.start(0, 0, f"final: {names[0]} against {names[1]}{of_batch}")
        try:
            baseline, without = _baseline(context.plan, measured, best, stored)
            raced = [*best, *([baseline] if baseline is not None else [])]
            times = tuple(_row_ns(row, stored, context.plan.request.objective) for row in raced)
            comparison = race(context, running, best[0], best[1], baseline, without=without, rows_ns=times)
        except BakeoffError as error:
            running.finish("no final", str(error))
            time.finals_ended.append(subject)
            continue
        kept = StoredComparison(save(runs, comparison), comparison)
        say_end(running, comparison)
        time.finals_ended.append(subject)
        yield kept


def _row_ns(row: Row, stored: Mapping[Key, Stored], objective: Objective) -> int:
    """Return the median time of a call of the row by the objective's clock, in nanoseconds; 0 if it was not timed."""
    milliseconds = call_ms(stored[row.key].record, objective.goal) if row.key in stored else inf
    return round(milliseconds * 1e6) if isfinite(milliseconds) else 0


_Pair = frozenset[tuple[str, int]]
"""Variant and batch of each of the two rows of a final."""


def _pair(rows: Sequence[Row]) -> _Pair:
    return frozenset((str(row.variant), row.subject.batch) for row in rows)


def _known_finals(context: SweepContext, runs: Path) -> dict[_Pair, StoredComparison]:
    """Return the finals that this sweep stored before it was interrupted, by their pairs."""
    found = [kept for kept in load_all(runs).comparisons if kept.record.sweep == context.sweep]
    return {
        frozenset((str(side.variant), side.batch) for side in (kept.record.a, kept.record.b)): kept for kept in found
    }


def finals_ahead(
    context: SweepContext, stored: Mapping[Key, Stored], left: Sequence[Row], runs: Path
) -> list[list[Row]]:
    """Return the two rows of each final still to be run, as expected from the results so far; `left` are the rows not
    yet timed."""
    best, known = best_of(context.plan, stored), _known_finals(context, runs)
    found = []
    for subject in dict.fromkeys(row.subject for row in context.plan.rows) if context.plan.request.final_s else ():
        pair = pair_of([row for row in left if row.subject == subject], best.get(subject, []))
        if pair and _pair(pair) not in known:
            found.append(pair)
    return found


def best_of(plan: Plan, known: Mapping[Key, Stored]) -> dict[Subject, list[Row]]:
    """Return the two best variants of each subject with measured rows, each by the row of its middle process.

    Candidates are variants that can be recommended and meet the limits of the objective, by which they are ranked.
    """
    subjects: dict[Subject, list[Row]] = {}
    for row in plan.rows:
        if row.key in known:
            subjects.setdefault(row.subject, []).append(row)
    return {subject: _two_best(rows, known, plan.request.objective) for subject, rows in subjects.items()}


def undecided(plan: Plan, stored: Mapping[Key, Stored], ended: Collection[Subject]) -> Iterator[str]:
    """Yield the two rows, as `A and B`, of each subject whose final is still to be run.

    `ended` are the subjects whose final has ended or cannot be run.
    """
    several = len({row.subject for row in plan.rows}) > 1
    for subject, best in best_of(plan, stored).items() if plan.request.final_s else ():
        if len(best) == 2 and subject not in ended:
            names = " and ".join(f"{row.variant.backend} {row.variant.dtype}" for row in best)
            of_batch = f", batch {subject.batch}" if len(plan.request.batches) > 1 else ""
            yield f"{names} ({best[0].variant.subject}{of_batch})" if several else names


def _two_best(rows: Sequence[Row], stored: Mapping[Key, Stored], objective: Objective = LATENCY) -> list[Row]:
    by_id = {stored[row.key].id: row for row in representatives(rows, stored)}
    return [by_id[entry.id] for entry in finalists([stored[row.key] for row in by_id.values()], objective)]


def _baseline(
    plan: Plan, rows: Sequence[Row], best: Sequence[Row], stored: Mapping[Key, Stored]
) -> tuple[Row | None, str]:
    """Return the eager fp32 row over which a final states the winner's speed-up, and "", or None and why there is none.

    None with "" means that eager fp32 is one of the two best. A row that was only unstable is used: it may be stable in
    the final. If the sweep has no such row, one is made for the final; raises BakeoffError if there cannot be one.
    """
    if any(row.is_eager_fp32 for row in best):
        return None, ""
    for row in representatives(rows, stored):
        if row.is_eager_fp32:
            record = stored[row.key].record
            reason = f"it was {record.status}: {record.measurement.reason}".removesuffix(": ")
            return (row, "") if record.status in ("ok", "unstable") else (None, reason)
    subject = rows[0].subject
    asked = replace(
        plan.request,
        presets=(subject.preset,),
        workloads=(subject.workload,),
        backends=("eager",),
        dtypes=plan.component.dtypes or ("fp32",),
        batches=(subject.batch,),
        processes=1,
    )
    return make_plan(asked).rows[0], ""


def representatives(rows: Sequence[Row], stored: Mapping[Key, Stored]) -> list[Row]:
    """Return one row for each variant and batch: the one whose record represents its processes."""
    tries: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        tries.setdefault((str(row.variant), row.subject.batch), []).append(row)
    by_key = {row.key: row for row in rows}
    return [by_key[key_of(representative([stored[row.key] for row in each]).record)] for each in tries.values()]
