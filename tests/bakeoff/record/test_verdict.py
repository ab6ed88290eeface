"""Verdicts on synthetic rounds: the interval, the least difference, the number of rounds, and pairs of processes."""

from dataclasses import replace

import numpy as np
import pytest
from records import record

from bakeoff.record.schema import SCHEMA, Comparison, Round, Samples
from bakeoff.record.verdict import (
    AGREEING_PAIRS,
    CONFIDENCE,
    EARLY_ERRORS,
    FEWEST_PAIRS,
    LEAST_DIFFERENCE,
    LEAST_ROUNDS,
    LEAST_SPREAD,
    MOST_PAIRS,
    decide,
    is_decided,
    show_early,
)

EQUAL = (1.0,) * AGREEING_PAIRS


def compared(
    ratio: float, rounds: int = 42, noise: float = 0.01, seed: int = 0, pairs: tuple[float, ...] = EQUAL
) -> Comparison:
    """B takes `ratio` times as long as A, times the factor of its pair of processes; host speed differs by round."""
    random = np.random.default_rng(seed)
    made = []
    for index in range(rounds):
        speed, pair = random.uniform(1, 2), index * len(pairs) // rounds
        factors = (1.0, ratio * pairs[pair])
        a, b = (speed * factor * np.exp(noise * random.standard_normal(5)) * 1e6 for factor in factors)
        made.append(Round((0, 1), (Samples(int(value) for value in a), Samples(int(value) for value in b)), pair))
    sides = (record("eager"), record("inductor"))
    return Comparison(SCHEMA, "2026-01-02T03:04:05.000000Z", "", "interleaved", 7, sides, tuple(made))


@pytest.mark.parametrize(
    ("ratio", "word"), [(1.2, "faster"), (1 / 1.2, "slower"), (1.05, "faster"), (1.0, "no difference shown")]
)
def test_the_word_follows_the_ratio(ratio: float, word: str) -> None:
    verdict = decide(compared(ratio))
    assert verdict.word == word
    assert verdict.ratio == pytest.approx(ratio, rel=0.01)
    assert verdict.low <= verdict.ratio <= verdict.high
    assert verdict.low <= ratio <= verdict.high
    assert (verdict.rounds, verdict.pairs) == (42, AGREEING_PAIRS)


def test_a_host_whose_speed_changes_between_rounds_does_not_matter() -> None:
    verdict = decide(compared(1.05, noise=0.005))
    assert verdict.high - verdict.low < 0.02, "although the rounds' own times vary by a factor of two"


def test_less_than_two_per_cent_is_no_difference_however_sure() -> None:
    verdict = decide(compared(1.015, noise=1e-4))
    assert verdict.low > 1
    assert verdict.word == "no difference shown"


def test_too_few_rounds_show_nothing() -> None:
    assert decide(compared(2.0, rounds=LEAST_ROUNDS - 1)).word == "no difference shown"
    assert decide(compared(2.0, rounds=LEAST_ROUNDS)).word == "faster"
    with pytest.raises(ValueError, match="no rounds"):
        decide(replace(compared(1.0), rounds=()))


def test_one_pair_of_processes_shows_nothing_however_many_rounds() -> None:
    assert decide(compared(1.3, rounds=200, pairs=(1.0,))).word == "no difference shown"
    assert decide(compared(3.0, rounds=200, pairs=(1.0,) * (FEWEST_PAIRS - 1))).word == "no difference shown"
    assert decide(compared(1.1, rounds=200, pairs=(1.0,) * (AGREEING_PAIRS - 1))).word == "no difference shown"
    assert decide(compared(1.1, rounds=200, pairs=(1.0,) * AGREEING_PAIRS)).word == "faster"


@pytest.mark.parametrize("seed", range(5))
def test_differences_between_processes_are_no_difference(seed: int) -> None:
    """Each set of processes has a constant ratio: the interval is over the sets, and so includes their difference."""
    luck = (1.08, 1.09, 1.1, 0.97, 1.07, 1.05, 1.06)
    verdict = decide(compared(1.0, rounds=100, seed=seed, pairs=luck))
    assert verdict.word == "no difference shown"
    assert verdict.low == pytest.approx(0.97, abs=0.01)
    assert verdict.high == pytest.approx(1.1, abs=0.01)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 8, 10, 11])
