"""Running the candidates of a budget: which mix is shipped, what the error of the promise is, what the page says."""

from collections.abc import Sequence
from dataclasses import replace
from html import unescape

import pytest
from pipeline_records import LINES, measured, pipeline_record, scaled, units

from bakeoff.mix import parse_mix
from bakeoff.pipeline.budget import confirm
from bakeoff.record.budget import Solution, check_forecast, check_run, forecast_error, program_shares, shipped
from bakeoff.record.objective import OF_BUDGET, parse_objective
from bakeoff.record.pipeline import Budget, Forecast, PipelineRecord
from bakeoff.record.store import StoredPipeline
from bakeoff.report.pages.budget import document
from bakeoff.report.render import html, terminal

WAYS = ("inductor/bf16", "aoti/bf16", "openvino/bf16", "eager/bf16", "inductor/fp32", "aoti/fp32", "openvino/fp32")
HOSTILE = "</script><script>document.title='owned'</script> \x1b[2J"


def forecast(way: str, ms: float = 100.0) -> Forecast:
    return Forecast(f"wm={way},image=eager/fp32", ms, ms * 0.99, ms * 1.01, ms * 1.2, 800 << 20, 30.0, 38.0, None)


def budget(objective: str = "mean,fps>=9.5", *forecasts: Forecast) -> Budget:
    made = forecasts or tuple(forecast(way, 100.0 + place) for place, way in enumerate(WAYS))
    return Budget(parse_objective(objective, OF_BUDGET), None, 1, 343, made, 1, made[:1], 6.0, "id-between", ("a", "b"))


def run_of(factors: dict[str, float], rounds: list[list[str]], **changes: object):  # type: ignore[no-untyped-def]
    """A run in which each unit of a mix takes its factor times what the records promise; 1 if it is not given."""

    def run(asked: Budget, mixes: Sequence[Forecast]) -> list[StoredPipeline]:
        rounds.append([each.slots for each in mixes])
        return [
            StoredPipeline(f"id-{len(rounds)}-{place}", _record(asked, each, factors, len(rounds), **changes))
            for place, each in enumerate(mixes)
        ]

    return run


def _record(asked: Budget, each: Forecast, factors: dict[str, float], number: int, **changes: object) -> PipelineRecord:
    way = each.slots.partition(",")[0].removeprefix("wm=")
    text = f"owl:200m/{each.slots}@cpu"
    factor = factors.get(way, 1.0) * each.ms / 100
    walls = [{name: ms / (1 + place / 1000) for name, ms in unit.items()} for place, unit in enumerate(scaled(factor))]
    made = measured(text, factor, **{"units": units(walls), **changes})
    assert set(walls[0]) <= set(LINES)
    return pipeline_record(text, "", made, budget=asked, run=f"run-{number}", mix=parse_mix(text))


def test_an_interaction_of_ten_percent_is_published_and_the_next_mix_is_chosen_where_the_limit_breaks() -> None:
    rounds: list[list[str]] = []
    stored = confirm(budget(), run_of({WAYS[0]: 1.1}, rounds))
    assert rounds == [[f"wm={way},image=eager/fp32" for way in WAYS[:2]]]
    errors = [forecast_error(entry.record) for entry in stored]
    assert errors[0] == pytest.approx(0.10, abs=0.01)
    assert errors[1] == pytest.approx(0.0, abs=0.001)
    chosen = shipped(stored)
    assert chosen is not None
    assert chosen.record.mix.variants == f"wm={WAYS[1]},image=eager/fp32"
    text = page(stored)
    assert "Ship B, wm=aoti/bf16,image=eager/fp32: 101.00 ms a frame, 9.90 frames/s; limits met." in text
    assert "A: a unit takes 110.00 ms, 100.00 were promised (+10.0%)" in text
    assert "A: dropped: not met: fps 9.09, 4.3% below 9.5" in text


def page(stored: Sequence[StoredPipeline], found: Budget | None = None, width: int | None = None) -> str:
    return terminal.render(document("owl:200m", "frame", Solution(found or budget()), (), stored), width)


