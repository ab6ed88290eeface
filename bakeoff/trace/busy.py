"""Computes a device's busy and idle time by line of the account, and the kernels and operators that took most.

A kernel belongs to the line that launched it, whenever it ran. Idle time before a kernel is split as in Holistic Trace
Analysis (hta/analyzers/breakdown_analysis.py): the host had not launched the kernel yet; the kernel was queued and
followed at once; or anything else. Idle time belongs to the line of the kernel that ends it.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

from bakeoff.models.grouping import grouped
from bakeoff.record.pipeline import LineTrace, NamedTime, Profile, Ranking
from bakeoff.record.session import LineKind
from bakeoff.trace.timeline import Activity, Segment, Timeline, Window, begin_ns

Interval = tuple[int, int]
"""Start and end in nanoseconds."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the intervals' union as sorted, disjoint intervals. One that ends before it starts counts as empty."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def covered_ns(intervals: Iterable[Interval]) -> int:
    """Return the length of the intervals' union in nanoseconds."""
    return sum(end - start for start, end in union(intervals))


QUEUE_GAP_NS = 5_000
"""Longest pause before a queued kernel that counts as the device's own launch of it; measured pauses are 1 to 2 us
(backends/tracing.py)."""


Line = tuple[str, LineKind, str]
"""Name, kind and slot of a line of the account."""


def account(timeline: Timeline, segments: Sequence[Segment], device: str, top: int) -> Profile:
    """Return a profile with the device's busy and idle time by line of the account, and what took most; no more.

    On a CPU, operators count as busy time, and idle time is not split. `segments` are in the order of their numbers.
    Each ranking lists its `top` longest entries.
    """
    lines, on_gpu = _Lines(timeline.windows, segments), device == "cuda"
    ran = timeline.kernels if on_gpu else timeline.operators
    busy: dict[Line, list[Interval]] = {line: [] for line in lines.of_segment}
    for one in ran:
        busy[lines.at(one.host_ns)].append((one.start_ns, one.end_ns))
    spans = Counter[Line]()
    for window in timeline.windows:
        spans[lines.of_segment[window.segment]] += window.end_ns - window.start_ns
    idle = _split_idle(timeline, lines) if on_gpu else Counter[tuple[Line, str]]()
    return Profile(
        level=0,
        units=0,
        wall_ns=0,
        cpu_ns=0,
        busy_ns=covered_ns((one.start_ns, one.end_ns) for one in ran),
        lines=tuple(
            LineTrace(
                *line,
                span_ns=spans[line],
                busy_ns=covered_ns(held),
                host_wait_ns=idle[line, "host wait"],
                gap_ns=idle[line, "gap"],
                other_ns=idle[line, "other"],
                launches=len(held),
            )
            for line, held in busy.items()
            if spans[line] or held or line[1] != "phase"
        ),
        kernels=_ranking(timeline.kernels, lines, top) if on_gpu else None,
        operators=_ranking(timeline.operators, lines, top),
        programs=(),
        synchronisations=_ranking(timeline.waits, lines, top).top,
    )


class _Lines:
    """Look-up of the line of the account at a time of the host's clock."""

    def __init__(self, windows: Sequence[Window], segments: Sequence[Segment]) -> None:
        self._windows = windows
        self._starts = [window.start_ns for window in windows]
        self.of_segment: list[Line] = [(one.line, one.kind, one.slot) for one in segments]

    def at(self, ns: int | None) -> Line:
        """Return the line at a time; outside of all windows or at an unknown time, that of segment 0, unattributed."""
        place = -1 if ns is None else bisect_right(self._starts, ns) - 1
        if ns is not None and place >= 0 and ns < self._windows[place].end_ns:
            return self.of_segment[self._windows[place].segment]
        return self.of_segment[0]


def _split_idle(timeline: Timeline, lines: _Lines) -> Counter[tuple[Line, str]]:
    """Return the nanoseconds of each unit's idle time, from its start to its end, by line and cause."""
    found = Counter[tuple[Line, str]]()
    for start_ns, end_ns, kernels in _by_unit(timeline):
        idle_since = start_ns
        for kernel in kernels:  # ordered by start
            idle = min(kernel.start_ns, end_ns) - idle_since
            if idle > 0:
                cause = "other"
                if kernel.host_ns is not None and kernel.host_ns >= idle_since:
                    cause = "host wait"
                elif kernel.host_ns is not None and idle <= QUEUE_GAP_NS:
                    cause = "gap"
                found[lines.at(kernel.host_ns), cause] += idle
            idle_since = max(idle_since, kernel.end_ns)
        if idle_since < end_ns:
            found[lines.at(None), "host wait"] += end_ns - idle_since  # nothing was launched any more
    return found


def _by_unit(timeline: Timeline) -> list[tuple[int, int, list[Activity]]]:
    """Return each unit's start and end, and the kernels launched in it or, without a known launch, started in it."""
    units = grouped((window.unit, window) for window in timeline.windows)
    found = [(windows[0].start_ns, windows[-1].end_ns, list[Activity]()) for windows in units.values()]
    starts = [start for start, _, _ in found]
    for kernel in timeline.kernels:
        found[bisect_right(starts, begin_ns(kernel)) - 1][2].append(kernel)
    return found


def _ranking(ran: Sequence[Activity], lines: _Lines, top: int) -> Ranking:
    """Return the ranking of activities, summed by name and line."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for one in ran:
        key = one.name, lines.at(one.host_ns)[0]
        calls, total = sums.get(key, (0, 0))
        sums[key] = calls + 1, total + one.own_ns
    order = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    return Ranking(
        top=tuple(NamedTime(name, line, calls, ns) for (name, line), (calls, ns) in order[:top]),
        total_ns=sum(ns for _, ns in sums.values()),
        names=len(sums),
    )
