"""How rows stand while a sweep goes on."""

from dataclasses import replace

from records import record

from bakeoff.cli.progress import standings
from bakeoff.report.groups import name_of, speedup

EAGER = record("eager", [9.0, 10.0, 11.0] * 4)
FAST = record("inductor", [4.9, 5.0, 5.1] * 4)
SLOW = record("inductor[freezing]", [20.0, 20.1, 20.2] * 4)
UNSTABLE = record("aoti", [1.0, 2.0, 3.0] * 4, "unstable", "it varies")
CRASHED = record("openvino", status="crashed", reason="signal 11")
MISSING = record("tensorrt", status="unavailable", reason="no tensorrt")
GRAPHS = record("cudagraphs", status="unsupported", reason="no CUDA")


def test_the_fastest_that_is_ok_is_first_and_what_has_no_figures_last() -> None:
    ((rows, base),) = standings([CRASHED, UNSTABLE, SLOW, MISSING, EAGER, GRAPHS, FAST])
    assert [name_of(row) for row in rows] == [
        "inductor fp32", "eager fp32", "inductor[freezing] fp32", "aoti fp32", "openvino fp32",
    ]  # fmt: skip
    assert base is EAGER
    assert str(speedup(rows[0], base)) == "2.00x"


def test_of_several_processes_one_row_stands_for_the_variant() -> None:
    tries = [replace(record("inductor", [ms] * 5), process=process) for process, ms in enumerate((7.0, 5.0, 6.0), 1)]
    ((rows, _),) = standings([EAGER, *tries])
    assert [row.latency.median_ms for row in rows if row.latency] == [6.0, 10.0], "the middle process"
