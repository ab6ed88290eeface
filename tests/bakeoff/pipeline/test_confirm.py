"""The runs of a budget: which mix is shipped, what the error of the promise is, and what the page says."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pipeline_records import measured, pipeline_record, scaled, units

from bakeoff.mix import parse_mix
from bakeoff.record.budget import check_forecast, check_run, shipped
from bakeoff.record.forecast import forecast_error
from bakeoff.record.objective import OF_BUDGET, parse_objective
from bakeoff.record.pipeline import Budget, Forecast, PipelineRecord
from bakeoff.record.store import StoredPipeline
from bakeoff.report.pages.budget import document
from bakeoff.report.render import terminal

CHOICES = ("inductor/bf16", "aoti/bf16", "openvino/bf16")


def forecast(choice: str, ms: float = 100.0) -> Forecast:
    return Forecast(f"wm={choice},image=eager/fp32", ms, 800 << 20, 38.0)


def budget(objective: str = "mean,fps>=9.5", *forecasts: Forecast) -> Budget:
    made = forecasts or tuple(forecast(choice, 100.0 + place) for place, choice in enumerate(CHOICES))
    return Budget(parse_objective(objective, OF_BUDGET), None, 1, 343, made, ("a", "b"))


def run(asked: Budget, *factors: float, **changes: object) -> list[StoredPipeline]:
    """The two best mixes in turns; each unit of a mix takes its factor times what the records promise, or 1."""
    pairs = zip(asked.candidates[:2], (*factors, 1.0, 1.0), strict=False)
    return [
        StoredPipeline(f"id-{place}", _record(asked, each, factor, **changes))
        for place, (each, factor) in enumerate(pairs)
    ]


def _record(asked: Budget, each: Forecast, factor: float, **changes: object) -> PipelineRecord:
    text, factor = f"owl:200m/{each.slots}@cpu", factor * each.ms / 100
    walls = [{name: ms / (1 + place / 1000) for name, ms in unit.items()} for place, unit in enumerate(scaled(factor))]
    made = measured(text, factor, **{"units": units(walls), **changes})
    return pipeline_record(text, "", made, budget=asked, run="run-1", mix=parse_mix(text), forecast=None)


def page(stored: Sequence[StoredPipeline], asked: Budget | None = None, width: int | None = None) -> str:
    return terminal.render(document("owl:200m", "frame", asked or budget(), (), stored), width)


def test_a_mix_that_takes_longer_than_promised_and_breaks_the_limit_is_not_shipped() -> None:
    stored = run(budget(), 1.1)
    errors = [forecast_error(entry.record) for entry in stored]
    assert errors[0] == pytest.approx(0.10, abs=0.01)
    assert errors[1] == pytest.approx(0.0, abs=0.001)
    chosen = shipped(stored)
    assert chosen is not None
    assert chosen.record.mix.variants == f"wm={CHOICES[1]},image=eager/fp32"
    lines = page(stored).splitlines()
    verdict = next(line for line in lines if line.startswith("By mean"))
    assert verdict == (
        "By mean,fps>=9.5, ship wm=aoti/bf16,image=eager/fp32: mean 101.00 ms a frame, 9.90 frames/s; "
        "101.00 ms were promised (+0.0%); limits met."
    )
    assert lines.index(verdict) < next(place for place, line in enumerate(lines) if "promised ms" in line)
    assert any("A: dropped: not met: fps 9.09, 4.3% below 9.5" in line for line in lines)
    assert sum("promised ms" in line for line in lines) == 2, "one table, and its column explained"


@pytest.mark.parametrize(
    ("limit", "word"), [("115ms", "met"), ("105ms", "unclear"), ("95ms", "unclear"), ("90ms", "not met")]
)
def test_a_limit_within_the_interval_is_unclear(limit: str, word: str) -> None:
    promised = replace(forecast(CHOICES[0]), interval=(100 / 1.1, 110.0))
    assert check_forecast(promised, budget(f"mean<={limit}"))[0].word == word
    fps = f"fps>={1000 / float(limit.removesuffix('ms')):.6f}"
    assert check_forecast(promised, budget(fps))[0].word == word


def test_of_two_that_hold_the_one_with_the_better_promise_before_it_ran_is_shipped() -> None:
    first, second = run(budget("mean"))
    promised = [
        replace(forecast(CHOICES[0], 102.0), anchored=True),
        replace(forecast(CHOICES[1], 101.0), anchored=True),
    ]
    entries = [
        replace(entry, record=replace(entry.record, forecast=each))
        for entry, each in zip((first, second), promised, strict=True)
    ]
    assert shipped(entries).id == "id-1"  # type: ignore[union-attr]
    assert shipped([first, second]).id == "id-0"  # type: ignore[union-attr]


def test_the_slower_of_two_that_hold_is_not_chosen() -> None:
    assert shipped(run(budget("mean"), 1.2)).id == "id-1"  # type: ignore[union-attr]
    assert shipped(run(budget("mean"))).id == "id-0"  # type: ignore[union-attr]


def test_a_figure_that_could_not_be_measured_breaks_no_limit_but_is_said() -> None:
    stored = run(budget("p99<=200ms"))
    record = stored[0].record
    assert [check.word for check in check_run(record, record.budget.objective)] == ["unknown"]  # type: ignore[union-attr]
    assert "limits unknown: p99 unknown, 20 steady units of the 100 that it takes" in page(stored, record.budget)
