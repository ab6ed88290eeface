"""Rows checked against limits: percentiles with their intervals, memory, and what is not known."""

from dataclasses import replace

import numpy as np
import pytest
from records import GPU_HOST, clock, measurement, record

from bakeoff.record.finalists import Word, call_ms, check_limit, check_limits, finalists, objective_of, worst
from bakeoff.record.objective import LATENCY, Limit, Objective, parse_objective
from bakeoff.record.schema import Clock, Memory, Record
from bakeoff.record.statistics import interval_ranks, quantile_ranks, samples_for_quantile
from bakeoff.record.store import Stored

THOUSAND = [10 + index / 1000 for index in range(1000)]
"""p99 is 10.989 ms, and its 95 % interval reaches from the 983rd to the 997th sample: [10.982, 10.996]."""


def limit(text: str) -> Limit:
    (found,) = parse_objective(text).limits
    return found


class TestRanks:
    def test_of_the_median_are_those_of_the_medians_interval(self) -> None:
        for count in (20, 100, 400):
            low, high = interval_ranks(count)
            assert quantile_ranks(count, 0.5)[0] == low
            assert quantile_ranks(count, 0.5)[1] in (high, high + 1)

    @pytest.mark.parametrize(("share", "needed"), [(0.95, 72), (0.99, 368)])
    def test_have_an_upper_end_from_the_number_of_samples_on_that_is_said(self, share: float, needed: int) -> None:
        assert samples_for_quantile(share) == needed
        assert quantile_ranks(needed - 1, share)[1] is None
        assert quantile_ranks(needed, share)[1] == needed - 1

    @pytest.mark.parametrize("share", [0.95, 0.99])
    def test_hold_the_quantile_as_often_as_is_said(self, share: float) -> None:
        drawn = np.sort(np.random.default_rng(1).random((4000, 500)), axis=1)
        low, high = quantile_ranks(500, share)
        assert low is not None
        assert high is not None
        held = ((drawn[:, low] <= share) & (share <= drawn[:, high])).mean()
        assert 0.94 < held < 0.99


class TestPercentiles:
    @pytest.mark.parametrize(
        ("text", "word"),
        [
            ("p99<=11ms", "met"),
            ("p99<=10.996ms", "met"),
            ("p99<10.996ms", "unclear"),
            ("p99<=10.99ms", "unclear"),
            ("p99<=10.982ms", "unclear"),
            ("p99<10.982ms", "not met"),
            ("p99<=10ms", "not met"),
            ("p95<=11ms", "met"),
            ("p95<=10.9ms", "not met"),
        ],
    )
    def test_are_checked_at_both_ends_of_the_interval(self, text: str, word: Word) -> None:
        assert check_limit(record("eager", THOUSAND), limit(text)).word == word

    def test_headroom_is_of_the_figure(self) -> None:
        found = check_limit(record("eager", THOUSAND), limit("p99<=20ms"))
        assert (found.low, found.high) == pytest.approx((10.982, 10.996))
        assert found.excess == pytest.approx(10.989 / 20 - 1, abs=1e-4)

    def test_too_few_samples_are_said_and_nothing_is_guessed(self) -> None:
        for text, count, least in (("p99<=33ms", 99, "it takes 100"), ("p95<=33ms", 19, "it takes 20")):
            found = check_limit(record("eager", [1.0] * count), limit(text))
            assert (found.word, found.value) == ("unknown", None)
            assert f"{count} samples are too few" in found.why
            assert least in found.why

    def test_without_an_upper_end_nothing_is_met_but_something_may_be_missed(self) -> None:
        some = record("eager", [1 + index / 1000 for index in range(200)])
        found = check_limit(some, limit("p99<=33ms"))
        assert (found.word, found.high) == ("unclear", None)
        assert found.why == "200 samples give its interval no upper end, 368 do"
        assert check_limit(some, limit("p99<=1ms")).word == "not met"

    def test_a_row_without_samples_is_unknown(self) -> None:
        assert check_limit(record("eager", status="oom"), limit("p99<=33ms")).word == "unknown"


