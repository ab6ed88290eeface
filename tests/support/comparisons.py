"""Comparisons whose verdicts follow from the medians they are made from."""

from collections.abc import Sequence
from dataclasses import replace

from answers import as_text
from few_records import stored

from bakeoff.record.schema import SCHEMA, Clock, Comparison, Record, Round, Samples
from bakeoff.record.store import StoredComparison
from bakeoff.report.recommendation import deployment


def final(*sides: Record, sweep: str = "", created: str = "2026-01-02T04:00:00.000000Z", pairs: int = 7) -> Comparison:
    """Sides whose calls take what their records' medians say, in every round of `pairs` pairs of processes."""
    medians = [round(side.latency.median_ms * 1e6) if side.latency is not None else 1 for side in sides]
    rounds = tuple(
        Round(tuple(range(len(sides))), tuple(Samples([median + turn] * 3) for median in medians), pair)
        for pair in range(pairs)
        for turn in range(12)
    )
    return Comparison(
        schema=SCHEMA,
        created=created,
        sweep=sweep,
        how="interleaved",
        seed=1,
        sides=tuple(_without_samples(side) for side in sides),
        rounds=rounds,
    )


def _without_samples(record: Record) -> Record:
    made = replace(record.measurement, latency=Clock(Samples()), throughput=None)
    return replace(record, measurement=made)


def kept(*comparisons: Comparison) -> list[StoredComparison]:
    return [StoredComparison(f"final-{index}", entry) for index, entry in enumerate(comparisons)]


def said(rows: Sequence[Record], *comparisons: Comparison) -> str:
    """What is recommended of these rows, as text."""
    return as_text(deployment(stored(*rows), kept(*comparisons)))
