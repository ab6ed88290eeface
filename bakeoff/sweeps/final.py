"""After the rows: the two best of each subject measured against each other, and the best build of each kept.

Where neither of the two is eager fp32, it is measured beside them, so that a speed-up over it can be stated.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bakeoff.machine import build_cache
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.rows import Row
from bakeoff.record.finalists import finalists
from bakeoff.record.representative import representative
from bakeoff.record.store import Stored, StoredComparison, load_all, save
from bakeoff.sweeps.compare import race
from bakeoff.sweeps.resume import Key, key_of
from bakeoff.sweeps.session import Session


def run_finals(session: Session, stored: Mapping[Key, Stored], runs: Path) -> Iterator[StoredComparison]:
    """A final for each subject, unless it was done before an interruption."""
    known = {
        kept.comparison.a.variant.subject: kept
        for kept in load_all(runs).comparisons
        if kept.comparison.sweep == session.sweep
    }
    for subject in dict.fromkeys(row.subject for row in session.plan.rows):
        rows = [row for row in session.plan.rows if row.subject == subject]
        before = known.get(rows[0].variant.subject)
        if before is not None:
            yield before
            continue
        best = _two_best(rows, stored)
        if len(best) < 2:
            continue
        names = [f"{row.variant.backend} {row.variant.dtype}" for row in best]
        session.progress.start(0, 0, f"final: {names[0]} against {names[1]}")
        try:
            comparison = race(session, best[0], best[1], _baseline(rows, best, stored))
        except BakeoffError as error:
            session.progress.finish("no final", str(error))
            continue
        kept = StoredComparison(save(runs, comparison), comparison)
        session.progress.finish("ok", f"{len(comparison.rounds)} rounds, {comparison.how}")
        yield kept


def keep_best_builds(session: Session, stored: Mapping[Key, Stored]) -> None:
    """Of each variant that was built several times, all of them ok, make the best build's folder the usual one.

    Where that fails the reason is shown: the next sweep has one more cold build, and nothing else is lost.
    """
    for row in _representatives(session.plan.rows, stored):
        if row.builds > 1 and stored[row.key].record.status == "ok":
            try:
                with session.entry_lock(build_cache.usual_of(row.cache_folder)):
                    build_cache.replace_usual_folder(row.cache_folder)
            except BakeoffError as error:
                session.progress.say(str(error))


def _two_best(rows: Sequence[Row], stored: Mapping[Key, Stored]) -> list[Row]:
    """The variants that can be recommended with the lowest medians, each with its best build."""
    by_id = {stored[row.key].id: row for row in _representatives(rows, stored)}
    return [by_id[entry.id] for entry in finalists([stored[row.key] for row in by_id.values()])]


def _baseline(rows: Sequence[Row], best: Sequence[Row], stored: Mapping[Key, Stored]) -> Row | None:
    """The eager fp32 row, over which a final states the winner's speed-up; None if it is not ok or one of the best."""
    for row in _representatives(rows, stored):
        if row.baseline and row.variant.dtype == "fp32" and stored[row.key].record.status == "ok":
            return None if any(row.key == other.key for other in best) else row
    return None


def _representatives(rows: Sequence[Row], stored: Mapping[Key, Stored]) -> list[Row]:
    """Of each variant the row that stands for it."""
    tries: dict[str, list[Row]] = {}
    for row in rows:
        tries.setdefault(str(row.variant), []).append(row)
    by_key = {row.key: row for row in rows}
    return [by_key[key_of(representative([stored[row.key] for row in each]).record)] for each in tries.values()]
