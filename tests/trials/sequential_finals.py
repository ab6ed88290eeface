"""What stopping a comparison after three to six sets of processes, where the difference is large, does to verdicts.

    python tests/trials/sequential_finals.py [--runs runs] [--count 10000] [--spread 0.15] [--errors 3.3] [--rounds 8]

It measures nothing: it replays stored comparisons and draws random ones, with the rule of bakeoff.record.verdict or
with another least spread, number of standard errors or of rounds. It prints

- a line for each two sides of each stored comparison: after how many sets the rule shows a difference, the ratio then,
  the verdict of all sets, and whether the two agree. The rule was chosen on the first twelve, which therefore say
  nothing about whether it was chosen well;
- how far early ratios are from those of the sweep's rows, for which of them a race goes on (`OFF_ROWS`), and how far
  the others are from the ratio of all sets where seven or more were run;
- for several kinds of differences between processes, and true ratios of 1 and above, in how many of `--count` random
  comparisons the early rule shows a wrong difference or the right one, in how many its interval misses the ratio, the
  same for the whole procedure with and without it, and the number of sets.

Random comparisons have the differences between rounds of the stored ones. It takes some ten minutes. Exits 1 when a
stored verdict is contradicted, when more than 0.5 % of the random comparisons of a kind have a wrong early verdict or
an early interval that misses the ratio, or when the early rule adds as many to the wrong ones.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from bakeoff.record.schema import Comparison
from bakeoff.record.store import StoredComparison, load_all
from bakeoff.record.verdict import (
    AGREEING_PAIRS,
    EARLY_ERRORS,
    FEWEST_PAIRS,
    LEAST_SPREAD,
    MOST_PAIRS,
    OFF_ROWS,
    SET_ROUNDS,
    Verdict,
    decide,
    is_futile,
    ratios_of_pairs,
    ratios_of_rounds,
    show_early,
    show_usual,
)

CHOSEN_ON = 12
"""The oldest comparisons of several sets; the rule was chosen on these."""
MOST_WRONG = 0.005
Ratios = NDArray[Any]
Draw = Callable[[], Ratios]
"""The differences between the two sides' processes, as logarithms, of `MOST_PAIRS` sets."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When to stop early."""

    errors: float
    spread: float
    rounds: int
    """Of a set, in random comparisons."""

    def stops(self, pairs: Ratios) -> tuple[int, Verdict] | None:
        """After how many of these sets a difference is shown, and what; None where all are needed."""
        for count in range(FEWEST_PAIRS, min(len(pairs), AGREEING_PAIRS - 1) + 1):
            found = show_early(pairs[:count], self.errors, self.spread)
            if found is not None:
                return count, found
        return None


def pairs_of(comparison: Comparison, first: int, second: int) -> Ratios:
    """The ratio of each set that has both sides: a baseline may be in the first ones alone."""
    rounds = [entry for entry in comparison.rounds if max(first, second) < len(entry.samples_ns)]
    return ratios_of_pairs(rounds, first, second)


@dataclass(frozen=True, slots=True)
class Replayed:
    """Two sides of a stored comparison."""

    cells: tuple[object, ...]
    contradicts: bool


def replay(entry: StoredComparison, first: int, second: int, chosen_on: bool, rule: Rule) -> Replayed:
    comparison = entry.record
    whole, stopped = decide(comparison, first, second), rule.stops(pairs_of(comparison, first, second))
    early = "" if stopped is None else interval(stopped[1].ratio, stopped[1].low, stopped[1].high)
    contradicts = stopped is not None and stopped[1].word != whole.word
    said = "" if stopped is None else "CONTRADICTS" if contradicts else "agrees"
    a, b = (comparison.sides[index].variant for index in (first, second))
    return Replayed(
        (
            "chosen on" if chosen_on else "new",
            comparison.created[:16],
            a.component,
            f"{a.backend} {a.dtype}",
            f"{b.backend} {b.dtype}",
            whole.pairs,
            whole.word,
            interval(whole.ratio, whole.low, whole.high),
            "" if stopped is None else stopped[0],
            early,
            said,
        ),
        contradicts,
    )


@dataclass(frozen=True, slots=True)
class EarlySize:
    """An early ratio of two sides of a final, by the rows of its sweep and by all sets, if there were seven."""

    early: float
    rows: float
    all: float | None


