"""Which records are rows of one table, which build and process is a row, and speed-ups within a table."""

from dataclasses import replace

import pytest
from answers import as_text
from few_records import TEN, at, ms, stored, texts
from pages import tables_text
from records import record

from bakeoff.machine.identity import Machine
from bakeoff.report.columns import COLUMNS
from bakeoff.report.groups import baselines, groups, newest, speedup
from bakeoff.report.notes import spread_lines
from bakeoff.report.pages import sweep
from bakeoff.report.recommendation import deployment


class TestGroups:
    def test_records_that_must_not_be_compared_are_in_groups_of_their_own(self) -> None:
        base = record("eager", TEN)
        others = [
            replace(base, batch=2),
            replace(base, threads=1),
            replace(base, weight_seed=1),
            replace(base, input_seed=1),
            replace(base, checkpoint="w.pt"),
            replace(base, machine=Machine("0123456789ab", "", "Test CPU, 4 cores")),
            replace(base, config={"width": 64, "length": 16}),
            replace(base, variant=replace(base.variant, preset="small")),
            replace(base, variant=replace(base.variant, workload="sound")),
        ]
        assert len(groups(stored(base, *others))) == len(others) + 1
        assert len(groups(stored(base, replace(base, note="x", sweep="y"), record("inductor", TEN)))) == 1

    def test_newest_of_each_variant(self) -> None:
        old, new = at(1, "eager", ms(10.0)), at(9, "eager", ms(20.0))
        other = at(5, "inductor", ms(5.0))
        for order in ((old, other, new), (new, other, old), (old, new, other)):
            kept = {entry.record.created for entry in newest(stored(*order))}
            assert kept == {new.created, other.created}


class TestSeveralProcesses:
    """Medians from 3.95 to 7.95 ms."""

    TRIES = (
        at(1, "inductor", ms(3.0)),
        at(3, "inductor", ms(5.0), process=2),
        at(5, "inductor", ms(7.0), process=3),
    )

    def test_the_row_is_the_median_process(self) -> None:
        for order in (self.TRIES, self.TRIES[::-1]):
            (row,) = newest(stored(*order))
            assert row.record.process == 2

    @pytest.mark.parametrize("status", ["unstable", "crashed", "parity_failed"])
    def test_a_process_that_is_not_ok_is_the_row(self, status: str) -> None:
        samples = () if status == "crashed" else ms(20.0)
        bad = at(7, "inductor", samples, status, "why", process=4)
        (row,) = newest(stored(*self.TRIES, bad))
        assert (row.record.process, row.record.status) == (4, status)

    def test_an_older_sweep_does_not_count(self) -> None:
        older = at(0, "inductor", ms(0.5), process=4, sweep="older")
        (row,) = newest(stored(older, *self.TRIES))
        assert row.record.process == 2

    def test_pages_show_the_spread_between_them(self) -> None:
        every = stored(*self.TRIES)
        (line,) = spread_lines(newest(every), every)
        assert "inductor fp32 in 3 processes: medians 3.950 to 7.950 ms, 67.2% apart" in line
        assert line in tables_text(newest(every), (), every).splitlines()


class TestSpeedups:
    def test_against_the_same_dtype_and_fp32(self) -> None:
        rows = stored(
            record("eager", ms(20.0)),
            record("inductor", ms(10.0)),
            record("eager", ms(15.0), dtype="bf16"),
            record("inductor", ms(5.0), dtype="bf16"),
        )
        found = {row["variant"]: (row["vs_eager"], row["vs_eager_fp32"]) for row in sweep.as_rows(rows)}
        assert found["toy:tiny.world/inductor/bf16@cpu"] == (pytest.approx(15.95 / 5.95), pytest.approx(20.95 / 5.95))
        assert found["toy:tiny.world/inductor/fp32@cpu"] == (pytest.approx(20.95 / 10.95),) * 2
        assert found["toy:tiny.world/eager/fp32@cpu"] == (1.0, 1.0)

    def test_overlap_is_marked(self) -> None:
        eager = record("eager", TEN)
        assert str(speedup(record("inductor", ms(9.8)), eager)) == "1.02x ~"
        assert str(speedup(record("inductor", ms(5.0)), eager)) == "1.84x"
        assert str(speedup(record("inductor", ms(20.0)), eager)) == "0.52x"
        assert str(speedup(eager, eager)) == str(speedup(eager, replace(eager))) == "1.00x", (
            "also where it was read twice"
        )
        assert speedup(eager, None) is speedup(record(status="oom"), eager) is None

    @pytest.mark.parametrize("status", ["parity_failed", "fell_back", "unstable"])
    def test_only_ok_rows_are_ranked_or_compared_with(self, status: str) -> None:
        rows = stored(record("eager", TEN, status, "why"), record("inductor", ms(5.0)))
        assert [row["vs_eager"] for row in sweep.as_rows(rows)] == [None, None]
        assert baselines(rows) == {}
        rows = stored(record("eager", TEN), record("inductor", ms(5.0), status, "why"))
        assert [row["vs_eager"] for row in sweep.as_rows(rows)] == [1.0, None]
        assert "inductor" not in as_text(deployment(rows))
        shown = dict(zip(COLUMNS, next(texts(rows[1:])), strict=True))
        assert (shown["median_ms"], shown["vs_eager"], shown["vs_eager_fp32"]) == ("5.950", "", "")
