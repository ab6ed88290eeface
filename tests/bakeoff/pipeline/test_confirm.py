"""The runs of a budget: which mix is shipped, what the error of the promise is, and what the page says."""

from collections.abc import Sequence
from dataclasses import replace
from html import unescape

import pytest
from pipeline_records import measured, pipeline_record, scaled, units

from bakeoff.mix import parse_mix
from bakeoff.record.budget import check_forecast, check_run, shipped
from bakeoff.record.forecast import BETWEEN, forecast_error
from bakeoff.record.objective import OF_BUDGET, parse_objective
from bakeoff.record.pipeline import Budget, Forecast, PipelineRecord
from bakeoff.record.store import StoredPipeline
from bakeoff.report.pages.budget import document
from bakeoff.report.render import html, terminal

CHOICES = ("inductor/bf16", "aoti/bf16", "openvino/bf16")
HOSTILE = "</script><script>document.title='owned'</script> \x1b[2J"


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


def test_the_records_answer_says_that_nothing_was_run_and_which_limits_only_a_run_tells() -> None:
    text = " ".join(page((), budget("mean,fps>=9.5,p99<=200ms")).split())
    assert "is the fastest of 343 mixes that meets the limits: 100.00 ms a frame, 10.00 frames/s are promised" in text
    assert "limits unknown: p99 unknown, only a run tells. It was not run." in text
    assert "Mixes, 3 of 343" in text
    assert "between programs" not in text, "an earlier version did not say what it promised of it"
    known = budget("mean", replace(forecast(CHOICES[0]), parts_ms={"wm": 100.0}))
    assert "between programs a frame takes an unknown time, promised as 0" in " ".join(page((), known).split())


def test_a_promise_is_shown_with_its_interval_and_with_the_mixes_that_may_be_as_fast() -> None:
    first, *others = (
        replace(forecast(choice, ms), interval=(ms / 1.1, ms * 1.1), parts_ms={BETWEEN: 7.0})
        for choice, ms in zip(CHOICES, (100.0, 109.0, 112.0), strict=True)
    )
    text = " ".join(page((), budget("mean", first, *others)).split())
    assert "100.00 [90.91, 110.00] ms a frame" in text
    assert "It was not run. 1 other mix may be as fast." in text
    assert "between programs a frame takes 7.000 ms in the first mix" in text


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


def test_where_none_meets_the_limits_the_fastest_are_shown_with_what_they_miss() -> None:
    asked = replace(budget("mean,fps>=20,sqnr>=30"), candidates=())
    text = terminal.render(document("owl:200m", "frame", asked, [forecast(CHOICES[0])]))
    assert "Ship none: of 343 mixes none meets the limits by the records. These are the fastest." in text
    assert "A: not met: fps 10, 50% below 20" in text


def test_each_column_is_explained_once_and_mixes_that_are_not_ok_get_no_verdict() -> None:
    text = page(run(budget()), width=80)
    explained = [line.partition(":")[0] for line in text.partition("\nColumns\n")[2].splitlines() if ": " in line]
    assert len(explained) == len(set(explained))
    assert "B is 0.99x as fast as A" in text
    text = page(run(budget(), status="unstable", reason="drift"))
    assert "no verdict on A against B: not ok: A, B" in text
    assert "A: dropped: drift" in text
    assert "By mean,fps>=9.5, ship none of 2 mixes that ran: none is ok and meets the limits." in text
    assert shipped(run(budget(), status="unstable", reason=HOSTILE)) is None


def test_the_slower_of_two_that_hold_is_not_chosen() -> None:
    assert shipped(run(budget("mean"), 1.2)).id == "id-1"  # type: ignore[union-attr]
    assert shipped(run(budget("mean"))).id == "id-0"  # type: ignore[union-attr]


def test_a_figure_that_could_not_be_measured_breaks_no_limit_but_is_said() -> None:
    stored = run(budget("p99<=200ms"))
    record = stored[0].record
    assert [check.word for check in check_run(record, record.budget.objective)] == ["unknown"]  # type: ignore[union-attr]
    assert "limits unknown: p99 unknown, 20 steady units of the 100 that it takes" in page(stored, record.budget)


def test_hostile_text_is_escaped_and_fits() -> None:
    hostile = replace(forecast(CHOICES[0]), slots=f"wm={HOSTILE}")
    stored = run(budget(), status="unstable", reason=HOSTILE)
    made = document(HOSTILE, "frame", budget("mean", hostile), (), stored, [HOSTILE])
    text = html.render(made)
    assert "<script>document.title" not in text
    assert "document.title='owned'" in unescape(text)
    shown = terminal.render(made, 80)
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_equal_records_give_an_equal_page() -> None:
    assert page(run(budget())) == page(run(budget()))
