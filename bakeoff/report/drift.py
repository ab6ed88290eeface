"""How far the medians of a variant lie apart from one sweep to the next, on machines of one name."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil

from bakeoff.record.source import same_code
from bakeoff.record.store import Stored
from bakeoff.report.groups import group_key

USUAL = 1.8
"""Without records: the largest ratio seen between sweeps of one commit on shared virtual machines (docs/method.md)."""
_FEWEST = 20
"""Ratios: of fewer the 95th percentile is no less than the largest."""
_SHARE = 0.95


def drift(stored: Iterable[Stored], machine: str) -> float:
    """The 95th percentile of the ratios, larger over smaller, of a row's medians in two sweeps of equal code.

    Of successive sweeps on all machines named `machine`; `USUAL` where there are fewer than 20 such ratios.
    """
    rows: dict[tuple[object, ...], list[Stored]] = {}
    for entry in stored:
        if entry.machine.name == machine and entry.record.status == "ok" and entry.record.latency is not None:
            rows.setdefault((group_key(entry.record), str(entry.record.variant)), []).append(entry)
    ratios = sorted(ratio for found in rows.values() for ratio in _ratios(found))
    return ratios[ceil(_SHARE * len(ratios)) - 1] if len(ratios) >= _FEWEST else USUAL


def _ratios(rows: Sequence[Stored]) -> Iterable[float]:
    ordered = sorted((entry.record for entry in rows), key=lambda record: record.created)
    for one, other in pairwise(ordered):
        if one.sweep != other.sweep and same_code(one, other) and one.latency and other.latency:
            low, high = sorted((one.latency.median_ms, other.latency.median_ms))
            yield high / low
