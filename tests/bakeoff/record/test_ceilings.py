"""The best known ceilings of a machine, from several sets."""

from dataclasses import replace
from pathlib import Path

from ceilings import CEILINGS
from records import HOST, record

from bakeoff.machine.floors import Ceiling
from bakeoff.machine.identity import Machine
from bakeoff.record.floor import best_ceilings
from bakeoff.record.schema import SCHEMA, CeilingsRecord
from bakeoff.record.store import Stored, StoredCeilings, load_all, save

HERE, THERE = Machine("here", "", "Test CPU, 4 cores"), Machine("there", "", "Test CPU, 4 cores")


def faster(*factors: float) -> tuple[Ceiling, ...]:
    return tuple(
        replace(entry, best=entry.best * factor, median=entry.median * factor)
        for entry, factor in zip(CEILINGS, factors, strict=True)
    )


ONES = (1.0,) * len(CEILINGS)
COPY_TWICE = faster(2.0, *ONES[1:])
READ_HALF = faster(1.0, 0.5, 1.0, 0.8, *ONES[4:])


def a_set(
    ceilings: tuple[Ceiling, ...], hour: int, machine: Machine = HERE, threads: int = 4, other: float = 0.0
) -> StoredCeilings:
    created = f"2026-01-02T{hour:02}:00:00.000000Z"
    made = CeilingsRecord(SCHEMA, created, machine, threads, ceilings, other, HOST, {"torch": "2.13.0"})
    return StoredCeilings(f"set-{hour}", made)


def row(ceilings: tuple[Ceiling, ...], hour: int, machine: Machine = HERE) -> Stored:
    created = f"2026-01-02T{hour:02}:30:00.000000Z"
    return Stored(f"row-{hour}", record(created=created, ceilings=ceilings, machine=machine))


def rates(ceilings: tuple[Ceiling, ...]) -> dict[tuple[str, str, int], float]:
    return {(entry.kind, entry.dtype, entry.size): entry.best for entry in ceilings}


def test_the_best_of_each_kind_dtype_and_size() -> None:
    assert rates(best_ceilings([], [a_set(COPY_TWICE, 1), a_set(READ_HALF, 2)], HERE, 4)) == rates(COPY_TWICE)
    assert rates(best_ceilings([], [a_set(READ_HALF, 1), a_set(COPY_TWICE, 2)], HERE, 4)) == rates(COPY_TWICE)


def test_other_machines_and_threads_do_not_count() -> None:
    others = [a_set(COPY_TWICE, 1, THERE), a_set(COPY_TWICE, 2, threads=2)]
    rows = [row(COPY_TWICE, 3, machine=THERE)]
    assert best_ceilings(rows, others, HERE, 4) == ()
    assert rates(best_ceilings(rows, [*others, a_set(CEILINGS, 4)], HERE, 4)) == rates(CEILINGS)


def test_those_of_a_busy_host_and_of_records_count_too() -> None:
    assert rates(best_ceilings([], [a_set(COPY_TWICE, 1, other=0.5), a_set(CEILINGS, 2)], HERE, 4)) == rates(COPY_TWICE)
    assert rates(best_ceilings([row(COPY_TWICE, 3)], [a_set(CEILINGS, 1)], HERE, 4)) == rates(COPY_TWICE)


def test_sets_are_entries_of_their_own(tmp_path: Path) -> None:
    entry = a_set(COPY_TWICE, 1).record
    save(tmp_path, entry)
    records = load_all(tmp_path)
    assert [kept.record for kept in records.ceilings] == [entry]
    assert rates(best_ceilings(records.current, records.ceilings, HERE, 4)) == rates(COPY_TWICE)
