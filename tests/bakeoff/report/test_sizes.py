"""The table by size: each engine at each size, in text, on the HTML page and as data; and the rule for padding."""

from typing import Any

import pytest
from pages import tables_text
from records import measurement, record

from bakeoff.record.schema import Record, Samples, SizeResult, SizeStatus
from bakeoff.record.store import Stored
from bakeoff.report.pages import record as page_of_record
from bakeoff.report.render import terminal
from bakeoff.worker.sizes import size_findings, status_with_sizes, with_padding

TEN = [10.0] * 20


def size(rows: int, ms: float = 0.0, status: SizeStatus = "ok", **more: Any) -> SizeResult:
    samples = Samples([round(ms * 1e6)] * 20 if ms else [])
    which = "usual" if rows == 4 else "unseen" if rows == 6 else "seen"
    return SizeResult(f"x.0={rows}", which, {"x": (rows, 8)}, status, samples_ns=samples, **more)


def made(backend: str, *sizes: SizeResult) -> Record:
    return record(backend, made=measurement(TEN, sizes=sizes))


RECORDS = (
    made("eager", size(2, 5.0), size(4), size(6, 15.0), size(8, 20.0)),
    made(
        "inductor",
        size(2, 5.0, "recompiled", compilations=1, first_call_ns=3_200_000_000),
        size(4),
        size(6, status="refused", reason="no kernel"),
        size(8, 20.0, "parity_failed"),
    ),
    record("cudagraph", status="unsupported", reason="one size"),
)
STORED = tuple(Stored(f"id-{place}", entry) for place, entry in enumerate(RECORDS))


def test_each_engine_has_its_time_and_word_at_each_size() -> None:
    lines = tables_text(STORED).partition("but not asked for\n")[2].splitlines()
    assert lines[0].split()[2:] == ["x.0=2", "x.0=4", "x.0=6", "*", "x.0=8"]
    eager, inductor = lines[2], lines[3]
    assert eager.split("  ")[0] == "eager fp32"
    for text in ("5.000 [5.000, 5.000]", "10.00 [10.00, 10.00]", "15.00 [15.00, 15.00]", "20.00 [20.00, 20.00]"):
        assert text in eager
    assert "5.000 [5.000, 5.000] recompiled 1x, first call 3.2 s" in inductor
    assert " refused " in inductor
    assert "20.00 [20.00, 20.00] parity_failed" in inductor
    assert "cudagraph" not in "\n".join(lines[:4])


def test_the_record_says_of_each_size_what_happened_and_whose_inputs_it_had() -> None:
    entry = made(
        "inductor",
        size(4),
        size(2, 5.0, "recompiled", compilations=1, first_call_ns=3_200_000_000),
        size(6, status="refused", reason="no kernel"),
        size(8, 20.0, rel_l2=1.5e-6, limit=1e-4),
    )
    text = terminal.render(page_of_record.document(Stored("id", entry)))
    lines = text[text.index("\nSizes") :].splitlines()
    rows = [line.split() for line in lines if line.startswith("x.0")]
    assert [" ".join(cells) for cells in rows] == [
        "x.0=4 10.00 [10.00, 10.00] usual x 4x8 ok",
        "x.0=2 5.000 [5.000, 5.000] seen x 2x8 recompiled 3200 ms 1",
        "x.0=6 unseen x 6x8 refused no kernel",
        "x.0=8 20.00 [20.00, 20.00] seen x 8x8 ok 1.5e-06 0.0001",
    ]
    assert "\nSizes" not in terminal.render(page_of_record.document(Stored("id", record("eager", TEN))))


@pytest.mark.parametrize(
    ("own_ms", "eager_ms", "status"), [(19.0, 5.0, "padded"), (10.0, 5.0, "ok"), (19.0, 15.0, "ok"), (19.0, 0.0, "ok")]
)
def test_an_engine_pads_where_its_times_are_equal_and_eagers_are_not(
    own_ms: float, eager_ms: float, status: str
) -> None:
    largest = size(8, 20.0, eager_ns=20_000_000)
    found = with_padding(size(2, own_ms, eager_ns=round(eager_ms * 1e6)), largest, 10e6)
    assert found.status == status
    if status == "padded":
        assert found.reason == "x.0=8 takes 1.05 times as long as x.0=2, and 4.0 times in eager"
    assert with_padding(largest, largest, 10e6) == largest


def test_failures_within_the_range_decide_the_status_and_the_rest_is_said() -> None:
    findings = size_findings(RECORDS[1].measurement.sizes)
    assert [(one.code, one.text) for one in findings] == [
        ("sizes", "wrong outputs at x.0=8"),
        ("sizes", "no call succeeds at x.0=6 (not listed): no kernel"),
        ("sizes", "compiled again for x.0=2"),
    ]
    every = RECORDS[1].measurement.sizes
    assert status_with_sizes("ok", "", every) == ("parity_failed", "wrong outputs at x.0=8")
    refused = [one for one in every if one.status != "parity_failed"]
    assert status_with_sizes("ok", "", refused) == ("call_failed", findings[1].text)
    assert status_with_sizes("ok", "", [one for one in refused if one.status != "refused"]) == ("ok", "")
    assert status_with_sizes("fell_back", "eager", every) == ("fell_back", "eager")
