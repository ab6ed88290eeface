"""The final between the two best rows of each subject, with eager fp32 beside them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bakeoff.models.errors import BakeoffError
from bakeoff.models.words import counted
from bakeoff.plan.costs import sides_of
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
    known = _known_finals(session, runs)
    for subject, best in best_of(session.plan, stored).items():
        measured = [row for row in session.plan.rows if row.subject == subject and row.key in stored]
        before = known.get(_pair(best))
        if before is not None:
            time.finals_ended.append(subject)
            yield before
            continue
        if len(best) < 2 or not time.final_fits(sides_of(measured, best), stored):
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


def _known_finals(session: Session, runs: Path) -> dict[_Pair, StoredComparison]:
    """Return the finals that were run before the sweep was interrupted."""
    found = [kept for kept in load_all(runs).comparisons if kept.record.sweep == session.sweep]
    return {
        frozenset((str(side.variant), side.batch) for side in (kept.record.a, kept.record.b)): kept for kept in found
    }


def finals_ahead(session: Session, stored: Mapping[Key, Stored], left: Sequence[Row], runs: Path) -> list[list[Row]]:
    """Return for each subject the sides of the final still to be run, by what is measured; `left` are rows to come."""
    best, known = best_of(session.plan, stored), _known_finals(session, runs)
    found = []
    for subject in dict.fromkeys(row.subject for row in session.plan.rows) if session.plan.request.final_s else ():
        sides = sides_of([row for row in left if row.subject == subject], best.get(subject, []))
        if sides and _pair(sides[:2]) not in known:
            found.append(sides)
    return found


def best_of(plan: Plan, known: Mapping[Key, Stored]) -> dict[Subject, list[Row]]:
    """Return for each subject with measured rows the best two variants by the objective that can be recommended and
    meet its limits, each with its best build."""
    subjects: dict[Subject, list[Row]] = {}
    for row in plan.rows:
        if row.key in known:
            subjects.setdefault(row.subject, []).append(row)
    return {subject: _two_best(rows, known, plan.request.objective) for subject, rows in subjects.items()}


def undecided(plan: Plan, stored: Mapping[Key, Stored], ended: Collection[Subject]) -> Iterator[str]:
    """Yield the two rows, as `A and B`, of each subject whose final is still to be run."""
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
    """Return the eager fp32 row, over which a final states the winner's speed-up, and why there is none.

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
    """Return for each variant the row that stands for it."""
    tries: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        tries.setdefault((str(row.variant), row.subject.batch), []).append(row)
    by_key = {row.key: row for row in rows}
    return [by_key[key_of(representative([stored[row.key] for row in each]).record)] for each in tries.values()]