class TestMemory:
    def test_is_the_recorded_peak(self) -> None:
        made = record("eager", THOUSAND)
        assert check_limit(made, limit("memory<=500MiB")).word == "met"
        assert check_limit(made, limit("memory<500MiB")).word == "not met"
        assert check_limit(made, limit("memory<=0.25GiB")).excess == pytest.approx(500 / 256 - 1)

    def test_on_a_gpu_is_the_devices(self) -> None:
        memory = Memory(1, 1, host_peak_bytes=500 << 20, device_peak_bytes=3 << 30)
        made = record("eager", THOUSAND, made=measurement(THOUSAND, memory=memory), host=GPU_HOST)
        made = replace(made, variant=replace(made.variant, device="cuda"))
        assert check_limit(made, limit("memory<=2GiB")).word == "not met"
        unmetered = replace(made, measurement=replace(made.measurement, memory=replace(memory, device_peak_bytes=None)))
        assert check_limit(unmetered, limit("memory<=2GiB")).word == "unknown"

    def test_that_was_not_metered_does_not_pass(self) -> None:
        made = record("eager", THOUSAND, made=measurement(THOUSAND, memory=None))
        assert check_limit(made, limit("memory<=1000GiB")).word == "unknown"


def test_a_row_stands_by_its_worst_limit() -> None:
    made = record("eager", THOUSAND)
    for text, word in (
        ("latency", "met"),
        ("p99<=11ms,memory<=1GiB", "met"),
        ("p99<=10.99ms,memory<=1GiB", "unclear"),
        ("p99<=10.99ms,memory<=1MiB", "not met"),
    ):
        assert worst(check_limits(made, parse_objective(text))) == word


class TestFinalists:
    def rows(self, *records: Record) -> list[Stored]:
        return [Stored(f"id-{index}", made) for index, made in enumerate(records)]

    def test_meet_the_limits(self) -> None:
        fast = record("inductor[freezing]", [one / 2 for one in THOUSAND[:-20]] + [40.0] * 20)
        middle, slow = record("inductor", THOUSAND), record("eager", [2 * one for one in THOUSAND])
        rows = self.rows(slow, middle, fast)
        assert [entry.record for entry in finalists(rows)] == [fast, middle]
        limits = parse_objective("p99<=33ms")
        assert [entry.record for entry in finalists(rows, limits)] == [middle, slow]
        assert finalists(rows, parse_objective("memory<=1MiB")) == []
        assert finalists(rows, parse_objective("p99<=10.99ms")) == [], "what is unclear is not met"

    def test_are_the_best_by_the_goal(self) -> None:
        """One with the shorter call, and one with more calls a second where they are queued."""
        prompt = record("eager", THOUSAND, made=measurement(THOUSAND, throughput=slower(12.0)))
        steady = record("inductor", [one + 1 for one in THOUSAND], made=None)
        steady = replace(steady, measurement=replace(steady.measurement, throughput=slower(6.0)))
        rows = self.rows(prompt, steady)
        assert finalists(rows)[0].record is prompt
        assert finalists(rows, Objective("throughput"))[0].record is steady
        assert call_ms(steady, "throughput") == 6.0

    def test_by_throughput_have_samples_of_it(self) -> None:
        bare = record("eager", THOUSAND, made=measurement(THOUSAND, throughput=None))
        assert finalists(self.rows(bare), Objective("throughput")) == []
        assert len(finalists(self.rows(bare))) == 1

    def test_a_table_is_for_what_its_newest_row_was(self) -> None:
        objective = parse_objective("throughput")
        old, new = record("eager", THOUSAND), record("inductor", THOUSAND, objective=objective)
        new = replace(new, created="2026-01-03T00:00:00.000000Z")
        assert objective_of(self.rows(new, old)) == objective
        assert objective_of([]) == objective_of(self.rows(old)) == LATENCY


def slower(ms: float) -> Clock:

    return clock([ms] * 20)
