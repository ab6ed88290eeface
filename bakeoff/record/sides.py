"""Checks each side of a race by its blocks, as a row is checked by its window: a side that fails leaves no verdict."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median

import numpy as np

from bakeoff.models.words import counted
from bakeoff.record.finding import Finding, new_finding
from bakeoff.record.floor import below_floor
from bakeoff.record.schema import Record, Round
from bakeoff.record.verdict import FEWEST_PAIRS, medians

TREND = 1.3
"""Ratio of a side's times in the first third of a process's rounds to those in the last third that is no chance, if
it is so in each of three processes or more, and against each rival too: what the machine does, rivals feel as well."""
_LEAST_ROUNDS = 6
"""Fewest rounds of a process whose trend is looked at."""
IDLE, BUSY = 0.05, 0.2
"""Share of a core that a waiting side may take; and above it, the share that one process alone shows."""


def side_findings(
    records: Mapping[int, Record], rounds: Sequence[Round], idle: Sequence[Mapping[int, float]]
) -> Iterator[tuple[int, Finding]]:
    """Yield the number of each side that was ok and is not to be trusted, with why.

    `records` are the sides' by number. `idle` are, for each pair, the shares of a core that the sides took while others
    were timed.
    """
    for number, record in records.items():
        own = [entry for entry in rounds if number < len(entry.samples_ns)]
        if not own or record.status != "ok":
            continue
        floor = below_floor(record, float(np.median(medians(own, number))) / 1e6)
        if floor is not None:
            yield number, new_finding("below_floor", floor)
        trend = _trend(own, number, records.keys() - {number})
        if trend:
            yield number, new_finding("drift", trend)
        shares = [each[number] for each in idle if each.get(number, 0.0) > IDLE]
        if len(shares) >= FEWEST_PAIRS or max(shares, default=0.0) > BUSY:
            pairs = counted(len(shares), "pair")
            text = f"it took {max(shares):.0%} of a core while others were timed, in {pairs} of {len(idle)}"
            yield number, new_finding("not-idle", text)


def _trend(rounds: Sequence[Round], side: int, rivals: Collection[int]) -> str:
    """Return how the side's times change within each of its processes, if its rivals' do not; "" if they do not."""
    pairs = sorted({entry.pair for entry in rounds})
    if len(pairs) < FEWEST_PAIRS:
        return ""
    ratios = []
    for pair in pairs:
        of_pair = [entry for entry in rounds if entry.pair == pair]
        if len(of_pair) < _LEAST_ROUNDS:
            return ""
        own = _change(of_pair, side)
        against = [own / _change(of_pair, rival) for rival in rivals if rival < len(of_pair[0].samples_ns)]
        ratios.append((own, *against))
    if all(min(each) > TREND for each in ratios):
        word = "faster"
    elif all(max(each) < 1 / TREND for each in ratios):
        word = "slower"
    else:
        return ""
    change = median(own for own, *_ in ratios)
    by = max(change, 1 / change)
    processes = counted(len(pairs), "process", "processes")
    return f"its calls became {by:.1f}x {word} within each of {processes}, against its rivals too"


def _change(rounds: Sequence[Round], side: int) -> float:
    """Return the time of a side in the first third of the rounds divided by that in the last third."""
    times = medians(rounds, side)
    third = len(times) // 3
    return float(np.median(times[:third]) / np.median(times[-third:]))
