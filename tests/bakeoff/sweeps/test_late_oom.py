"""Memory that runs out after the timing: the row keeps its numbers, shows them, and is in no rank."""

from pathlib import Path

import lab
from few_records import history_text
from lab import check_sweep, sweep
from pages import html_text, tables_text
from records import measurement, record

from bakeoff.cli.progress import standings
from bakeoff.plan.request import Request
from bakeoff.record.finalists import finalists
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored
from bakeoff.report.figures import variants
from bakeoff.report.groups import baselines, stated_over
from bakeoff.report.pages import record as record_page
from bakeoff.report.pages import sweep as page_of_sweep
from bakeoff.report.render import terminal

NAME = "canaries:OOM_WHEN_CHECKED"
REASON = "timed, but not all checked: out of memory in calls with fresh inputs: RuntimeError: can't allocate memory"
SLOW, FAST, FASTEST = ([first + 0.01 * index for index in range(20)] for first in (30.0, 20.0, 10.0))


def test_a_check_after_the_timing_that_runs_out_of_memory_leaves_the_numbers(tmp_path: Path) -> None:
    swept = sweep(Request("toy", backends=(NAME,), dtypes=("fp32",), device="cpu", policy=lab.FAST), tmp_path)
    made = swept.records()[NAME].measurement
    assert made.status == "oom"
    assert made.reason.startswith("timed, but not all checked: out of memory in calls with fresh inputs: ")
    assert "can't allocate memory" in made.reason
    assert "can't allocate memory" in made.traceback
    kept = (made.latency, made.throughput, made.overhead, made.build, made.proof, made.window_checks)
    assert None not in kept
    assert made.parity is not None
    assert made.parity.passed
    assert made.memory is None
    check_sweep(swept)


def late(name: str, samples: list[float]) -> Record:
    return record(name, samples, "oom", REASON, made=measurement(samples, "oom", REASON, memory=None))


def stored(*made: Record) -> tuple[Stored, ...]:
    return tuple(Stored(f"id-{place}", entry) for place, entry in enumerate(made))


ROWS = stored(record("eager", SLOW), late("aoti", FASTEST), record("inductor", FAST))


def test_its_numbers_and_its_reason_are_on_every_page() -> None:
    records = Records(ROWS, (), ())
    one = terminal.render(record_page.document(ROWS[1]))
    for text in (tables_text(ROWS), history_text(records), html_text(records), one):
        assert "10.09" in text
        assert "out of memory in calls with fresh inputs" in text
    (line,) = [line for line in page_of_sweep.as_rows(ROWS) if "aoti" in str(line)]
    assert "10.09" in str(line)
    assert str(line).count("oom")
    drawn = variants.bars(ROWS)
    assert drawn is not None
    assert [row["name"] for row in drawn.spec["data"]["values"]].count("aoti fp32") == 1


def test_it_is_in_no_rank() -> None:
    assert [str(entry.record.variant.backend) for entry in finalists(ROWS)] == ["inductor", "eager"]
    ((shown, _),) = standings(entry.record for entry in ROWS)
    assert [row.status for row in shown] == ["ok", "ok", "oom"]


def test_ratios_are_not_stated_over_it() -> None:
    rows = stored(late("eager", SLOW), record("inductor", FAST))
    assert stated_over(baselines(rows)) is None
    ((_, base),) = standings(entry.record for entry in rows)
    assert base is None
    assert len(finalists(rows)) == 1
