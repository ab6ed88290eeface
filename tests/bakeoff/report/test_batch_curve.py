"""Batch curves: what is in them, where a variant saturates, and the pages that have them."""

from collections.abc import Sequence

from few_records import stored
from records import clock, measurement, record

from bakeoff.machine.identity import Machine
from bakeoff.record.schema import Record
from bakeoff.record.store import Stored
from bakeoff.report.document import Document
from bakeoff.report.groups import tables
from bakeoff.report.pages.batch_curve import batch_curves, saturates, sections
from bakeoff.report.render import terminal

HERE = Machine("0123456789ab", "", "Test CPU, 4 cores")


def at(batch: int, rate: float, backend: str = "eager", **changes: object) -> Record:
    """A row with so many items a second, within half a percent."""
    ms = batch * 1000 / rate
    samples = [ms * (0.995 + index / 2000) for index in range(20)]
    made = measurement(samples, throughput=clock(samples))
    return record(backend, **{"made": made, "batch": batch, "machine": HERE, **changes})


def oom(batch: int, backend: str = "eager") -> Record:
    text = "needs an estimated 9000 MiB, 8000 MiB are free; not started"
    return record(backend, status="oom", reason=text, batch=batch, machine=HERE)


ROWS = stored(
    at(1, 100.0), at(2, 180.0), at(4, 200.0), at(8, 200.5), oom(16),
    at(1, 150.0, "inductor"), at(2, 280.0, "inductor"), at(4, 400.0, "inductor"), at(8, 700.0, "inductor"),
    oom(16, "inductor"),
)  # fmt: skip


def one(rows: Sequence[Stored]) -> list[list[Stored]]:
    (curve,) = batch_curves(rows)
    return list(curve.values())


def text_of(rows: Sequence[Stored]) -> str:
    return terminal.render(Document("", tuple(sections(rows))))


def test_a_variant_saturates_at_the_smallest_batch_that_overlaps_the_best() -> None:
    eager, inductor = one(ROWS)
    assert [entry.record.batch for entry in eager] == [1, 2, 4, 8, 16]
    assert saturates(eager) is eager[2]
    assert saturates(inductor) is inductor[3]


def test_where_it_saturates_comes_first_and_what_does_not_fit_is_said_once() -> None:
    lines = text_of(ROWS).splitlines()
    assert lines[0] == "Batch curve: toy:tiny.world (toy), Test CPU, 4 cores, 4 threads, random weights, seed 0"
    assert lines[3].startswith("eager fp32 saturates at batch 4: 200.1 [")
    assert lines[4].startswith("inductor fp32 is not saturated: batch 8, its largest, gives the most, 700.2 [")
    reason = "oom: needs an estimated 9000 MiB, 8000 MiB are free; not started"
    assert [line for line in lines if "not started" in line] == [
        f"eager fp32 at batch 16, inductor fp32 at batch 16: {reason}"
    ]


def test_a_row_that_is_not_ok_neither_saturates_nor_is_the_best() -> None:
    wild = at(8, 900.0, made=measurement([8 / 0.9] * 20, "unstable", "bimodal"))
    (eager,) = one(stored(at(1, 100.0), at(2, 100.2), wild))
    assert saturates(eager) is eager[0]
    assert "\neager fp32 at batch 8: unstable: bimodal\n" in text_of(stored(at(1, 100.0), wild))
    (alone,) = one(stored(at(1, 100.0), oom(2)))
    assert saturates(alone) is None


def test_rows_of_two_batches_are_in_one_curve_and_never_in_one_table() -> None:
    assert [len({row.record.batch for row in found.rows}) for found in tables(ROWS)] == [1] * 5
    assert len(one(ROWS)) == 2
    assert batch_curves(ROWS[:1]) == []
    assert batch_curves(stored(at(1, 100.0), at(1, 100.0, "inductor"))) == []
    others = stored(at(1, 100.0), at(2, 100.0, threads=2), at(4, 100.0, weight_seed=5), at(8, 100.0, checkpoint="w"))
    assert batch_curves(others) == []


def test_there_is_a_row_for_each_batch() -> None:
    text = text_of(ROWS)
    rows = [line.split() for line in text.splitlines() if line.startswith(("eager fp32   ", "inductor fp32   "))]
    assert [(cells[0], cells[2], cells[3]) for cells in rows] == [
        (name, str(batch), "ok" if batch < 16 else "oom")
        for name in ("eager", "inductor")
        for batch in (1, 2, 4, 8, 16)
    ]
    assert "limits" not in text
    assert text_of(ROWS[:1]) == ""
