"""What tables show of a build: its seconds, or its CPU seconds where other builds ran at the same time."""

from dataclasses import replace

import pytest
from comparisons import final
from few_records import stored
from pages import html_text, results_text, tables_text
from records import measurement, record

from bakeoff.record.schema import BuildCost, Record
from bakeoff.record.store import Records, StoredComparison
from bakeoff.report.columns import COLUMNS, build_seconds, table_rows
from bakeoff.report.notes import overlapped_text

ALONE = BuildCost("cold", 12.25, 3.5)
BESIDE = BuildCost("cold", None, cpu_s=71.04, overlapped=True, warm_cpu_s=9.11)


def built(cost: BuildCost, backend: str = "inductor") -> Record:
    return record(backend, made=replace(measurement([5.0 + 0.1 * index for index in range(20)]), build=cost))


@pytest.mark.parametrize(
    ("cost", "cell"),
    [
        (ALONE, "12.2/3.5"),
        (replace(ALONE, cpu_s=20.0, warm_cpu_s=5.0), "12.2/3.5"),
        (replace(ALONE, warm_s=None), "12.2/-"),
        (replace(ALONE, warm_s=None, warm_cpu_s=9.11), "12.2/9.1 cpu"),
        (BESIDE, "71.0 cpu/9.1 cpu"),
        (replace(BESIDE, warm_s=3.5), "71.0 cpu/3.5"),
        (replace(BESIDE, warm_cpu_s=None), "71.0 cpu/-"),
        (replace(BESIDE, cache="warm", warm_cpu_s=None), "-/71.0 cpu"),
        (replace(BESIDE, cache="none", warm_cpu_s=None), "71.0 cpu/-"),
        (replace(BESIDE, cpu_s=None), "-/9.1 cpu"),
    ],
)
def test_a_cell_names_what_is_no_wall_time(cost: BuildCost, cell: str) -> None:
    assert build_seconds(cost) == cell
    assert cost.shown_as_cpu is ("cpu" in cell or cost.overlapped)


def test_every_page_explains_cpu_where_a_row_has_it_and_only_there() -> None:
    for row, explained in ((built(BESIDE), True), (built(ALONE), False)):
        rows = stored(row)
        records = Records(rows, (), (), ())
        text = overlapped_text(stored(built(BESIDE)))
        assert text is not None
        for page in (
            tables_text(rows),
            results_text(records, rows[0].machine),
            results_text(records),
            html_text(records),
        ):
            assert (text[1:] in page) is explained
            assert ("71.0 cpu/9.1 cpu" in page) is explained


def test_rows_are_sorted_by_seconds_or_cpu_seconds_and_the_unknown_last() -> None:
    costs = (replace(BESIDE, cpu_s=None), BESIDE, ALONE)
    assert sorted(costs, key=COLUMNS["build"].order) == [ALONE, BESIDE, replace(BESIDE, cpu_s=None)]


def test_a_finalist_shows_the_warm_build_of_its_side_in_the_final() -> None:
    cold = built(replace(ALONE, warm_s=None))
    before = built(ALONE, "aoti")
    warm = replace(cold, measurement=replace(cold.measurement, build=BuildCost("warm", 2.25)))
    other = replace(before, measurement=replace(before.measurement, build=BuildCost("warm", 9.75)))
    rows = stored(cold, before)
    found = {
        row.record.variant.backend: COLUMNS["build"].text(row)
        for row in table_rows(rows, [StoredComparison("final", final(warm, other))])
    }
    assert found == {"inductor": "12.2/2.2", "aoti": "12.2/3.5"}, "a former record has its own"
