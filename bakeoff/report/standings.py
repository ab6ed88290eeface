"""Ranks the rows of a running sweep: by subject, the fastest first, from the records so far."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bakeoff.machine.terminal import one_line
from bakeoff.record.schema import NEVER_RUN, Measurement, Record, Status
from bakeoff.record.store import Stored
from bakeoff.report.format import median_and_interval
from bakeoff.report.groups import baselines, groups, name_of, newest, speedup, stated_over


@dataclass(frozen=True, slots=True)
class Standing:
    """One row of the standings as text."""

    name: str
    status: Status
    reason: str
    median: str
    """In milliseconds; "" without samples, as are the interval and the gain."""
    interval: str
    """The median's 95 % interval."""
    gain: str
    """Speedup over eager fp32; "" also if the row is not ok or eager fp32 was not measured."""


@dataclass(frozen=True, slots=True)
class Standings:
    """The variants of one subject, each by the record that represents its builds and processes."""

    subject: str
    records: tuple[Record, ...]
    """Records that are ok, the fastest first; then the others with figures, then those without figures."""
    base: Record | None
    """Eager fp32; None if it was not measured."""

    @property
    def rows(self) -> list[Standing]:
        return [self.row(record) for record in self.records]

    def row(self, record: Record) -> Standing:
        """Return a record of this subject as a row of text; it need not be one of `records`."""
        median, interval = median_and_interval(record.latency) if record.latency is not None else ("", "")
        return Standing(
            name=f"{name_of(record)} on {record.node}" if record.node else name_of(record),
            status=record.status,
            reason=one_line(record.measurement.reason),
            median=median,
            interval=interval,
            gain=str(speedup(record, self.base) or "") if record.status == "ok" else "",
        )

    def place(self, record: Record) -> str:
        """Return the place of the record's variant among the ok ones, such as `fastest so far`; "" if it is alone."""
        ranked = [str(each.variant) for each in self.records if each.status == "ok"]
        if len(ranked) < 2 or str(record.variant) not in ranked:
            return ""
        place = ranked.index(str(record.variant)) + 1
        return "fastest so far" if place == 1 else f"{place} of {len(ranked)} so far"


def subject_of(record: Record) -> str:
    """Return the subject and batch, which the rows of one table share, as text."""
    return f"{record.variant.subject}, batch {record.batch}"


def standings(records: Iterable[Record]) -> list[Standings]:
    """Return standings for each subject, in the order of first rows, without rows that cannot run on this machine."""
    stored = [Stored("", record) for record in records if can_run(record)]
    found = []
    for group in groups(newest(stored)):
        ordered = sorted((entry.record for entry in group.rows), key=_rank)
        found.append(Standings(subject_of(ordered[0]), tuple(ordered), stated_over(baselines(group.rows))))
    return found


def reduced(record: Record) -> Record:
    """Return the record with what standings need and little else, for commands that hold those of many rows."""
    measured = record.measurement
    clock = measured.latency.without_samples() if measured.latency is not None else None
    less = Measurement(measured.status, reason=measured.reason, latency=clock)
    return replace(record, measurement=less, ceilings=(), environment={}, phase_s={}, asked={}, monitored=None)


def can_run(record: Record) -> bool:
    """Return whether the row can run on this machine at all."""
    return record.status not in NEVER_RUN


def never_run(records: Sequence[Record]) -> str:
    """Count the rows that cannot run, as in `3 rows cannot run here (2 unavailable, 1 unsupported)`; "" for none."""
    statuses = [record.status for record in records if not can_run(record)]
    if not statuses:
        return ""
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in sorted(set(statuses)))
    return f"{len(statuses)} {'rows' if len(statuses) > 1 else 'row'} cannot run here ({counts})"


def _rank(record: Record) -> tuple[bool, float]:
    figures = record.latency
    return record.status != "ok", figures.median_ms if figures is not None else float("inf")