@pytest.mark.parametrize("seed", range(5))
def test_the_ratio_lies_in_its_interval(count: int, seed: int) -> None:
    """Both are of one quantity, so a median over sets of processes never lies outside of their interval."""
    luck = tuple(np.exp(0.08 * np.random.default_rng(seed).standard_normal(count)))
    verdict = decide(compared(1.03, rounds=12 * count, noise=0.05, seed=seed, pairs=luck))
    assert verdict.low <= verdict.ratio <= verdict.high


def test_any_two_sides_are_decided() -> None:
    two = compared(1.2)
    third = tuple(
        replace(
            turn, order=(0, 1, 2), samples_ns=(*turn.samples_ns, Samples(3 * value for value in turn.samples_ns[0]))
        )
        for turn in two.rounds
    )
    three = replace(two, sides=(*two.sides, record("eager")), rounds=third)
    assert decide(three) == decide(two)
    assert is_decided(three) == is_decided(two)
    against = decide(three, 0, 2)
    assert (against.word, against.ratio) == ("faster", pytest.approx(3.0))
    assert decide(three, 1, 2).ratio == pytest.approx(3 / 1.2, rel=0.01)


def test_of_the_most_pairs_one_may_disagree() -> None:
    agreeing, rounds = (1.0,) * (MOST_PAIRS - 1), 20 * MOST_PAIRS
    assert decide(compared(1.06, rounds, pairs=(0.9, *agreeing))).word == "faster"
    assert decide(compared(1 / 1.06, rounds, pairs=(1.2, *agreeing))).word == "slower"
    assert decide(compared(1.06, rounds, pairs=(0.9, 0.9, *agreeing[1:]))).word == "no difference shown"
    assert decide(compared(1.06, rounds, pairs=(0.9, *agreeing[1:]))).word == "no difference shown", "one pair less"


@pytest.mark.parametrize(
    ("ratio", "pairs", "enough"),
    [
        (1.0, (1.0,), True),
        (1.1, (1.0,), False),
        (1.1, (1.0,) * (AGREEING_PAIRS - 1), False),
        (1.1, (1.0,) * AGREEING_PAIRS, True),
        (1.1, (0.8, *(1.0,) * AGREEING_PAIRS), False),
        (1.1, (0.8, 0.8, 1.0, 1.0), True),
        (1.0, (1.1, 1.01, 0.9), True),
        (1.1, (0.8, *(1.0,) * (MOST_PAIRS - 1)), True),
        (1.03, (0.9, *(1.3, 0.98) * 5), True),
    ],
    ids=[
        "shown equal",
        "one pair",
        "too few",
        "all agree",
        "one contrary",
        "two",
        "median near 1",
        "all but one",
        "end",
    ],
)
def test_whether_more_pairs_could_change_the_verdict(ratio: float, pairs: tuple[float, ...], enough: bool) -> None:
    assert is_decided(compared(ratio, rounds=20 * len(pairs), noise=0.003, pairs=pairs)) is enough


def of_sides(*pairs: tuple[float, ...], baseline_status: str = "ok") -> Comparison:
    """Rounds in which the first side takes 1 us, and the others the given times in each set of processes."""
    turns = tuple(
        Round(tuple(range(len(pairs) + 1)), tuple(Samples([round(1e6 * factor)]) for factor in (1.0, *factors)), number)
        for number, factors in enumerate(zip(*pairs, strict=True))
        for _ in range(12)
    )
    names = ("inductor", "aoti", "eager")[: len(pairs) + 1]
    sides = [record(name) for name in names]
    if len(sides) > 2:
        sides[2] = record("eager", status=baseline_status)
    return replace(compared(1.0), sides=tuple(sides), rounds=turns)


LARGE = 1.5
"""Enough for three sets."""


