"""Figures of sessions: what is drawn of which unit, and what a long series keeps."""

from dataclasses import replace
from typing import Any

import pytest
from sessions import MS, session_record, wave

from bakeoff.record.monitor import Point, SeriesRecord
from bakeoff.record.session import SessionEvent, SessionRecord
from bakeoff.report.figures.session import MOST_POINTS, series_figure, timeline_figures
from bakeoff.report.figures.vega import Figure, drawn

RECORD = session_record()
Spec = dict[str, Any]


def values(figure: Figure | None, layer: int) -> list[Spec]:
    assert figure is not None
    found: list[Spec] = figure.spec["layer"][layer]["data"]["values"]
    return found


def drawn_series(points: list[Point], record: SessionRecord = RECORD) -> Figure | None:
    return series_figure(SeriesRecord("depth", "frames", "user", tuple(points)), record, "depth")


class TestTimeline:
    def test_it_has_the_first_and_the_last_units(self) -> None:
        first, last = timeline_figures(RECORD)
        assert (first.heading, first.caption) == ("units 0 to 2", "310.00 ms, from 500.00 ms after the session's start")
        assert (last.heading, last.caption) == ("units 20 to 39", "2.1 s, from 2.6 s after the session's start")
        kinds = [bar["what"] for figure in (first, last) for bar in values(figure, 0) if "unit" in bar]
        assert (kinds.count("steady unit"), kinds.count("opening unit")) == (22, 1)
        assert timeline_figures(replace(RECORD, spans=RECORD.spans[::-1])) == (first, last)

    def test_ranges_lie_by_depth_at_their_times(self) -> None:
        first, last = timeline_figures(RECORD)
        denoise, step = (next(bar for bar in values(first, 0) if bar["what"] == what) for what in ("denoise", "step"))
        assert denoise == {"what": "denoise", "from": 0.0, "to": 50.0, "row": 1, "ms": 50.0}
        assert (step["row"], step["from"], step["ms"]) == (2, 2.0, 12.0)
        assert "s after" in last.spec["layer"][0]["encoding"]["x"]["title"]
        assert max(bar["to"] for bar in values(last, 0)) == pytest.approx(2.095)

    def test_events_are_marked_within_it(self) -> None:
        first, last = timeline_figures(RECORD)
        (mark,) = values(first, 1)
        assert (mark["event"], mark["at"], mark["from"]) == ("checkpoint_loaded", "500.00 ms", 0)
        assert len(last.spec["layer"]) == 1, "no event was there"


class TestSeries:
    def test_the_mean_lies_in_a_band_and_events_are_marked(self) -> None:
        figure = series_figure(wave("gpu.power", "W", "GPU-1", RECORD.ns, 350.0, 60.0), RECORD, "series-1")
        assert figure is not None
        assert (figure.heading, figure.caption.partition(":")[0]) == ("gpu.power, W", "GPU-1")
        band, line = (layer["encoding"] for layer in figure.spec["layer"][0]["layer"])
        assert [band["y"]["field"], band["y2"]["field"], line["y"]["field"]] == ["least", "greatest", "mean"]
        assert [mark["event"] for mark in values(figure, 1)] == ["checkpoint_loaded", "saved (failed)"]
        assert "s after the start" in band["x"]["title"]

    def test_a_long_series_keeps_its_peak(self) -> None:
        figure = drawn_series([Point(at * MS, 1.0, 2.0, 9_000.0 if at == 777 else 3.0, 2) for at in range(2_000)])
        (columns,) = values(figure, 0)
        assert len(columns["mean"]) <= MOST_POINTS
        assert max(columns["greatest"]) == 9_000.0
        assert figure is not None
        assert figure.caption == "user: 1 to 9000, mean 2, 4,000 samples"

    def test_what_cannot_be_drawn_has_no_figure(self) -> None:
        assert drawn_series([]) is None
        assert drawn_series([Point(0, -1.7e308, 0.0, 1.7e308, 2)]) is None
        assert drawn_series([Point(0, 1.0, 1.0, 1.0, 1)], replace(RECORD, ns=0)) is None


def test_the_library_draws_them(capfd: pytest.CaptureFixture[str]) -> None:
    odd = replace(RECORD, events=(SessionEvent(-5, "early"), SessionEvent(2**62, "late")))
    figures = [*timeline_figures(odd), drawn_series([Point(5, 1.0, 1.0, 1.0, 1)], odd)]
    for figure in figures:
        assert figure is not None
        assert drawn(figure).startswith(b"<svg")
    assert capfd.readouterr() == ("", "")
