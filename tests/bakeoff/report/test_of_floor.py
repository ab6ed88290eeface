"""Rows above 100 % of their floor: marked in every table, with what the mark means, and in no table without them."""

from dataclasses import replace

import pytest
from ceilings import CEILINGS
from few_records import history_text
from few_records import records_of as stored
from pages import html_text, results_text, tables_text
from records import measurement, record

from bakeoff.record.schema import Record

MEANS = "!: above 100 %, the ceilings are too low there and the floor is none"
"""The floor of 1.5 GFLOP at 150 GFLOP/s is 10 ms."""


def bounded(backend: str, first_ms: float, second: int = 1) -> Record:
    created = f"2026-01-02T03:04:0{second}.000000Z"
    return record(backend, [first_ms] * 20, ceilings=CEILINGS, minimum_bytes=1 << 20, created=created)


PAGES = {
    "table": lambda records: tables_text(records.current),
    "results": lambda records: results_text(records, records.machines()[0]),
    "whole": results_text,
    "html": html_text,
}


@pytest.mark.parametrize("name", PAGES)
def test_every_table_marks_them(name: str) -> None:
    text = PAGES[name](stored(bounded("eager", 12.5), bounded("inductor", 8.0, 2)))
    assert "125% !" in text
    assert "80%" in text
    assert "80% !" not in text
    assert MEANS in text


def test_the_history_marks_the_best() -> None:
    text = history_text(stored(bounded("eager", 12.5), bounded("inductor", 8.0, 2)))
    assert "Its floor, 10 ms by compute, is 125% of its median: the ceilings are too low." in text


def test_a_row_whose_outputs_are_wrong_has_no_mark() -> None:
    wrong = replace(bounded("inductor", 8.0, 2), measurement=measurement([8.0] * 20, "parity_failed", "why"))
    text = tables_text(stored(bounded("eager", 12.5), wrong).current)
    assert "125%" in text
    assert "% !" not in text


@pytest.mark.parametrize("name", ["table", "results", "whole", "html"])
def test_traffic_is_that_of_each_dtype_in_any_order(name: str) -> None:
    """An int8 row reads less than any row of its dtype, and is none of its figures."""
    made = [
        record("int8", [5.0] * 20, dtype="bf16", quantisation="dynamic", minimum_bytes=15 << 20),
        record("eager", [9.0] * 20, dtype="bf16", minimum_bytes=24 << 20),
        record("eager", [10.0] * 20, minimum_bytes=48 << 20),
    ]
    for rows in (made, made[::-1]):
        assert " a call at least, with traffic of 48 MiB in fp32, 24 MiB in bf16." in PAGES[name](stored(*rows))
