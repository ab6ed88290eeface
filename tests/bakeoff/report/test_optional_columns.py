"""Columns that every table has where a row has a value, and no other: what feeding a captured graph takes, and whether
outputs equal eager's bit for bit. Both are in `--json`."""

from dataclasses import replace

import pytest
from few_records import records_of as stored
from pages import html_text, results_text, tables_text
from records import measurement, record

from bakeoff.record.schema import InputCopy, Measurement, Record, Samples
from bakeoff.record.store import Records
from bakeoff.report.pages import record as text_of_record
from bakeoff.report.pages import sweep
from bakeoff.report.render import terminal

MS = [10.0 + 0.1 * number for number in range(20)]
REPLAYED = InputCopy(False, 3 << 20, Samples([640_000, 610_000, 600_000]))
COPIED = InputCopy(True, 3 << 20)


def replaying() -> tuple[Record, ...]:
    graph = record("cudagraph", made=measurement(MS, input_copy=REPLAYED))
    reduced = record("inductor[reduce]", made=measurement(MS, input_copy=COPIED))
    made = (record("eager", MS), graph, reduced)
    return tuple(replace(entry, created=f"2026-01-02T03:04:0{place}.000000Z") for place, entry in enumerate(made))


def pages(records: Records) -> dict[str, str]:
    machine = records.machines()[0]
    return {
        "table": tables_text(records.current),
        "results": results_text(records, machine),
        "whole": results_text(records),
        "html": html_text(records),
    }


def test_every_page_shows_the_copy_beside_the_call_or_says_that_the_call_holds_it() -> None:
    for name, text in pages(stored(*replaying())).items():
        assert "copy ms" in text, name
        assert "0.610" in text, name
        assert "in call" in text, name


def of_bits(lossless: bool | None) -> Measurement:
    made = measurement(MS)
    assert made.parity is not None
    outputs = tuple(replace(output, lossless=lossless) for output in made.parity.outputs)
    return replace(made, parity=replace(made.parity, outputs=outputs))


def test_every_page_says_which_rows_are_lossless() -> None:
    names: tuple[tuple[str, bool | None], ...] = (("eager", True), ("inductor", False), ("torch.export", None))
    records = stored(*(record(name, made=of_bits(lossless)) for name, lossless in names))
    assert [row["lossless"] for row in sweep.as_rows(records.current)] == [True, False, None]
    for name, text in pages(records).items():
        rows = [line for line in text.splitlines() if line.startswith(("variant", "| variant", "<th"))]
        assert [line for line in rows if "lossless" in line], name
        assert "yes" in text, name
    shown = [terminal.render(text_of_record.document(entry)) for entry in records.current]
    assert ["lossless" in text for text in shown] == [True, True, False]


def test_where_eager_differs_from_itself_only_what_is_equal_is_known() -> None:
    names: tuple[tuple[str, bool], ...] = (("eager", False), ("inductor", False), ("torch.export", True))
    records = stored(*(record(name, made=of_bits(lossless)) for name, lossless in names))
    assert [row["lossless"] for row in sweep.as_rows(records.current)] == [None, None, True]


@pytest.mark.parametrize("heading", ["copy ms", "lossless"])
def test_a_table_without_values_has_no_such_column(heading: str) -> None:
    records = stored(record("eager", MS), record("inductor", MS))
    for name, text in pages(records).items():
        rows = [line for line in text.splitlines() if line.startswith(("variant", "| variant", "<th"))]
        assert rows, name
        assert not [line for line in rows if heading in line], name
