"""What text and pages say of a monitor's report, in the timed window where there is one."""

from dataclasses import replace

from pages import html_text
from pipeline_records import pipeline_record, run_of_two
from records import record

from bakeoff.record.monitor import MonitorCost, Monitored, Point, SeriesRecord, ThrottleTime
from bakeoff.record.store import Records, Stored, StoredPipeline
from bakeoff.report.notes import sentences
from bakeoff.report.pages import mix, pipelines
from bakeoff.report.pages import record as record_text
from bakeoff.report.render import terminal

SECOND = 1_000_000_000
COST = MonitorCost(
    60 * SECOND, 90_000_000, 90, {"gpu": 0.5, "cpu": 1.0}, {"gpu": 0.5, "cpu": 1.0}, {"gpu": 300_000, "cpu": 400_000}
)


def series(name: str, unit: str, values: list[float], source: str = "GPU-1") -> SeriesRecord:
    """A sample a second, from 0 s."""
    points = (Point(place * SECOND, value, value, value, 1) for place, value in enumerate(values))
    return SeriesRecord(name, unit, source, tuple(points))


SEEN = Monitored(
    series=(
        series("cpu.process", "%", [100.0, 190.0, 200.0, 10.0], "process"),
        series("gpu.power", "W", [70.0, 300.0, 355.0, 80.0]),
        series("gpu.memory", "MiB", [500.0, 12_000.0, 12_100.0, 12_100.0]),
    ),
    throttled=(ThrottleTime("GPU-1", "power cap", 0.25),),
    cost=COST,
    missing=("RAPL cannot be read without root",),
)
WINDOW = (1 * SECOND, 3 * SECOND)


def test_means_and_peaks_are_of_the_timed_window() -> None:
    figures, throttled, cost, missing = sentences(record(monitored=SEEN, monitored_window_ns=WINDOW))
    assert figures == (
        "monitored in the timed window of 2.0 s, mean and most: GPU power 328 and 355 W, "
        "GPU memory 12,050 and 12,100 MiB, CPU of its processes 195 and 200 %"
    )
    assert throttled == "throttled by power cap in 25.0% of the samples (GPU-1)"
    assert cost == "the monitor took 0.10% of one core while sampling (gpu every 0.5 s, cpu every 1 s)"
    assert missing == "not monitored: RAPL cannot be read without root"


def test_points_count_with_their_samples() -> None:
    merged = SeriesRecord(
        "gpu.power", "W", "GPU-1", (Point(0, 80.0, 100.0, 130.0, 3), Point(SECOND, 200.0, 200.0, 200.0, 1))
    )
    (text,) = sentences(record(monitored=Monitored((merged,)), monitored_window_ns=(0, 2 * SECOND)))
    assert text.endswith("GPU power 125 and 200 W")


def test_without_a_sample_in_the_window_all_are_shown_and_it_says_so() -> None:
    for window in (None, (3 * SECOND + 1, 4 * SECOND)):
        text = sentences(record(monitored=SEEN, monitored_window_ns=window))[0]
        assert text.startswith("monitored from its start to its end, mean and most: GPU power 201 and 355 W")


def test_a_gpu_that_mixes_share_is_said_to_be_shared() -> None:
    shared = "the GPU's figures are of all mixes that took turns"
    assert shared in sentences(pipeline_record(monitored=SEEN))[0]
    assert shared not in sentences(pipeline_record(monitored=SEEN, how="alone"))[0]
    alone = Monitored((SEEN.series[0],))
    assert shared not in sentences(pipeline_record(monitored=alone))[0], "it has no GPU"


def test_the_terminal_and_the_page_show_it() -> None:
    made = record("eager", [5.0, 6.0, 7.0], monitored=SEEN, monitored_window_ns=WINDOW)
    text = sentences(made)[0]
    assert f"monitor: {text}" in terminal.render(record_text.document(Stored("id-0", made)))
    shown = html_text(Records((Stored("id-0", made),), (), ()))
    assert "What a monitor saw" in shown
    assert text in shown
    plain = html_text(Records((Stored("id-0", record("eager", [5.0, 6.0, 7.0])),), (), ()))
    assert "What a monitor saw" not in plain


def test_remarks_of_a_mix_have_it() -> None:
    eager, best = run_of_two()
    kept = (StoredPipeline("id-0", replace(eager, monitored=SEEN)), StoredPipeline("id-1", best))
    text = sentences(kept[0].record)[0]
    for document in (pipelines.of_runs(kept), mix.document_of(kept[0])):
        assert text in terminal.render(document)
    assert text.replace("'", "&#39;") in html_text(Records((), (), (), pipelines=kept))
