"""Records with odd figures: every page shows them, and none ends with an error."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ceilings import CEILINGS, MIB
from pages import PAGES, tables_text
from records import GPU_HOST, clock, measurement, record

from bakeoff.record.objective import Objective
from bakeoff.record.schema import Clock, OutputParity, Parity, Record, Samples, Status
from bakeoff.record.store import Records, Stored, load_all, save
from bakeoff.report.columns import COLUMNS, TableRow, table_rows
from bakeoff.report.groups import name_of
from bakeoff.report.notes import spread_lines

LARGE = 2**63 - 1
ODD: dict[str, dict[str, Any]] = {
    "no work": {"flops": 0},
    "no traffic": {"minimum_bytes": 0},
    "neither": {"flops": 0, "minimum_bytes": 0},
    "much work": {"flops": LARGE},
    "much traffic": {"minimum_bytes": LARGE},
    "one byte": {"flops": 1, "minimum_bytes": 1},
    "no calls a frame": {"calls_per_frame": 0},
    "no frames": {"frames_per_call": 0},
    "no parameters": {"parameters": 0},
    "rates of zero": {"ceilings": tuple(replace(entry, best=0.0, median=0.0) for entry in CEILINGS)},
    "negative rates": {"ceilings": tuple(replace(entry, best=-1.0, median=-1.0) for entry in CEILINGS)},
    "huge rates": {"ceilings": tuple(replace(entry, best=1e300, median=1e300) for entry in CEILINGS)},
    "no versions": {"versions": {}},
    "a GPU without facts": {"host": replace(GPU_HOST, gpus=({"name": "GPU"},))},
    "one short sample": {"made": measurement([1e-6])},
    "one long sample": {"made": measurement([9e12])},
    "no samples": {"made": replace(measurement([1.0]), latency=Clock(Samples()), throughput=Clock(Samples()))},
}


def odd(backend: str, **changes: Any) -> Record:
    return record(backend, [10.0, 11.0, 12.0], **{"minimum_bytes": MIB, "ceilings": CEILINGS, **changes})


@pytest.mark.parametrize("name", ODD)
def test_every_page_shows_an_odd_record(tmp_path: Path, name: str) -> None:
    for backend, quantisation in (("eager", ""), ("inductor", ""), ("int8", "dynamic")):
        save(tmp_path, odd(backend, quantisation=quantisation, **ODD[name]))
    save(tmp_path, odd("aoti"))
    records = load_all(tmp_path)
    assert (len(records.current), records.problems) == (4, ())
    for page, render in PAGES.items():
        assert render(records), page
    shown = tables_text(records.current)
    assert all(name_of(entry.record) in shown for entry in records.current)


def test_samples_of_zero_in_memory_give_empty_ratios() -> None:
    """The reader refuses them; a page that is given them shows no figure made from them."""
    zero = replace(measurement([1.0]), latency=clock([0.0, 0.0]), throughput=clock([0.0]))
    rows = tuple(
        Stored(f"20260102T030405Z_{number}_abcdef012345", made)
        for number, made in enumerate((odd("eager", made=zero), odd("inductor", made=zero), odd("aoti")))
    )
    assert all(render(Records(rows, (), ())) for render in PAGES.values())
    assert list(spread_lines(rows, rows)) == []
    for row in list(table_rows(rows))[:2]:
        for key in ("vs_eager", "of_floor", "calls_per_s", "mean_calls_per_s", "video_fps"):
            assert COLUMNS[key].value(row) is None


@pytest.mark.parametrize("status", ["ok", "unstable"])
def test_only_rows_that_are_ok_have_rates(status: Status) -> None:
    """Of other rows no stretch of calls may have reached a median's reciprocal."""
    made = replace(record("eager", [10.0] * 20, status=status), calls_per_frame=1)
    for key in ("calls_per_s", "items_per_s", "video_fps"):
        shown = COLUMNS[key].value(TableRow(Stored("id", made), objective=Objective("throughput")))
        assert (shown is not None) == (status == "ok"), key


def test_the_error_of_a_row_is_the_worst_of_its_outputs() -> None:
    outputs = [OutputParity(name, error, 1e-3, True) for name, error in (("image", 1e-6), ("sound", 2e-4))]
    for parity, error in (
        ([*outputs], 2e-4),
        (outputs[::-1], 2e-4),
        ([*outputs, replace(outputs[0], rel_l2=None)], None),
    ):
        made = record("eager", made=measurement([10.0], parity=Parity("reference", "fp64", 4, tuple(parity))))
        assert COLUMNS["error"].value(TableRow(Stored("id", made))) == error


def test_samples_with_two_modes_are_shown_by_both() -> None:
    """Of 100 samples, 41 are of the slower mode; their median is the time of no call."""
    samples = [115.0 + 0.01 * (index % 7) for index in range(59)] + [215.1 + 0.01 * (index % 7) for index in range(41)]
    two, one = record("eager", samples), record("eager", samples[:59])
    for key in ("median_ms", "latency"):
        assert COLUMNS[key].text(TableRow(Stored("id", two))) == "115.03 | 215.13 (41 %)"
        assert "|" not in COLUMNS[key].text(TableRow(Stored("id", one)))
    assert "115.03 | 215.13 (41 %)" in tables_text([Stored("id", two)])
