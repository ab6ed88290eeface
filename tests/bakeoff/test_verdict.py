"""Verdicts on rounds made by hand: a difference needs an interval that excludes 1, two per cent, and enough rounds."""

from dataclasses import replace

import numpy as np
import pytest
from records import record
from scipy.stats import wilcoxon

from bakeoff.record import SCHEMA, Comparison, Round, Samples
from bakeoff.verdict import LEAST_ROUNDS, bootstrap_median, judge, judge_apart


def compared(ratio: float, rounds: int = 40, noise: float = 0.01, seed: int = 0) -> Comparison:
    """B takes `ratio` times as long as A; each round's host speed is its own."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(rounds):
        speed = random.uniform(1, 2)
        a, b = (speed * factor * np.exp(noise * random.standard_normal(5)) * 1e6 for factor in (1.0, ratio))
        made.append(Round(True, Samples(int(value) for value in a), Samples(int(value) for value in b)))
    sides = (record("eager"), record("inductor"))
    return Comparison(SCHEMA, "2026-01-02T03:04:05.000000Z", "", "interleaved", 7, *sides, tuple(made))


@pytest.mark.parametrize(
    ("ratio", "word"), [(1.2, "faster"), (1 / 1.2, "slower"), (1.05, "faster"), (1.0, "no difference shown")]
)
def test_the_word_follows_the_ratio(ratio: float, word: str) -> None:
    verdict = judge(compared(ratio))
    assert verdict.word == word
    assert verdict.ratio == pytest.approx(ratio, rel=0.01)
    assert verdict.low <= verdict.ratio <= verdict.high
    assert verdict.low <= ratio <= verdict.high
    assert verdict.rounds == 40


def test_a_host_whose_speed_changes_between_rounds_does_not_matter() -> None:
    verdict = judge(compared(1.05, noise=0.005))
    assert verdict.high - verdict.low < 0.02, "although the rounds' own times vary by a factor of two"


def test_less_than_two_per_cent_is_no_difference_however_sure() -> None:
    verdict = judge(compared(1.015, noise=1e-4))
    assert verdict.low > 1
    assert verdict.word == "no difference shown"


def test_too_few_rounds_show_nothing() -> None:
    assert judge(compared(2.0, rounds=LEAST_ROUNDS - 1)).word == "no difference shown"
    assert judge(compared(2.0, rounds=LEAST_ROUNDS)).word == "faster"
    with pytest.raises(ValueError, match="no rounds"):
        judge(replace(compared(1.0), rounds=()))


def test_the_verdict_is_of_the_rounds_alone() -> None:
    first = compared(1.03, noise=0.05)
    assert judge(first) == judge(first) == judge(replace(first, seed=8))


@pytest.mark.parametrize("count", [LEAST_ROUNDS, 12, 40, 41, 120])
@pytest.mark.parametrize("digits", [1, 9], ids=["ties", "none equal"])
def test_the_interval_is_that_of_all_resamples(count: int, digits: int) -> None:
    """Of so many draws as there are here, the share below each end is what the confidence says, but for chance."""
    random = np.random.default_rng(count)
    values = np.round(random.lognormal(0, 0.1, count), digits)
    medians = np.median(random.choice(values, (50_000, count)), axis=1)
    low, high = bootstrap_median(values, 0.98)
    assert (medians < low).mean() < 0.01 + 0.002
    assert (medians <= low).mean() > 0.01 - 0.002
    assert (medians > high).mean() < 0.01 + 0.002
    assert (medians >= high).mean() > 0.01 - 0.002


def test_the_rank_test_is_wilcoxons() -> None:
    found = compared(1.02, rounds=15, noise=0.02)
    logs = [np.log(np.median(entry.b_ns) / np.median(entry.a_ns)) for entry in found.rounds]
    assert judge(found).p == pytest.approx(float(wilcoxon(logs).pvalue))


def test_identical_rounds_are_no_difference() -> None:
    same = tuple(Round(True, Samples([5]), Samples([5])) for _ in range(20))
    verdict = judge(replace(compared(1.0), rounds=same))
    assert (verdict.word, verdict.ratio, verdict.p) == ("no difference shown", 1.0, 1.0)


def test_false_alarms_are_rare() -> None:
    """Of 300 pairs without a difference, a 99.9 % interval and two per cent let about none through."""
    words = [judge(compared(1.0, rounds=20, noise=0.03, seed=seed)).word for seed in range(300)]
    assert sum(word != "no difference shown" for word in words) <= 3


def test_two_records_apart() -> None:
    slow, fast = (record(samples_ms=[base + 0.01 * index for index in range(30)]) for base in (10.0, 5.0))
    assert judge_apart(fast, slow).word == "faster"
    assert judge_apart(slow, fast).word == "slower"
    assert judge_apart(slow, slow).word == "no difference shown"
    assert judge_apart(fast, slow).ratio == pytest.approx(10.145 / 5.145)
    with pytest.raises(ValueError, match="no samples"):
        judge_apart(slow, record(status="crashed"))