def test_the_records_answer_states_its_interval_ties_limits_that_are_unclear_and_what_is_not_shown() -> None:
    wide = replace(forecast(WAYS[0]), low_ms=36.0, high_ms=197.0)
    near, far = forecast(WAYS[1], 101.0), forecast(WAYS[2], 104.0)
    found = replace(budget("mean,fps>=9.5", wide, near, far), tied=2, between_from="")
    text = " ".join(page((), found).split())
    assert "is one of the best 2 of 343 mixes: 100.00 ms a frame [36.00, 197.00], 10.00 frames/s" in text
    assert "unclear: fps 10 [5.08, 27.8], 5.3% above 9.5. It was not run." in text
    assert "no difference is predicted between A, B; A has the least median" in text
    assert "Mixes by their records, 3 of 343; the others miss a limit or rank lower" in text
    assert [check.word for each in (wide, near) for check in check_forecast(each, found)] == ["unclear", "met"]
    assert "0 ms, because no earlier run of this pipeline on this machine is ok" in text
    quick = replace(found, candidates=(replace(near, build_s=4.3), wide), front=())
    assert "between A, B; A builds in the fewest seconds, 4.3" in page((), quick)


def test_each_column_is_explained_once_and_mixes_that_are_not_ok_get_no_verdict() -> None:
    text = page(confirm(budget(), run_of({}, [])), width=80)
    explained = [line.partition(":")[0] for line in text.partition("\nColumns\n")[2].splitlines() if ": " in line]
    assert len(explained) == len(set(explained))
    assert "B is 0.99x as fast as A" in text
    text = page(confirm(budget(), run_of({}, [], status="unstable", reason="drift")))
    assert "no verdict on A against B: not ok: A, B" in text
    assert "as fast as" not in text


def test_the_slower_of_two_that_hold_is_not_chosen() -> None:
    rounds: list[list[str]] = []
    stored = confirm(budget("mean"), run_of({WAYS[0]: 1.2}, rounds))
    chosen = shipped(stored)
    assert chosen is not None
    assert chosen.id == "id-1-1"
    assert shipped(confirm(budget("mean"), run_of({}, []))).id == "id-1-0"  # type: ignore[union-attr]


def test_three_rounds_at_most() -> None:
    rounds: list[list[str]] = []
    stored = confirm(budget(), run_of(dict.fromkeys(WAYS, 1.2), rounds))
    assert [len(each) for each in rounds] == [2, 2, 2]
    assert shipped(stored) is None
    assert "Ship none yet: of 6 mixes that ran, none is ok and meets the limits." in page(stored)
    rounds.clear()
    held = confirm(budget(), run_of(dict.fromkeys(WAYS[:3], 1.2), rounds))
    assert len(rounds) == 2
    assert shipped(held).id == "id-2-1"  # type: ignore[union-attr]


def test_a_mix_that_is_not_ok_is_dropped() -> None:
    rounds: list[list[str]] = []
    stored = confirm(budget(), run_of({}, rounds, status="unstable", reason=HOSTILE))
    assert len(rounds) == 3
    assert shipped(stored) is None


def test_a_figure_that_could_not_be_measured_breaks_no_limit_but_is_said() -> None:
    stored = confirm(budget("p99<=200ms,build<=60s"), run_of({}, []))
    record = stored[0].record
    assert [(check.limit.figure, check.word) for check in check_run(record, record.budget.objective)] == [  # type: ignore[union-attr]
        ("p99", "unknown"),
        ("build", "unknown"),
    ]
    assert "not measured: unknown: p99 unknown, 20 steady units of the 100 that it takes" in page(stored, record.budget)


def test_every_program_and_the_rest_make_up_the_unit() -> None:
    (entry, _) = confirm(budget(), run_of({}, []))
    shares = program_shares(entry.record)
    assert [each.name for each in shares] == ["wm.step", "image.decode", "between programs"]
    assert sum(each.measured_ms for each in shares) == pytest.approx(100.0, rel=1e-3)
    assert (shares[0].promised_ms, shares[-1].promised_ms) == (pytest.approx(54.0), 6.0)


def test_hostile_text_is_escaped_and_fits() -> None:
    hostile = replace(forecast(WAYS[0]), slots=f"wm={HOSTILE}")
    stored = confirm(budget(), run_of({}, [], status="unstable", reason=HOSTILE))
    made = document(HOSTILE, "frame", Solution(budget("mean", hostile)), [HOSTILE], stored)
    text = html.render(made)
    assert "<script>document.title" not in text
    assert "document.title='owned'" in unescape(text)
    shown = terminal.render(made, 80)
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_equal_records_give_an_equal_page() -> None:
    assert page(confirm(budget(), run_of({}, []))) == page(confirm(budget(), run_of({}, [])))