def early_sizes(runs: Path, rule: Rule) -> list[EarlySize]:
    """The early sizes of stored finals whose sweeps' rows are stored too."""
    records = load_all(runs)
    rows = {
        (entry.record.sweep, str(entry.record.variant)): entry.record.latency.median_ms
        for entry in (*records.current, *records.superseded)
        if entry.record.latency is not None
    }
    found = []
    for entry in several_sets(runs):
        comparison = entry.record
        for first, second in sides_of(comparison):
            names = [(comparison.sweep, str(comparison.sides[side].variant)) for side in (first, second)]
            stopped = rule.stops(pairs_of(comparison, first, second))
            if stopped is not None and all(name in rows for name in names):
                whole = decide(comparison, first, second)
                size = whole.ratio if whole.pairs >= AGREEING_PAIRS else None
                found.append(EarlySize(stopped[1].ratio, rows[names[1]] / rows[names[0]], size))
    return found


def apart(ratio: float) -> float:
    return max(ratio, 1 / ratio)


def tell_sizes(found: Sequence[EarlySize]) -> None:
    off = [one for one in found if apart(one.early / one.rows) > OFF_ROWS]
    kept = [apart(one.early / one.all) for one in found if one.all is not None and one not in off]
    later = [f"{one.early:.2f} early, {one.rows:.2f} by rows, {one.all and round(one.all, 2)} by all" for one in off]
    print(f"{len(found)} early sizes with rows; the race goes on for {len(off)}: {'; '.join(later)}")
    if kept:
        print(f"of the others {len(kept)} had seven sets or more, and are off these by {max(kept) - 1:.1%} at most")


def interval(ratio: float, low: float, high: float) -> str:
    return f"{ratio:.2f} [{low:.2f}, {high:.2f}]"


def several_sets(runs: Path) -> list[StoredComparison]:
    """The stored comparisons of at least three sets of processes that ran beside each other, the oldest first."""
    found = [
        entry
        for entry in load_all(runs).comparisons
        if entry.record.how == "interleaved" and len(_pairs_of(entry.record)) >= FEWEST_PAIRS
    ]
    return sorted(found, key=lambda entry: entry.record.created)


def _pairs_of(comparison: Comparison) -> set[int]:
    return {entry.pair for entry in comparison.rounds}


def sides_of(comparison: Comparison) -> list[tuple[int, int]]:
    """The two that are compared, then each against the baseline."""
    return [(0, 1), *([(0, 2), (1, 2)] if comparison.baseline is not None else [])]


@dataclass(frozen=True, slots=True)
class Residuals:
    """How stored ratios, as logarithms, differ from the median of their comparison or set."""

    of_sets: tuple[Ratios, ...]
    """Of the comparisons that went on to seven sets, one array for each."""
    of_rounds: Ratios


def residuals(kept: Sequence[StoredComparison]) -> Residuals:
    of_sets, of_rounds = [], []
    for comparison in (entry.record for entry in kept if len(_pairs_of(entry.record)) >= AGREEING_PAIRS):
        for first, second in sides_of(comparison)[:2]:
            logs = np.log(ratios_of_pairs(comparison.rounds, first, second))
            of_sets.append(logs - np.median(logs))
            for number in _pairs_of(comparison):
                rounds = [entry for entry in comparison.rounds if entry.pair == number]
                within = np.log(ratios_of_rounds(rounds, first, second))
                of_rounds.append(within - np.median(within))
    return Residuals(tuple(of_sets), np.concatenate(of_rounds))


def differences(found: Residuals, random: np.random.Generator) -> Mapping[str, Draw]:
    """Kinds of differences between processes; which side is the slower one is drawn too."""
    pooled, count = np.concatenate(found.of_sets), MOST_PAIRS

    def sign(size: int) -> Ratios:
        return random.choice((-1.0, 1.0), size)

    def unlucky() -> Ratios:
        return np.log(1.3) * (random.random(count) < 0.2)

    return {
        "stored, all together": lambda: random.choice(pooled, count) * sign(count),
        "stored, of one comparison": lambda: (
            random.choice(found.of_sets[random.integers(len(found.of_sets))], count) * sign(1)
        ),
        "two-valued, 15 % up or down": lambda: 0.15 * sign(count),
        "one process in five is 30 % slower": lambda: unlucky() - unlucky(),
        "one in five of one side": unlucky,
        "t with 3 degrees, sd 0.087": lambda: 0.087 / np.sqrt(3) * random.standard_t(3, count),
    }


