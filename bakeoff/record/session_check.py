"""What is wrong with a session's record that was read from a file: counts and sums that no session can have."""

from collections.abc import Iterator

from bakeoff.models.words import counted
from bakeoff.record.session import SessionRecord


def violation(record: SessionRecord) -> str | None:
    """The first thing that is wrong; None if nothing is."""
    return next(_violations(record), None)


def _violations(record: SessionRecord) -> Iterator[str]:
    if record.ns < 0:
        yield f"the session took {record.ns} ns"
    for each in (*record.ranges, *record.before):
        if each.calls < 0 or each.total_ns < 0:
            yield f"range {'/'.join(each.path) or 'session'} has {counted(each.calls, 'call')} of {each.total_ns} ns"
    total = sum(each.own_ns for each in record.ranges)
    if record.ranges and total != record.ns:
        yield f"the ranges add up to {total} ns, but the session took {record.ns} ns"
    for units in record.units:
        if units.count <= 0 or units.wall_ns < 0 or units.frames < 0:
            count, frames = counted(units.count, f"{units.kind} unit"), counted(units.frames, "frame")
            yield f"{count} of {frames} took {units.wall_ns} ns"
    for kept in record.spans:
        if kept.ns < 0 or any(span.ns < 0 or span.depth < 1 for span in kept.spans):
            yield f"unit {kept.index} has a span of negative length or depth"
    for step in record.steps:
        if step.calls <= 0:
            yield f"step {step.index} has {counted(step.calls, 'call')}"
    for series in (*record.series, *(record.monitored.series if record.monitored is not None else ())):
        if any(point.count <= 0 for point in series.points):
            yield f"series {series.name} has a point of no samples"
