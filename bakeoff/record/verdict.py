"""Decides whether one of two variants is faster: the ratio of their times, its interval, and a verdict.

The ratio and its interval come from the same quantity. With three or more sets of fresh processes, this quantity is
each set's median ratio: the ratio is the median over the sets, and its interval, by order statistics, contains the
median with 98 % (all of seven sets, or all but one at each end of eleven). With fewer sets the quantity is the ratio of
each round; nothing is decided from so few. A difference is shown if at least seven sets were measured, the interval
excludes 1, and the ratio is beyond 2 %; or early, if three to six sets are all far on one side (`show_early`). Sets of
processes are needed because two processes of the same program can differ in speed by the placement of their memory
(Mytkowicz et al., ASPLOS 2009; Curtsinger and Berger, ASPLOS 2013). That difference is constant while they live, so
more rounds between the same two processes do not show it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bakeoff.record.schema import Comparison, Record, Round
from bakeoff.record.statistics import interval_ranks

CONFIDENCE = 0.98
"""Least probability with which the interval contains the median of the sets' ratios."""
LEAST_DIFFERENCE = 0.02
LEAST_ROUNDS = 11
"""Least number of rounds of a verdict."""
SET_ROUNDS = 8
"""Least number of rounds of one set. More of them find no more (docs/trust.md, trials): a difference of 5 %
is found in 84 % of random comparisons with the spread of stored ones, in 85 % with 12 and in 86 % with 20 rounds."""
AGREEING_PAIRS = 7
"""Least number of sets of a verdict. Seven that all agree on the faster variant do so by chance with 1/64."""
MOST_PAIRS = 11
"""Most sets that are measured. With this many one may disagree; by chance at most one does with probability 1/85."""
FEWEST_PAIRS = 3
"""Number of sets after which no more are taken if their median ratio is within 2 %, or the difference is large."""
EARLY_ERRORS = 3.3
"""Standard errors from the mean of the logarithms to each end of the interval of an early verdict."""
LEAST_SPREAD = 0.15
"""Least standard deviation of the logarithms of sets' ratios that an early verdict assumes.

Over all stored comparisons it is 0.08, in single ones up to 0.15. With 0.15, less than 0.2 % of random comparisons
without a difference get an early verdict; with 0.10 up to 1.5 %, if processes have one of two speeds
(docs/trust.md, trials).
"""
OFF_ROWS = 1.3
"""Ratio between the sizes of an early verdict and of the sweep's rows above which the race goes on. Of 39 early sizes
in stored finals one is further off; the 17 others that have seven sets are within 3 % of what these say
(docs/trust.md, trials)."""
FEWEST_FOR_INTERVAL = 6
"""Least number of units, or of pairs of units, for a 95 % interval of their median: the range of five contains the
median with less than 95 %."""
_ROUNDS_CONFIDENCE = 0.999
Nanoseconds = NDArray[Any]
Word = Literal["faster", "slower", "no difference shown", "too few units"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of comparing A with B."""

    word: Word
    ratio: float
    """B's time divided by A's, above 1 if A is faster."""
    low: float
    """Lower end of the interval of that ratio."""
    high: float
    pairs: int
    """Number of sets of fresh processes."""
    confidence: float
    """Probability with which the interval contains the median ratio, of the sets or, with fewer than three, of the
    rounds: 75 % for three sets, 98.4 % for seven. For an early verdict, the least probability, found by trial, with
    which such an interval contains the mean ratio."""
    early: bool = False
    """Reached with three to six sets, all far on one side; the ratio is then their geometric mean."""
    rounds: int = 0
    a_ms: float = 0.0
    """Median of the rounds' medians of A, in milliseconds a call."""
    b_ms: float = 0.0

    @property
    def is_assumed(self) -> bool:
        """Whether the interval of an early verdict is of the spread that is assumed at least, not of the sets' own."""
        half = np.log(self.high / self.ratio) * np.sqrt(self.pairs)
        return self.early and bool(np.isclose(half, EARLY_ERRORS * LEAST_SPREAD))

    @property
    def turned(self) -> "Verdict":
        """The same verdict with the sides exchanged."""
        return replace(
            self,
            word=_TURNED.get(self.word, self.word),
            ratio=1 / self.ratio,
            low=1 / self.high,
            high=1 / self.low,
            a_ms=self.b_ms,
            b_ms=self.a_ms,
        )


_TURNED: dict[Word, Word] = {"faster": "slower", "slower": "faster"}


def decide(comparison: Comparison, first: int = 0, second: int = 1) -> Verdict:
    """Return the verdict on sides number `first` (A) and `second` (B) of a comparison, by the rounds that have both.

    Raises ValueError if no round has both.
    """
    # A baseline may be in the first sets of processes only.
    rounds = [entry for entry in comparison.rounds if max(first, second) < len(entry.samples_ns)]
    if not rounds:
        raise ValueError("no rounds")
    found = show(ratios_of_pairs(rounds, first, second), ratios_of_rounds(rounds, first, second))
    a_ms, b_ms = (float(np.median(medians(rounds, side))) / 1e6 for side in (first, second))
    return replace(found, rounds=len(rounds), a_ms=a_ms, b_ms=b_ms)


def verdict_of(comparison: Comparison) -> Verdict | None:
    """Return the verdict on the first two sides; None if one of them was not ok, or if there are no rounds."""
    return decide(comparison) if failed_side(comparison) is None and comparison.rounds else None


def failed_side(comparison: Comparison) -> Record | None:
    """Return the first of the two sides that was not ok, which leaves no verdict; None if both were."""
    return next((side for side in (comparison.a, comparison.b) if side.status != "ok"), None)


def is_decided(comparison: Comparison) -> bool:
    """Return whether the first two sides need no more sets of processes: a verdict is reached, or unlikely to be
    reached.

    It cannot be reached if one of the two was not ok. An early verdict is not enough if its size is far from that of
    the sweep's rows. The faster side also needs an early verdict against the baseline, because a final states both.
    """
    found = verdict_of(comparison)
    if found is None:
        return True
    if found.early and off_rows(comparison, found) is not None:
        return False
    if found.early:
        return is_baseline_known(comparison, (0 if found.word == "faster" else 1,))
    if found.word != "no difference shown":
        return True
    return is_futile(ratios_of_pairs(comparison.rounds, 0, 1), ratios_of_rounds(comparison.rounds, 0, 1))


def off_rows(comparison: Comparison, found: Verdict, first: int = 0, second: int = 1) -> float | None:
    """Return the ratio of two sides by the rows of their sweep if it is more than `OFF_ROWS` from the verdict's; else,
    and without such rows, None."""
    times = comparison.rows_ns
    if max(first, second) >= len(times) or not (times[first] and times[second]):
        return None
    ratio = times[second] / times[first]
    return ratio if not 1 / OFF_ROWS < found.ratio / ratio < OFF_ROWS else None


def is_baseline_known(comparison: Comparison, of: Sequence[int] = (0, 1)) -> bool:
    """Return whether the sides `of` need no more sets of processes with the baseline: each has an early verdict against
    it, or there is no baseline that was ok."""
    baseline = comparison.baseline
    if baseline is None or baseline.status != "ok":
        return True
    found = {side: decide(comparison, side, 2) for side in of}
    return all(each.early and off_rows(comparison, each, side, 2) is None for side, each in found.items())


def show(pairs: Nanoseconds, ratios: Nanoseconds) -> Verdict:
    """Return the verdict from the ratios of the sets of processes (`pairs`) and of all their rounds (`ratios`)."""
    early = show_early(pairs) if len(ratios) >= LEAST_ROUNDS else None
    return early or show_usual(pairs, ratios)


def show_early(pairs: Nanoseconds, errors: float = EARLY_ERRORS, least_spread: float = LEAST_SPREAD) -> Verdict | None:
    """Return an early verdict if three to six sets show a large difference; otherwise None.

    All sets must lie on one side of 1 by more than 2 %, and so must the interval: the mean of their logarithms with
    `errors` standard errors on each side. The standard deviation is that of the sets, but at least `least_spread`:
    three sets that agree by chance say nothing about it.
    """
    if not FEWEST_PAIRS <= len(pairs) < AGREEING_PAIRS:
        return None
    logs, least = np.log(pairs), np.log1p(LEAST_DIFFERENCE)
    mean, half = float(logs.mean()), errors * max(least_spread, float(logs.std(ddof=1))) / np.sqrt(len(pairs))
    if not (np.all(logs > least) or np.all(logs < -least)) or abs(mean) - half < least:
        return None
    ratio, low, high = (float(np.exp(value)) for value in (mean, mean - half, mean + half))
    return Verdict("faster" if mean > 0 else "slower", ratio, low, high, len(pairs), CONFIDENCE, early=True)


def show_usual(pairs: Nanoseconds, ratios: Nanoseconds) -> Verdict:
    """Return the verdict by order statistics of the sets' ratios, which hold for any distribution."""
    from scipy.special import bdtr  # importing scipy takes long

    if len(pairs) < FEWEST_PAIRS:
        low, high = _rounds_interval(ratios)
        return Verdict("no difference shown", float(np.median(ratios)), low, high, len(pairs), _ROUNDS_CONFIDENCE)
    ordered = np.sort(pairs)
    rank, _ = interval_ranks(len(pairs), CONFIDENCE)
    ratio, low, high = float(np.median(pairs)), float(ordered[rank]), float(ordered[-1 - rank])
    decides = len(pairs) >= AGREEING_PAIRS and len(ratios) >= LEAST_ROUNDS
    word: Word = _word(ratio, low, high) if decides else "no difference shown"
    return Verdict(word, ratio, low, high, len(pairs), 1 - 2 * float(bdtr(rank, len(pairs), 0.5)))


def is_futile(pairs: Nanoseconds, ratios: Nanoseconds) -> bool:
    """Return whether more sets are unlikely to show a difference, given that these show none."""
    disagreeing = min(np.sum(pairs <= 1), np.sum(pairs >= 1))  # with the majority on the faster variant
    if len(pairs) >= MOST_PAIRS or disagreeing > 1:
        return True
    if len(pairs) >= FEWEST_PAIRS and _is_near(float(np.median(pairs))):
        return True
    return _is_near(float(np.median(ratios))) and all(map(_is_near, _rounds_interval(ratios)))


def _is_near(ratio: float) -> bool:
    """Return whether a ratio is within 2 %."""
    return 1 / (1 + LEAST_DIFFERENCE) < ratio < 1 + LEAST_DIFFERENCE


def _word(ratio: float, low: float, high: float) -> Word:
    if low > 1 and ratio > 1 + LEAST_DIFFERENCE:
        return "faster"
    return "slower" if high < 1 and ratio < 1 / (1 + LEAST_DIFFERENCE) else "no difference shown"


def _rounds_interval(ratios: Nanoseconds) -> tuple[float, float]:
    """Return a 99.9 % interval of the rounds' median ratio; the whole range if there are too few rounds."""
    ordered, ranks = np.sort(ratios), interval_ranks(len(ratios), _ROUNDS_CONFIDENCE)
    low, high = (float(ordered[rank]) for rank in ranks)
    return low, high


def medians(rounds: Sequence[Round], side: int) -> Nanoseconds:
    """Return the median of a side in each round, in nanoseconds."""
    return np.array([median(entry.samples_ns[side]) for entry in rounds], dtype=np.float64)


def ratios_of_rounds(rounds: Sequence[Round], first: int, second: int) -> Nanoseconds:
    """Return the second side's median divided by the first's, for each round."""
    ratios: Nanoseconds = medians(rounds, second) / medians(rounds, first)
    return ratios


def ratios_of_pairs(rounds: Sequence[Round], first: int, second: int) -> Nanoseconds:
    """Return the median ratio of the rounds of each set of processes."""
    ratios, numbers = ratios_of_rounds(rounds, first, second), np.array([entry.pair for entry in rounds])
    return np.array([np.median(ratios[numbers == number]) for number in np.unique(numbers)])


@dataclass(frozen=True, slots=True)
class PairRatio:
    """Ratio of two sequences of times that took turns in one set of processes."""

    word: Word
    ratio: float
    """Median over pairs of the first's time divided by the second's: above 1 if the second is faster."""
    interval: tuple[float, float] | None
    """The 95 % interval of that median; None for fewer than six pairs."""
    pairs: int


def pair_ratio(first: Sequence[float], second: Sequence[float]) -> PairRatio:
    """Compare times that were measured in pairs, in any unit. Raises ValueError if there are no pairs."""
    ratios = np.sort([a / b for a, b in zip(first, second, strict=True)])
    if not len(ratios):
        raise ValueError("no pairs")
    middle = float(np.median(ratios))
    if len(ratios) < FEWEST_FOR_INTERVAL:
        return PairRatio("too few units", middle, None, len(ratios))
    low, high = (float(ratios[rank]) for rank in interval_ranks(len(ratios)))
    return PairRatio(_word(middle, low, high), middle, (low, high), len(ratios))


def turned(ratio: float, interval: tuple[float, float] | None) -> tuple[float, tuple[float, float] | None]:
    """Return the ratio and its interval with the two sides exchanged."""
    return 1 / ratio, None if interval is None else (1 / interval[1], 1 / interval[0])
