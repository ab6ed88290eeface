"""Which rows a final decides between, and so which may be recommended."""

from collections.abc import Sequence

from bakeoff.record.schema import Record
from bakeoff.record.store import Stored


def finalists(rows: Sequence[Stored]) -> list[Stored]:
    """The two rows with the lowest medians, the lowest first; fewer where there are not two that can be shipped.

    `rows` are comparable with each other, one for each variant.
    """
    fitting = [entry for entry in rows if is_candidate(entry.record)]
    return sorted(fitting, key=_median_ms)[:2]


def is_candidate(record: Record) -> bool:
    """Whether the row can be shipped: it is ok, has samples, and its error is that of real weights or of no rounding.

    The error of a quantised row on random weights says nothing about its error on trained ones.
    """
    return record.status == "ok" and record.latency is not None and not has_unknown_error(record)


def has_unknown_error(record: Record) -> bool:
    """Whether a quantised row was checked on random weights alone."""
    return bool(record.quantisation) and not record.checkpoint


def _median_ms(entry: Stored) -> float:
    return entry.record.latency.median_ms if entry.record.latency is not None else float("inf")
