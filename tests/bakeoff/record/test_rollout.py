"""Horizons and growths of curves, and what a mix's horizon says beside those of eager."""

from dataclasses import replace
from math import isclose, log

import pytest

from bakeoff.record.pipeline import Curve, LoopParity, PipelineMeasurement, Rollout, UnitParity
from bakeoff.record.rollout import MIX, broke, flicker, flickers, growth, horizon, nearest, rollout_text, standing
from bakeoff.record.schema import OutputParity


def curve(*decibels: float | None, run: str = MIX, output: str = "video") -> Curve:
    return Curve(run, output, tuple(None if db is None else 10 ** (-db / 20) for db in decibels), decibels)


def falling_at(unit: int, run: str = MIX) -> Curve:
    return curve(*[40.0] * unit, *[20.0] * (10 - unit), run=run)


@pytest.mark.parametrize(
    ("own", "others", "text"),
    [
        (3, (3, 5), "with eager"),
        (5, (3, 5), "with eager"),
        (10, (10, 10), "with eager"),
        (2, (3, 5), "earlier than eager: unit 2 against 3 to 5"),
        (2, (4, 4), "earlier than eager: unit 2 against 4"),
        (2, (4, 10), "earlier than eager: unit 2 against 4 to none"),
        (6, (3, 5), "later than eager: unit 6 against 3 to 5"),
        (10, (3, 5), "later than eager: unit none against 3 to 5"),
    ],
)
def test_a_mix_stands_by_its_horizon(own: int, others: tuple[int, ...], text: str) -> None:
    beside = (falling_at(unit, f"eager {place}") for place, unit in enumerate(others))
    assert standing(Rollout(30.0, (falling_at(own), *beside)), "video") == text


def test_an_error_that_is_not_finite_is_below_any_threshold_and_no_error_above() -> None:
    assert horizon(Curve(MIX, "x", (0.0, 0.0, None), (None, None, None)), 30.0) == 2
    assert horizon(Curve(MIX, "x", (0.0, 0.0), (None, None)), 30.0) is None
    assert horizon(curve(40.0, 30.0, 29.9), 30.0) == 2


def test_growth_is_the_slope_of_the_logarithm_with_its_interval() -> None:
    found = growth(curve(*(100 - 20 * log(1.25**unit, 10) for unit in range(20))))
    assert found is not None
    assert isclose(found[0], 1.25, rel_tol=1e-9)
    assert isclose(found[1][0], 1.25, rel_tol=1e-6)
    noisy = growth(curve(*(60 + (-1) ** unit for unit in range(20))))
    assert noisy is not None
    assert noisy[1][0] < 1 < noisy[1][1], "no growth is shown"
    assert growth(curve(*[40.0] * 7)) is None


def test_flicker_is_the_median_error_of_changes_and_stands_beside_the_most_of_the_equivalents() -> None:
    mix, one, other = (
        replace(curve(40.0, run=run), changes=changes)
        for run, changes in ((MIX, (0.04, 0.06, None, 0.05)), ("eager", (0.01,)), ("1 thread", (0.02, 0.02)))
    )
    found = flicker(Rollout(30.0, (mix, one, other)), "video")
    assert found == (0.05, pytest.approx(2.5))
    assert flicker(Rollout(30.0, (mix,)), "video") == (0.05, None)
    assert flicker(Rollout(30.0, (curve(40.0),)), "video") is None, "an older record lacks it"


@pytest.mark.parametrize(("own", "eager", "flickering"), [(0.05, 0.0, True), (0.05, 0.03, False), (0.04, 0.0, False)])
def test_a_mix_flickers_by_more_than_twice_what_any_of_its_slots_and_eager_do(
    own: float, eager: float, flickering: bool
) -> None:
    runs = {MIX: own, "only wm": 0.01, "only image": 0.02, "1 thread": eager}
    rollout = Rollout(30.0, tuple(replace(curve(40.0, run=run), changes=(off, off)) for run, off in runs.items()))
    found = flickers(rollout)
    assert bool(found) == flickering
    if found:
        assert found.startswith("wm and image together: video is 5.0e-02 off")
    assert flicker(rollout, "video") == (own, own / eager if eager else None), "beside equivalents of eager alone"
    assert not flickers(Rollout(30.0, tuple(one for one in rollout.curves if not one.run.startswith("only "))))


def test_a_curve_that_is_not_finite_breaks_where_eager_goes_on() -> None:
    mix, eager = curve(40, None, None), curve(40, 40, 40, run="eager")
    assert broke(Rollout(30.0, (mix, eager))) == "video: not finite (unit 1, running free)"
    assert broke(Rollout(30.0, (mix, curve(40, None, None, run="eager")))) == ""
    assert broke(Rollout(30.0, (eager, curve(40, 40, 40)))) == ""


def test_the_unit_nearest_to_the_limit_is_told_by_output_and_a_failed_one_first() -> None:
    def unit(number: int, video: float | None, key: float) -> UnitParity:
        passed = video is not None and video <= 0.1
        state = OutputParity("state.k", key, 0.1, key <= 0.1)
        return UnitParity(number, (OutputParity("video", video, 0.1, passed), state))

    parity = LoopParity("loop-1", "fp64", (unit(-1, 0.0, 0.01), unit(0, 0.02, 0.06), unit(1, 0.05, 0.03)))
    made = PipelineMeasurement("ok", parity=parity)
    assert {name: found for name, (found, _) in nearest(made).items()} == {"video": 1, "state": 0}
    text = "2 units within limits, at most 60% of one (state.k, unit 0)"
    assert rollout_text(made) == text
    broken = PipelineMeasurement("ok", parity=LoopParity("loop-1", "fp64", (unit(0, None, 0.0), unit(1, 5.0, 0.0))))
    assert nearest(broken)["video"][0] == 0
