"""What pages say of mixes under a schedule: times and latencies by hand, and whether anything was gained."""

from dataclasses import replace

import pytest
from pipeline_records import EAGER, measured, pipeline_record

from bakeoff.record.pipeline import Forecast, Line, PipelineRecord
from bakeoff.record.store import StoredPipeline
from bakeoff.report import schedules
from bakeoff.report.pipelines import named

BEHIND = f"{EAGER}/decode-behind:1+1"


def under(schedule: str, factor: float, promised_ms: float, slowdown: float = 1.0) -> PipelineRecord:
    """A record of eager whose units take `factor` of 100 ms; a second lane is done after 40 ms of each."""
    promise = Forecast(
        "", promised_ms, 3 << 20, None, latency_ms=promised_ms + 30, slowdowns={"wm.step beside image.decode": slowdown}
    )
    made = measured(EAGER, factor, promised=promise)
    assert made.units is not None
    if schedule:
        count = len(made.units.wall_ns)
        idle = tuple(wall_ns - 40_000_000 for wall_ns in made.units.wall_ns)
        beside = Line("decode", "phase", "image", (40_000_000,) * count), Line("idle", "idle", "", idle)
        made = replace(made, units=replace(made.units, beside=beside, done_ns=(40_000_000,) * count))
    return pipeline_record(EAGER + schedule, "eager", made)


def told(*records: PipelineRecord) -> list[str]:
    rows = named([StoredPipeline(str(place), record) for place, record in enumerate(records)])
    return [f"{text.label}: {text.text}" for text in schedules.texts(rows)]


def test_a_gain_is_said_with_what_was_promised() -> None:
    first, second = told(under("", 1.0, 100.0), under("/decode-behind:1+1", 0.7, 68.0, 1.2))
    assert first.startswith("eager decode-behind:1+1: a unit takes 70.")
    assert "68.00 were promised" in first
    assert "its outputs are ready 110" in first, "70 ms, and 40 of the next unit"
    assert "ms after it begins, 98.0" in first
    assert "second lane: decode 40.000, idle 30." in first
    assert "buffers for it take 3.0 MiB" in first
    assert second.startswith("eager decode-behind:1+1: gains: 1.43x [")
    assert "1.47x the rate was promised; wm.step beside image.decode takes 1.20x as long" in second


def test_the_memory_that_a_schedule_adds_is_in_the_data() -> None:
    assert schedules.as_data(under("/decode-behind:1+1", 0.7, 68.0))["added_bytes"] == 3 << 20
    assert schedules.as_data(under("", 1.0, 100.0)) == {}


def test_contention_that_eats_the_gain_is_said_with_the_program_that_it_slows_down() -> None:
    _, second = told(under("", 1.0, 100.0), under("/decode-behind:1+1", 1.1, 108.0, 1.9))
    assert second.startswith("eager decode-behind:1+1: loses: 0.91x")
    assert "0.93x the rate was promised; wm.step beside image.decode takes 1.90x as long" in second


def test_a_unit_as_one_graph_says_what_it_takes_and_adds() -> None:
    made = measured(EAGER, 0.7, promised=Forecast("", 100.0, 3 << 20, None, latency_ms=100.0))
    assert made.units is not None
    lines = (Line("graph", "phase", "", tuple(ns - 1_000_000 for ns in made.units.wall_ns)),)
    lines += (Line("copies", "copies", "", (1_000_000,) * len(made.units.wall_ns)),)
    record = pipeline_record(EAGER + "/one-graph", "eager", replace(made, units=replace(made.units, lines=lines)))
    (text, _) = told(under("", 1.0, 100.0), record)
    assert text.startswith("eager one-graph: a unit takes 70.")
    assert text.endswith("were promised; buffers for it take 3.0 MiB"), "it has no second lane"
    assert schedules.as_data(record)["added_bytes"] == 3 << 20


def test_nothing_is_said_of_sequential_mixes_and_of_former_records() -> None:
    assert told(pipeline_record(), under("", 1.0, 100.0)) == []


@pytest.mark.parametrize(("schedule", "latency_ms"), [("", 100.0), ("/decode-behind:1+1", 140.0)])
def test_the_latency_of_a_picture_is_measured_from_its_units_beginning(schedule: str, latency_ms: float) -> None:
    found = schedules.latency_ms(under(schedule, 1.0, 90.0))
    assert found == pytest.approx(latency_ms, rel=0.02)
