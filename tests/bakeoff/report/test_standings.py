"""How rows stand while a sweep goes on."""

from dataclasses import replace

import pytest
from records import record

from bakeoff.record.schema import Record
from bakeoff.report.standings import can_run, never_run, reduced, standings

EAGER = record("eager", [9.0, 10.0, 11.0] * 4)
FAST = record("inductor", [4.9, 5.0, 5.1] * 4)
SLOW = record("inductor[freezing]", [20.0, 20.1, 20.2] * 4)
UNSTABLE = record("aoti", [1.0, 2.0, 3.0] * 4, "unstable", "it varies")
CRASHED = record("openvino", status="crashed", reason="signal 11")
MISSING = record("tensorrt", status="unavailable", reason="no tensorrt")
GRAPHS = record("cudagraphs", status="unsupported", reason="no CUDA")


def names(*records: Record) -> list[str]:
    (table,) = standings(records)
    return [row.name for row in table.rows]


def test_the_fastest_that_is_ok_is_first_and_what_has_no_figures_last() -> None:
    found = names(CRASHED, UNSTABLE, SLOW, MISSING, EAGER, GRAPHS, FAST)
    assert found == ["inductor fp32", "eager fp32", "inductor[freezing] fp32", "aoti fp32", "openvino fp32"]


def test_a_row_has_its_figures_and_its_gain_over_eager_fp32() -> None:
    (table,) = standings([EAGER, FAST, CRASHED])
    fast, _, crashed = table.rows
    assert (fast.median, fast.interval, fast.gain) == ("5.000", "[4.900, 5.100]", "2.00x")
    assert (crashed.median, crashed.interval, crashed.gain, crashed.reason) == ("", "", "", "signal 11")


def test_without_eager_fp32_there_is_no_gain() -> None:
    half = replace(EAGER, variant=replace(EAGER.variant, dtype="bf16"))
    (table,) = standings([half, FAST])
    assert {row.gain for row in table.rows} == {""}


def test_reduced_records_stand_as_before_without_their_samples() -> None:
    held = [EAGER, FAST, UNSTABLE, CRASHED, SLOW]
    less = [reduced(each) for each in held]
    assert [table.rows for table in standings(less)] == [table.rows for table in standings(held)]
    assert [each.measurement.latency.samples_ns.tolist() for each in less if each.measurement.latency] == [[]] * 4


@pytest.mark.parametrize(
    ("asked", "place"), [(FAST, "fastest so far"), (EAGER, "2 of 3 so far"), (SLOW, "3 of 3 so far"), (UNSTABLE, "")]
)
def test_places_are_among_the_rows_that_are_ok(asked: Record, place: str) -> None:
    (table,) = standings([EAGER, FAST, SLOW, UNSTABLE, CRASHED])
    assert table.place(asked) == place


def test_a_row_that_is_alone_has_no_place() -> None:
    (table,) = standings([EAGER, CRASHED])
    assert table.place(EAGER) == ""


def test_gains_and_places_are_within_a_subject() -> None:
    larger = [replace(each, batch=2) for each in (EAGER, SLOW)]
    one, two = standings([EAGER, FAST, *larger])
    assert (one.subject, two.subject) == ("toy:tiny.world, batch 1", "toy:tiny.world, batch 2")
    assert [len(one.rows), len(two.rows)] == [2, 2]
    assert two.place(larger[1]) == "2 of 2 so far"
    alone = replace(FAST, batch=4)
    assert standings([EAGER, alone])[1].rows[0].gain == ""


def test_of_several_processes_one_row_stands_for_the_variant() -> None:
    tries = [replace(record("inductor", [ms] * 5), process=process) for process, ms in enumerate((7.0, 5.0, 6.0), 1)]
    (table,) = standings([EAGER, *tries])
    assert [row.median for row in table.rows] == ["6.000", "10.00"], "the middle process"
    assert table.row(tries[0]).median == "7.000"


def test_what_cannot_run_is_counted() -> None:
    assert never_run([EAGER, CRASHED]) == ""
    assert never_run([EAGER, GRAPHS]) == "1 row cannot run here (1 unsupported)"
    assert never_run([MISSING, EAGER, GRAPHS, MISSING]) == "3 rows cannot run here (2 unavailable, 1 unsupported)"
    assert [can_run(each) for each in (EAGER, CRASHED, MISSING, GRAPHS)] == [True, True, False, False]
    assert standings([MISSING]) == []
