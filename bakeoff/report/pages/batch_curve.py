"""The section on batch curves: items per second, latency and memory of each variant by the size of the batch."""

from collections.abc import Iterator, Sequence
from typing import Final

from bakeoff.record.finalists import check_limits
from bakeoff.record.objective import Objective
from bakeoff.record.store import Stored
from bakeoff.report.columns import peak_mib
from bakeoff.report.document import Cell, Figures, Heading, Section, Text, blocks, listed, table
from bakeoff.report.figures.batch_curve import BatchCurve, BatchSeries, batch_curves, figure, ranked
from bakeoff.report.format import median_and_interval
from bakeoff.report.links import Cited
from bakeoff.report.pages.sweep import tone_of
from bakeoff.report.wording import fit_text, items_per_s, rate_text

_HEADINGS: Final = (
    Heading("variant"),
    Heading("batch", numeric=True),
    Heading("status", leaves=2),
    Heading("items/s [95 %]", "batch times calls a second by the throughput clock", numeric=True),
    Heading("median ms [95 %]", numeric=True, leaves=1),
    Heading("peak MiB", numeric=True, leaves=3),
    Heading("limits", leaves=4),
    Heading("record", leaves=5),
)
_EXPLANATION = (
    "A variant saturates at the smallest batch whose interval of items/s overlaps that of its best batch. Batches are "
    "measured one after another and not ranked."
)


def sections(rows: Sequence[Stored], cited: Cited | None = None) -> Iterator[Section]:
    """Yield a section for each subject measured with several batches; rows link to their records with `cited`."""
    for curve in batch_curves(rows):
        found = [(series.name, entry) for series in curve.series for entry in series.points]
        made = blocks(
            listed(Text(_saturation(series, best)) for series in curve.series if (best := series.saturates)),
            table(_HEADINGS, [_cells(name, entry, curve.objective, cited) for name, entry in found]),
            listed(_failures(curve)),
            Text(_EXPLANATION, tone="faint"),
            Figures((figure(curve),)),
        )
        yield Section(f"Batch curve: {curve.title}", made)


def _cells(name: str, entry: Stored, objective: Objective, cited: Cited | None) -> list[Cell | str]:
    record, peak = entry.record, peak_mib(entry.record)
    latency = record.latency
    checks = check_limits(record, objective) if latency is not None else ()
    return [
        name,
        str(record.batch),
        Cell(record.status, record.status, tone=tone_of(record.status)),
        rate_text(items_per_s(record)),
        " ".join(median_and_interval(latency)) if latency is not None else "",
        f"{peak:.0f}" if peak is not None else "",
        fit_text(checks) if checks else "",
        Cell("", link=cited(entry)) if cited is not None else "",
    ]


def _saturation(series: BatchSeries, best: Stored) -> str:
    rate = f"{rate_text(ranked(best.record))} items/s"
    if best.record.batch == series.largest:
        return f"{series.name} is not saturated: batch {series.largest}, its largest, gives the most, {rate}"
    return f"{series.name} saturates at batch {best.record.batch}: {rate}"


def _failures(curve: BatchCurve) -> Iterator[str]:
    """Return each reason why variants have no ranked figure, with all variants and batches that have it."""
    found: dict[str, list[str]] = {}
    for series in curve.series:
        for record in (entry.record for entry in series.points if ranked(entry.record) is None):
            reason = f"{record.status}: {record.measurement.reason}" if record.measurement.reason else record.status
            found.setdefault(reason, []).append(f"{series.name} at batch {record.batch}")
    return (f"{', '.join(those)}: {reason}" for reason, those in found.items())
