"""The final between the two best rows of each subject, with eager fp32 beside them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.plan.budget import FinalAhead, final_ahead
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.rows import Key, Row
from bakeoff.process.jobs import Subject
from bakeoff.record.finalists import finalists, representative
from bakeoff.record.objective import LATENCY, Objective
from bakeoff.record.store import Stored, StoredComparison, load_all, save
from bakeoff.sweeps.compare import race
from bakeoff.sweeps.resume import key_of
from bakeoff.sweeps.session import Session
from bakeoff.sweeps.time_limit import TimeLimit


def run_finals(
    session: Session, stored: Mapping[Key, Stored], runs: Path, time: TimeLimit
) -> Iterator[StoredComparison]:
    """A final for each subject that has two rows to decide between, unless these two had it before an interruption.

    With a budget there is none that does not fit.
    """
    known = known_finals(session, runs)
    for subject in dict.fromkeys(row.subject for row in session.plan.rows):
        measured = [row for row in session.plan.rows if row.subject == subject and row.key in stored]
        best = _two_best(measured, stored, session.plan.request.objective)
        before = known.get(_pair(best))
        if before is not None:
            time.finals_ended.append(subject)
            yield before
            continue
        if len(best) < 2 or not time.final_fits(_sides(best, measured), stored):
            continue
        names = [f"{row.variant.backend} {row.variant.dtype}" for row in best]
        of_batch = f", batch {subject.batch}" if len(session.plan.request.batches) > 1 else ""
        running = session.progress.start(0, 0, f"final: {names[0]} against {names[1]}{of_batch}")
        try:
            baseline, without = _baseline(session.plan, measured, best, stored)
            comparison = race(session, running, best[0], best[1], baseline, without=without)
        except BakeoffError as error:
            running.finish("no final", str(error))
            time.finals_ended.append(subject)
            continue
        kept = StoredComparison(save(runs, comparison), comparison)
        running.finish("ok", f"{counted(len(comparison.rounds), 'round')}, {comparison.how}")
        time.finals_ended.append(subject)
        yield kept


_Pair = frozenset[tuple[str, int]]
"""The variants and the batch of the two rows of a final."""


def _pair(rows: Sequence[Row]) -> _Pair:
    return frozenset((str(row.variant), row.subject.batch) for row in rows)


def known_finals(session: Session, runs: Path) -> dict[_Pair, StoredComparison]:
    """The finals that were run before the sweep was interrupted."""
    found = [kept for kept in load_all(runs).comparisons if kept.record.sweep == session.sweep]
    return {
        frozenset((str(side.variant), side.batch) for side in (kept.record.a, kept.record.b)): kept for kept in found
    }


def finals_ahead(
    plan: Plan, stored: Mapping[Key, Stored], left: Sequence[Row], known: Collection[_Pair]
) -> Iterator[FinalAhead]:
    """Of each subject the final that is still to be run, by what is measured so far; `left` are the rows to come."""
    for subject in dict.fromkeys(row.subject for row in plan.rows) if plan.request.final_s else ():
        rows = [row for row in plan.rows if row.subject == subject]
        best = _two_best([row for row in rows if row.key in stored], stored, plan.request.objective)
        final = final_ahead([row for row in left if row.subject == subject], best)
        if final is not None and _pair(final.sides) not in known:
            yield replace(final, sides=tuple(_sides(final.sides, rows)))


def best_rows(plan: Plan, known: Mapping[Key, Stored]) -> list[Row]:
    """The rows that finals would be between by what is known now."""
    subjects: dict[Subject, list[Row]] = {}
    for row in plan.rows:
        if row.key in known:
            subjects.setdefault(row.subject, []).append(row)
    return [row for rows in subjects.values() for row in _two_best(rows, known, plan.request.objective)]


def undecided(plan: Plan, stored: Mapping[Key, Stored], ended: Collection[Subject]) -> Iterator[str]:
    """Of each subject whose final is still to be run, the two rows between which it would decide, as `A and B`."""
    subjects = list(dict.fromkeys(row.subject for row in plan.rows))
    for subject in subjects if plan.request.final_s else ():
        measured = [row for row in plan.rows if row.subject == subject and row.key in stored]
        best = _two_best(measured, stored, plan.request.objective)
        if len(best) == 2 and subject not in ended:
            names = " and ".join(f"{row.variant.backend} {row.variant.dtype}" for row in best)
            of_batch = f", batch {subject.batch}" if len(plan.request.batches) > 1 else ""
            yield f"{names} ({best[0].variant.subject}{of_batch})" if len(subjects) > 1 else names


def _two_best(rows: Sequence[Row], stored: Mapping[Key, Stored], objective: Objective = LATENCY) -> list[Row]:
    """The best variants by the objective that can be recommended and meet its limits, each with its best build."""
    by_id = {stored[row.key].id: row for row in representatives(rows, stored)}
    return [by_id[entry.id] for entry in finalists([stored[row.key] for row in by_id.values()], objective)]


def _baseline(
    plan: Plan, rows: Sequence[Row], best: Sequence[Row], stored: Mapping[Key, Stored]
) -> tuple[Row | None, str]:
    """The eager fp32 row, over which a final states the winner's speed-up, and why there is none.

    None without a reason: it is one of the best. A row that was only unstable may be stable in the final; where the
    sweep has no such row, one is made for the final.
    """
    if any(row.is_eager_fp32 for row in best):
        return None, ""
    for row in representatives(rows, stored):
        if row.is_eager_fp32:
            record = stored[row.key].record
            reason = f"it was {record.status}: {record.measurement.reason}".removesuffix(": ")
            return (row, "") if record.status in ("ok", "unstable") else (None, reason)
    return _eager_row(plan, rows[0].subject), ""


def _sides(best: Sequence[Row], rows: Sequence[Row]) -> list[Row]:
    """What a final measures: the two best, and eager fp32 where it is none of them."""
    eager = [row for row in rows if row.is_eager_fp32][:1]
    return [*best, *(eager if not any(row.is_eager_fp32 for row in best) else [])]


def _eager_row(plan: Plan, subject: Subject) -> Row:
    """The row of eager fp32 that a sweep of this subject would have. Raises BakeoffError where there cannot be one."""
    asked = replace(
        plan.request,
        presets=(subject.preset,),
        workloads=(subject.workload,),
        backends=("eager",),
        dtypes=plan.component.dtypes or ("fp32",),
        batches=(subject.batch,),
        processes=1,
        builds=1,
    )
    return make_plan(asked).rows[0]


def representatives(rows: Sequence[Row], stored: Mapping[Key, Stored]) -> list[Row]:
    """Of each variant the row that stands for it."""
    tries: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        tries.setdefault((str(row.variant), row.subject.batch), []).append(row)
    by_key = {row.key: row for row in rows}
    return [by_key[key_of(representative([stored[row.key] for row in each]).record)] for each in tries.values()]
