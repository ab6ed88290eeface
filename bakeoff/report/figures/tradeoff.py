"""Speed against error and peak memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from bakeoff.record.schema import Status
from bakeoff.record.store import Stored
from bakeoff.report.columns import peak_mib, worst_error
from bakeoff.report.figures.style import Style, styles
from bakeoff.report.groups import name_of


@dataclass(frozen=True, slots=True)
class TradeoffPoint:
    name: str
    style: Style
    status: Status
    median_ms: float
    error: float
    """Largest relative L2 of an output against the reference; 0 where there is no difference at all."""
    peak_mib: float | None


def tradeoff(rows: Sequence[Stored]) -> tuple[TradeoffPoint, ...]:
    """A point for each row that has a median and an error."""
    style = styles(entry.record for entry in rows)
    return tuple(
        TradeoffPoint(name, style[name], record.status, record.latency.median_ms, error, peak_mib(record))
        for name, record in ((name_of(entry.record), entry.record) for entry in rows)
        if record.latency is not None and (error := worst_error(record)) is not None
    )
