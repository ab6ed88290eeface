"""Latency by variant: the distribution of the timed calls, the median with its interval, p99, and the floor."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bakeoff.machine.floors import Ceiling
from bakeoff.record.floor import floor
from bakeoff.record.schema import Status
from bakeoff.record.statistics import Summary
from bakeoff.record.store import Stored
from bakeoff.report.figures.thinning import quantiles
from bakeoff.report.groups import name_of

_QUANTILES = 200


@dataclass(frozen=True, slots=True)
class LatencyRow:
    """A variant; without samples it has a reason in place of figures."""

    name: str
    status: Status
    reason: str
    figures: Summary | None
    floor_ms: float | None
    quantiles_ms: tuple[float, ...]
    """All timed calls in ascending order, or evenly spaced quantiles of them."""

    @property
    def above(self) -> bool:
        """Whether it is above 100 % of its floor."""
        return self.status == "ok" and (self.floor_ms or 0.0) > _median_ms(self)


def floor_text(rows: Iterable[LatencyRow]) -> str:
    """What a figure says of the floors of these rows."""
    above = any(row.above for row in rows)
    return "floor; right of a median that is ok: the ceilings are too low" if above else "floor"


def latency(rows: Sequence[Stored], ceilings: Sequence[Ceiling] | None = None) -> tuple[LatencyRow, ...]:
    """The rows by their median, fastest first; those without figures come last in their order.

    Floors are computed from `ceilings`, by default from each record's own.
    """
    return tuple(sorted((_row(entry, ceilings) for entry in rows), key=_median_ms))


def _row(entry: Stored, ceilings: Sequence[Ceiling] | None) -> LatencyRow:
    record, clock = entry.record, entry.record.measurement.latency
    bound = floor(record, ceilings)
    return LatencyRow(
        name=name_of(record),
        status=record.status,
        reason=record.measurement.reason,
        figures=record.latency,
        floor_ms=bound.ms if bound is not None and record.latency is not None else None,
        quantiles_ms=tuple(quantiles(clock.samples_ns, _QUANTILES)) if clock is not None else (),
    )


def _median_ms(row: LatencyRow) -> float:
    return row.figures.median_ms if row.figures is not None else float("inf")