class TestAnEarlyVerdict:
    @pytest.mark.parametrize("count", range(FEWEST_PAIRS, AGREEING_PAIRS))
    def test_is_reached_with_three_to_six_sets_that_are_far_on_one_side(self, count: int) -> None:
        for ratio, word in ((LARGE, "faster"), (1 / LARGE, "slower")):
            found = of_sides((ratio,) * count)
            verdict = decide(found)
            assert (verdict.word, verdict.early, verdict.pairs) == (word, True, count)
            assert verdict.confidence == CONFIDENCE
            assert is_decided(found)

    def test_is_not_reached_with_two(self) -> None:
        found = of_sides((4.0, 4.0))
        assert (decide(found).word, decide(found).early, is_decided(found)) == ("no difference shown", False, False)

    def test_is_none_with_seven(self) -> None:
        verdict = decide(of_sides((LARGE,) * AGREEING_PAIRS))
        assert (verdict.word, verdict.early, verdict.low, verdict.high) == ("faster", False, LARGE, LARGE)

    def test_is_not_reached_where_one_set_is_on_the_other_side_or_near_one(self) -> None:
        far = (8.0,) * 5
        assert decide(of_sides((1.03, *far))).early
        assert not decide(of_sides((1.019, *far))).early
        assert not decide(of_sides((0.97, *far))).early

    def test_is_not_reached_below_the_least_spread_however_well_sets_agree(self) -> None:
        half = EARLY_ERRORS * LEAST_SPREAD / np.sqrt(3)
        least = (1 + LEAST_DIFFERENCE) * np.exp(half)
        assert decide(of_sides((least * 1.001,) * 3)).early
        assert not decide(of_sides((least * 0.999,) * 3)).early
        assert not is_decided(of_sides((least * 0.999,) * 3))
        assert decide(of_sides((least * 0.999,) * 4)).early, "more sets show less"

    def test_is_not_reached_where_sets_differ_much(self) -> None:
        """Both have the same mean; the standard deviation of the second is 0.35."""
        mean, apart = 0.6, 0.35
        near = tuple(np.exp([mean, mean, mean]))
        wide = tuple(np.exp([mean - apart, mean, mean + apart]))
        assert min(wide) > 1 + LEAST_DIFFERENCE
        assert decide(of_sides(near)).early
        assert not decide(of_sides(wide)).early

    def test_is_not_reached_with_too_few_rounds(self) -> None:
        found = of_sides((LARGE,) * 3)
        few = tuple(turn for number, turn in enumerate(found.rounds) if number % 12 < 3)
        assert len(few) < LEAST_ROUNDS
        assert not decide(replace(found, rounds=few)).early

    def test_has_the_geometric_mean_and_an_interval_beyond_two_per_cent(self) -> None:
        ratios = (1.5, 1.6, 2.0)
        verdict = decide(of_sides(ratios))
        logs = np.log(ratios)
        half = EARLY_ERRORS * max(LEAST_SPREAD, logs.std(ddof=1)) / np.sqrt(3)
        assert verdict.ratio == pytest.approx(np.exp(logs.mean()), rel=1e-5)
        assert (verdict.low, verdict.high) == pytest.approx(
            (verdict.ratio * np.exp(-half), verdict.ratio * np.exp(half)), rel=1e-5
        )
        assert verdict.low > 1 + LEAST_DIFFERENCE
        other_way = decide(of_sides(tuple(1 / ratio for ratio in ratios)))
        assert (other_way.low, other_way.high) == pytest.approx((1 / verdict.high, 1 / verdict.low), rel=1e-4)

    def test_the_spread_of_the_sets_counts_where_it_is_larger(self) -> None:
        mean, apart = 1.0, 0.25
        shown = show_early(np.exp([mean - apart, mean, mean + apart]))
        assert shown is not None
        assert np.log(shown.high / shown.ratio) == pytest.approx(EARLY_ERRORS * apart / np.sqrt(3))
        assumed = show_early(np.exp([mean - 0.01, mean, mean + 0.01]))
        assert assumed is not None
        assert (shown.is_assumed, assumed.is_assumed, assumed.turned.is_assumed) == (False, True, True)

    def test_waits_for_the_speed_up_of_the_faster_one_over_the_baseline(self) -> None:
        slower, near, far = (1.5,) * 3, (1.2,) * 3, (3.0,) * 3
        assert is_decided(of_sides(slower, far))
        found = of_sides(slower, near)
        assert decide(found).early
        assert not decide(found, 0, 2).early
        assert not is_decided(found)
        assert is_decided(of_sides((1.5,) * AGREEING_PAIRS, (1.2,) * AGREEING_PAIRS)), "the first two are, as ever"

    def test_the_slower_one_need_not_be_shown_against_the_baseline(self) -> None:
        first_is_slower, baseline = (0.5,) * 3, (1.05,) * 3
        found = of_sides(first_is_slower, baseline)
        assert decide(found).word == "slower"
        assert not decide(found, 0, 2).early
        assert decide(found, 1, 2).early
        assert is_decided(found)

    @pytest.mark.parametrize(
        ("rows_ns", "enough"),
        [((), True), ((1000, 0), True), ((1000, 2000), True), ((1000, 1190), False), ((1000, 3000), False)],
    )
    def test_is_not_enough_where_its_size_is_far_from_that_of_the_rows(
        self, rows_ns: tuple[int, ...], enough: bool
    ) -> None:
        found = replace(of_sides((2.0,) * 3), rows_ns=rows_ns)
        assert decide(found).early
        assert is_decided(found) is enough
        assert is_decided(replace(of_sides((2.0,) * AGREEING_PAIRS), rows_ns=rows_ns))

    def test_against_a_baseline_is_not_enough_either(self) -> None:
        found = of_sides((2.0,) * 3, (3.0,) * 3)
        assert is_decided(replace(found, rows_ns=(1000, 2000, 3100)))
        assert not is_decided(replace(found, rows_ns=(1000, 2000, 1500)))

    def test_a_baseline_without_a_result_is_not_waited_for(self) -> None:
        assert is_decided(of_sides((1.5,) * 3, (1.2,) * 3, baseline_status="unstable"))

    def test_a_baseline_is_decided_early_where_the_two_show_no_difference(self) -> None:
        found = of_sides((1.0, 1.01, 0.99), (3.0,) * 3)
        assert is_decided(found)
        assert (decide(found).word, decide(found, 0, 2).word) == ("no difference shown", "faster")
        assert decide(found, 1, 2).early

    def test_is_rarely_wrong(self) -> None:
        """Where half of the processes are 15 % faster and half 15 % slower than the median, and no variant is."""
        random = np.random.default_rng(3)
        logs = 0.15 * random.choice((-1, 1), (4000, AGREEING_PAIRS - 1)) + 0.02 * random.standard_normal((4000, 6))
        wrong = sum(any(show_early(np.exp(row[:count])) is not None for count in range(3, 7)) for row in logs)
        assert wrong <= 8, "2 of 1,000"
        wrong = sum(show_early(np.exp(row), least_spread=0.10) is not None for row in logs)
        assert wrong > 20, "with a smaller least spread it would be"


def test_the_verdict_depends_only_on_the_rounds() -> None:
    first = compared(1.03, noise=0.05)
    assert decide(first) == decide(first) == decide(replace(first, seed=8))


def test_identical_rounds_are_no_difference() -> None:
    same = tuple(Round((0, 1), (Samples([5]), Samples([5])), number // 4) for number in range(20))
    verdict = decide(replace(compared(1.0), rounds=same))
    assert (verdict.word, verdict.ratio, verdict.low, verdict.high) == ("no difference shown", 1.0, 1.0, 1.0)


def test_false_alarms_are_rare() -> None:
    """Of 300 comparisons without a difference at most 2 % show one, although processes differ by 3 %."""
    words = []
    for seed in range(300):
        luck = np.exp(0.03 * np.random.default_rng(1000 + seed).standard_normal(MOST_PAIRS))
        taken = 1
        while not is_decided(so_far := compared(1.0, 20 * taken, 0.02, seed, tuple(luck[:taken]))):
            taken += 1
        words.append(decide(so_far).word)
    assert sum(word != "no difference shown" for word in words) <= 6, "2 %"