@dataclass(frozen=True, slots=True)
class Ended:
    """How a random comparison ended."""

    early: Verdict | None
    usual: Verdict
    """Of the procedure without the early rule."""
    sets: int
    usual_sets: int


def run(draw: Draw, within: Ratios, ratio: float, rule: Rule, random: np.random.Generator) -> Ended:
    logs = np.log(ratio) + draw()
    rounds = logs[:, None] + random.choice(within, (MOST_PAIRS, rule.rounds))
    pairs, ratios, usual_sets = np.exp(np.median(rounds, axis=1)), np.exp(rounds), 0
    for usual_sets in range(1, MOST_PAIRS + 1):
        usual = show_usual(pairs[:usual_sets], ratios[:usual_sets].ravel())
        if usual.word != "no difference shown" or is_futile(pairs[:usual_sets], ratios[:usual_sets].ravel()):
            break
    stopped = rule.stops(pairs[:usual_sets])
    if stopped is None:
        return Ended(None, usual, usual_sets, usual_sets)
    return Ended(stopped[1], usual, stopped[0], usual_sets)


def simulate(ended: Iterator[Ended], ratio: float, count: int) -> dict[str, float]:
    """Shares of the comparisons, and mean numbers of sets."""
    truth = "faster" if ratio > 1 else "no difference shown"
    tally: Counter[str] = Counter()
    for one in ended:
        last = one.early or one.usual
        for name, shown in (("early", one.early), ("whole", last), ("without", one.usual)):
            if shown is not None and shown.word != "no difference shown":
                tally[f"{name} {'right' if shown.word == truth else 'wrong'}"] += 1
        tally["early misses"] += one.early is not None and not one.early.low <= ratio <= one.early.high
        tally["sets"] += one.sets
        tally["sets without"] += one.usual_sets
    return {name: number / count for name, number in tally.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/published"))
    parser.add_argument("--count", type=int, default=10000, help="random comparisons of each kind and ratio")
    parser.add_argument("--spread", type=float, default=LEAST_SPREAD, help="least standard deviation of the logarithms")
    parser.add_argument("--errors", type=float, default=EARLY_ERRORS, help="standard errors to an end of the interval")
    parser.add_argument("--rounds", type=int, default=SET_ROUNDS, help="of a set, in random comparisons")
    parser.add_argument("--ratios", type=float, nargs="+", default=[1.0, 1.05, 1.2, 1.5])
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rule, kept = Rule(asked.errors, asked.spread, asked.rounds), several_sets(asked.runs)
    replayed = [
        replay(entry, *sides, number < CHOSEN_ON, rule)
        for number, entry in enumerate(kept)
        for sides in sides_of(entry.record)
    ]
    headings = (
        "", "made", "component", "A", "B", "sets", "verdict of all", "ratio", "stops after", "ratio then", "and",
    )  # fmt: skip
    tell_sizes(early_sizes(asked.runs, rule))
    print(tabulate([each.cells for each in replayed], headers=headings), "\n")
    found, random = residuals(kept), np.random.default_rng(asked.seed)
    rows, failed = [], any(each.contradicts for each in replayed)
    columns = (
        "early wrong",
        "early misses",
        "early right",
        "whole wrong",
        "whole right",
        "without wrong",
        "without right",
    )
    for name, draw in differences(found, random).items():
        for ratio in asked.ratios:
            ended = (run(draw, found.of_rounds, ratio, rule, random) for _ in range(asked.count))
            shares = simulate(ended, ratio, asked.count)
            percents = [f"{100 * shares.get(column, 0.0):.2f} %" for column in columns]
            rows.append([name, ratio, *percents, f"{shares['sets']:.1f}", f"{shares['sets without']:.1f}"])
            added = shares.get("whole wrong", 0.0) - shares.get("without wrong", 0.0)
            failed |= max(added, shares.get("early wrong", 0.0), shares.get("early misses", 0.0)) > MOST_WRONG
    print(tabulate(rows, headers=("differences", "ratio", *columns, "sets", "sets without")))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
