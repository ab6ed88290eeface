"""Figures of pipelines: facts that can be computed by hand, and identities that hold for any units."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from pipeline_records import BEST, measured, pipeline_record, promise, run_of_two, scaled, units

from bakeoff.record.account import account_lines, shares, steady
from bakeoff.record.codec import decode, encode
from bakeoff.record.forecast import BETWEEN, DOCUMENTED_SPREAD, explained, forecast_error, shown_spread
from bakeoff.record.frames import FROM_OPENING, before_after, figures, nearest_rank, scopes
from bakeoff.record.pipeline import PipelineRecord, UnitKind, Units
from bakeoff.record.store import StoredPipeline, load_all

RUNS = Path(__file__).parents[3] / "runs" / "published"


def of_units(made: Units, **changes: object) -> PipelineRecord:
    return pipeline_record(made=replace(measured(), units=made), **changes)


def test_frames_a_second_by_what_is_counted() -> None:
    times = {"denoise": 40.0, "decode": 10.0, "glue": 30.0}
    made = units([times] * 6, ["opening", "filling", *["steady"] * 4])
    record = pipeline_record(made=replace(measured(), units=made, opened_ns=(520_000_000,)))
    found = {name: round(fps, 6) for name, fps in scopes(record).items() if name in (*times, FROM_OPENING)}
    assert found == {"denoise": 25.0, "decode": 20.0, "glue": 12.5, FROM_OPENING: 6.0}
    assert FROM_OPENING not in scopes(replace(record, measurement=replace(record.measurement, opened_ns=())))
    assert scopes(replace(record, frame_rate=0.0)) == {}, "a call makes no frames"


class TestRates:
    def test_frames_are_over_wall_time_and_never_multiplied_by_steps(self) -> None:
        blocks = [{"denoise": 4 * 50.0} for _ in range(10)]
        found = figures(of_units(units(blocks, frames=[3] * 10), unit="block"))
        assert found is not None
        assert found.frames_per_s == pytest.approx(15, rel=1e-12)
        assert found.units_per_s == pytest.approx(5, rel=1e-12)
        assert found.ms_a_frame == pytest.approx(200 / 3, abs=1e-6)
        assert found.real_time == pytest.approx(15 / 25)

    def test_matrix_delivers_twelve_frames_a_block_less_three(self) -> None:
        for blocks in range(2, 40):
            kinds: list[UnitKind] = ["opening", *(["steady"] * (blocks - 1))]
            made = units([{"denoise": 120.0}] * blocks, kinds, [9, *([12] * (blocks - 1))])
            found = figures(of_units(made))
            assert found is not None
            assert sum(made.frames) == 12 * blocks - 3
            assert found.frames == 12 * (blocks - 1), "the opening block is in no figure"
            assert found.frames_per_s == pytest.approx(100)

    def test_rates_of_random_units(self) -> None:
        for seed in range(50):
            draw = random.Random(seed)
            count = draw.randint(1, 60)
            times = [{"denoise": draw.uniform(1, 500)} for _ in range(count)]
            frames = [draw.randint(1, 12) for _ in range(count)]
            made = units(times, frames=frames)
            found = figures(of_units(made))
            assert found is not None
            seconds = sum(made.wall_ns) / 1e9
            assert found.frames_per_s * seconds == pytest.approx(sum(frames))
            assert found.units_per_s * seconds == pytest.approx(count)

    def test_the_time_of_units_without_a_frame_counts(self) -> None:
        made = units([{"denoise": 100.0}] * 10, frames=[1, 0] * 5)
        found = figures(of_units(made))
        assert found is not None
        assert (found.units, found.frames) == (10, 5)
        assert (found.frames_per_s, found.units_per_s) == (pytest.approx(5), pytest.approx(10))
        assert found.ms_a_frame == pytest.approx(100), "of the units that deliver one"

    def test_time_to_the_first_frame_is_the_opening_and_the_first_unit(self) -> None:
        found = figures(pipeline_record())
        assert found is not None
        assert found.first_frame_ms == pytest.approx(250 + 220)
        without = figures(pipeline_record(made=replace(measured(), opened_ns=())))
        assert without is not None
        assert without.first_frame_ms is None

    def test_too_few_units_have_no_interval_and_no_p99(self) -> None:
        counts = {5: (False, False), 6: (True, False), 99: (True, False), 100: (True, True)}
        for count, wanted in counts.items():
            found = figures(of_units(units(scaled(1.0, count))))
            assert found is not None
            assert (found.interval is not None, found.p99_ms is not None) == wanted

    def test_nearest_rank(self) -> None:
        assert nearest_rank(range(1, 101), 0.99) == 99
        assert nearest_rank(range(1, 102), 0.99) == 100
        assert nearest_rank([3, 1, 2], 0.5) == 2
        assert nearest_rank([7], 0.99) == 7
        with pytest.raises(ValueError, match="no values"):
            nearest_rank([], 0.99)


class TestSteadyUnits:
    def test_opening_filling_and_recompiled_units_are_in_no_figure(self) -> None:
        kinds: list[UnitKind] = ["opening", "filling", "steady", "steady", "steady"]
        made = units([{"denoise": ms} for ms in (900, 700, 10, 500, 10)], kinds, moved={"3": ("wm.step",)})
        assert steady(made) == [2, 4]
        found = figures(of_units(made))
        assert found is not None
        assert (found.units, found.ms_a_frame) == (2, 10)
        assert [row.ms for row in account_lines(of_units(made))] == [10]

    def test_a_run_without_a_steady_unit_has_no_figures(self) -> None:
        record = of_units(units([{"denoise": 900.0}], ["opening"]))
        assert figures(record) is None
        assert account_lines(record) == ()
        assert (forecast_error(record), explained(record)) == (None, None)


class TestAccount:
    def test_shares_add_up_exactly_as_printed(self) -> None:
        for seed in range(300):
            draw = random.Random(seed)
            parts = [draw.randint(0, 10 ** draw.randint(1, 12)) for _ in range(draw.randint(1, 12))]
            found = shares(parts)
            if sum(parts):
                assert sum(found) == 1000
                for part, share in zip(parts, found, strict=True):
                    assert abs(part * 1000 - share * sum(parts)) < sum(parts), "off by less than a tenth of a percent"
        assert shares([1, 1, 1]) == (334, 333, 333)
        assert shares([0, 0]) == (0, 0)

    def test_phases_of_known_length(self) -> None:
        made = units([{"denoise": 5.0, "decode": 3.0, "present": 2.0, "glue": 1.0}] * 20)
        found = {row.name: row.share for row in account_lines(of_units(made))}
        assert found == {"denoise": "45.4 %", "decode": "27.3 %", "present": "18.2 %", "glue": "9.1 %"}

    def test_lines_come_in_the_order_of_a_unit(self) -> None:
        made = units([{"copies": 1.0, "denoise": 2.0, "unattributed": 1.0, "decode": 1.0, "glue": 1.0}])
        names = [row.name for row in account_lines(of_units(made))]
        assert names == ["denoise", "decode", "glue", "copies", "unattributed"]

    def test_a_phase_of_opening_units_alone_is_no_line_of_a_steady_one(self) -> None:
        kinds: list[UnitKind] = ["opening", "steady"]
        made = units([{"prime": 9.0, "denoise": 1.0, "copies": 1.0}, {"denoise": 1.0}], kinds)
        assert [row.name for row in account_lines(of_units(made))] == ["denoise", "copies"]

    def test_calls_of_a_phase(self) -> None:
        assert {row.name: row.unit_calls for row in account_lines(pipeline_record())}["denoise"] == 4
        untold = pipeline_record(phase_calls={"denoise": 4, "present": 0})
        assert {row.unit_calls for row in account_lines(untold)} == {4, None}, "glue has no calls"

    def test_every_committed_record_holds_the_identity(self) -> None:
        whole = [entry for entry in load_all(RUNS).pipelines if not entry.summary]
        assert whole
        for entry in whole:
            made = entry.record.measurement.units
            for place, wall_ns in enumerate(made.wall_ns if made is not None else ()):
                found = [line.ns[place] for line in made.lines]
                assert (min(found) >= 0, sum(found)) == (True, wall_ns), (entry.id, place)


class TestPromises:
    def test_a_run_is_held_against_its_promise(self) -> None:
        record = of_units(units(scaled(1.0, 1)))
        assert forecast_error(record) == pytest.approx(100 / 81 - 1)
        assert explained(record) == (BETWEEN, pytest.approx(10), pytest.approx(19))

    def test_units_that_the_machine_stopped_do_not_decide_whether_a_promise_held(self) -> None:
        usual = of_units(units(scaled(1.0, 1) * 40))
        stopped = of_units(units([*scaled(1.0, 1) * 38, *scaled(100.0, 2)]))
        assert forecast_error(stopped) == forecast_error(usual) == pytest.approx(100 / 81 - 1)

    def test_nothing_is_explained_where_parts_or_all_promises_lack(self) -> None:
        record = of_units(units(scaled(1.0, 1)))
        assert explained(replace(record, forecast=replace(promise(), parts_ms={}))) is None
        assert forecast_error(replace(record, forecast=None)) is None

    def test_the_spread_is_that_of_promises_here_and_documented_where_these_are_few(self) -> None:
        def runs(*factors: float) -> list[StoredPipeline]:
            promised = replace(promise(), ms=100.0)
            made = (of_units(units(scaled(factor, 1)), forecast=promised) for factor in factors)
            return [StoredPipeline(str(place), record) for place, record in enumerate(made)]

        assert shown_spread(runs(*[1.1] * 7)) == DOCUMENTED_SPREAD
        assert shown_spread(runs(*[1.1, 1 / 1.1] * 4)) == pytest.approx(1.1**2 - 1)
        assert shown_spread(runs(*[1.0] * 8)) == pytest.approx(0)
        known = runs(*[1.1] * 8)
        assert shown_spread(known, anchored=True) == DOCUMENTED_SPREAD
        timed_again = [
            replace(each, record=replace(each.record, forecast=replace(promise(), anchored=True))) for each in known
        ]
        assert shown_spread(timed_again) == DOCUMENTED_SPREAD
        before = [
            replace(each, record=replace(each.record, forecast=replace(promise(), interval=None))) for each in known
        ]
        assert shown_spread(before) == DOCUMENTED_SPREAD, "promises of an earlier version, by medians"


class TestBeforeAfter:
    def test_the_ratio_is_of_paired_units(self) -> None:
        found = before_after(*run_of_two(0.5))
        assert found is not None
        assert (found.word, found.pairs) == ("faster", 20)
        assert found.ratio == pytest.approx(2)
        assert found.interval == (pytest.approx(2), pytest.approx(2))

    def test_pairs_are_units_that_are_steady_in_both(self) -> None:
        kinds: list[UnitKind] = ["filling"] * 4 + ["steady"] * 16
        before = of_units(units(scaled(1.0)))
        times = [*scaled(9.0, 4), *scaled(1.0)[4:19], *scaled(9.0, 1)]
        after = of_units(units(times, kinds, moved={"19": ("wm.step",)}))
        for found in (before_after(before, after), before_after(after, before)):
            assert found is not None
            assert (found.pairs, found.word) == (15, "no difference shown")
            assert found.interval == (1, 1)

    def test_a_mix_that_lost_and_one_that_is_even(self) -> None:
        words = {1.5: "slower", 1.0: "no difference shown", 1.01: "no difference shown", 0.9: "faster"}
        for factor, word in words.items():
            found = before_after(*run_of_two(factor))
            assert found is not None
            assert found.word == word

    def test_only_mixes_that_took_turns(self) -> None:
        before, after = run_of_two()
        assert before_after(before, replace(after, run="another")) is None
        assert before_after(replace(before, how="in turn"), replace(after, how="in turn")) is None
        assert before_after(before, pipeline_record(BEST, "best", replace(measured(), units=None))) is None

    def test_too_few_units_give_no_verdict(self) -> None:
        few = [of_units(units(scaled(factor, 5))) for factor in (1.0, 0.5)]
        found = before_after(*few)
        assert found is not None
        assert (found.word, found.interval) == ("too few units", None)


def test_a_record_survives_its_file() -> None:
    for record in run_of_two():
        assert decode(encode(record), "record") == record
