"""Computes a device's busy and idle time by line of the account, and the kernels and operators that took most.

A kernel belongs to the line that launched it, whenever it ran. Idle time before a kernel is split as in Holistic Trace
Analysis (hta/analyzers/breakdown_analysis.py): the host had not launched the kernel yet; the kernel was queued and
followed at once; or anything else. Idle time belongs to the line of the kernel that ends it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bakeoff.record.pipeline import LineTrace, NamedTime, Ranking
from bakeoff.record.session import LineKind
from bakeoff.trace.timeline import Kernel, Operator, Timeline, Window

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


@dataclass(frozen=True, slots=True)
class LineName:
    """Identity of the line of the account that a segment belongs to."""

    name: str
    kind: LineKind
    slot: str


@dataclass(slots=True)
class _Sums:
    """Busy intervals, idle time by cause, and number of launches of one line."""

    busy: list[Interval] = field(default_factory=list)
    host_wait_ns: int = 0
    gap_ns: int = 0
    other_ns: int = 0
    launches: int = 0


@dataclass(frozen=True, slots=True)
class Account:
    """Busy and idle time of all lines in the traced units, and the kernels, operators and waits that took most."""

    lines: tuple[LineTrace, ...]
    busy_ns: int
    """Length of the union of all kernels; on a CPU, of all operators."""
    kernels: Ranking | None
    """None on a CPU."""
    operators: Ranking
    synchronisations: tuple[NamedTime, ...]


def account(timeline: Timeline, segments: Sequence[LineName], device: str, top: int) -> Account:
    """Return the device's busy and idle time by line of the account.

    On a CPU, operators count as busy time, and idle time is not split. `segments` has the line of each segment by its
    number. Each ranking lists its `top` longest entries.
    """
    found = _Lines(timeline.windows, segments)
    sums: dict[LineName, _Sums] = {line: _Sums() for line in segments}
    if device == "cuda":
        ran: Sequence[Kernel | Operator] = timeline.kernels
        for kernel in timeline.kernels:
            line = sums[found.of_kernel(kernel)]
            line.busy.append((kernel.start_ns, kernel.end_ns))
            line.launches += 1
        _split_idle(timeline, found, sums)
    else:
        ran = timeline.operators
        for operator in timeline.operators:
            line = sums[found.at(operator.start_ns)]
            line.busy.append((operator.start_ns, operator.end_ns))
            line.launches += 1
    spans: dict[LineName, int] = dict.fromkeys(segments, 0)
    for window in timeline.windows:
        spans[segments[window.segment]] += window.end_ns - window.start_ns
    lines = tuple(
        LineTrace(
            name=line.name,
            kind=line.kind,
            slot=line.slot,
            span_ns=spans[line],
            busy_ns=covered_ns(held.busy),
            host_wait_ns=held.host_wait_ns,
            gap_ns=held.gap_ns,
            other_ns=held.other_ns,
            launches=held.launches,
        )
        for line, held in sums.items()
        if spans[line] or held.launches or line.kind != "phase"
    )
    return Account(
        lines=lines,
        busy_ns=covered_ns((one.start_ns, one.end_ns) for one in ran),
        kernels=_ranking(
            (
                (kernel.name, found.of_kernel(kernel).name, kernel.end_ns - kernel.start_ns)
                for kernel in timeline.kernels
            ),
            top,
        )
        if device == "cuda"
        else None,
        operators=_ranking(
            ((one.name, found.at(one.start_ns).name, one.own_ns) for one in timeline.operators),
            top,
        ),
        synchronisations=_ranking(
            ((one.name, found.at(one.start_ns).name, one.own_ns) for one in timeline.waits), top
        ).top,
    )


class _Lines:
    """Look-up of the line of the account that a host time or a kernel belongs to."""

    def __init__(self, windows: Sequence[Window], segments: Sequence[LineName]) -> None:
        self._windows, self._segments = windows, segments
        self._starts = [window.start_ns for window in windows]

    def at(self, ns: int) -> LineName:
        """Return the line at a time of the host's clock; outside all windows, that of segment 0, unattributed."""
        place = bisect_right(self._starts, ns) - 1
        if place >= 0 and ns < self._windows[place].end_ns:
            return self._segments[self._windows[place].segment]
        return self._segments[0]

    def of_kernel(self, kernel: Kernel) -> LineName:
        """Return the line that launched the kernel; if its launch is unknown, that of segment 0, unattributed."""
        return self._segments[0] if kernel.launched_ns is None else self.at(kernel.launched_ns)


def _split_idle(timeline: Timeline, found: _Lines, sums: Mapping[LineName, _Sums]) -> None:
    """Split each unit's idle time, from its start to its end, and add it to `sums`. Kernels are ordered by start."""
    of_unit = _by_unit(timeline)
    for start_ns, end_ns, kernels in of_unit:
        idle_since = start_ns
        for kernel in kernels:
            idle = min(kernel.start_ns, end_ns) - idle_since
            if idle > 0:
                line = sums[found.of_kernel(kernel)]
                if kernel.launched_ns is None:
                    line.other_ns += idle
                elif kernel.launched_ns >= idle_since:
                    line.host_wait_ns += idle
                elif idle <= QUEUE_GAP_NS:
                    line.gap_ns += idle
                else:
                    line.other_ns += idle
            idle_since = max(idle_since, kernel.end_ns)
        if idle_since < end_ns:
            sums[found.at(-1)].host_wait_ns += end_ns - idle_since  # nothing was launched any more


def _by_unit(timeline: Timeline) -> list[tuple[int, int, list[Kernel]]]:
    """Return each unit's start and end, and the kernels launched in it or, without a known launch, started in it."""
    units: dict[int, list[Window]] = {}
    for window in timeline.windows:
        units.setdefault(window.unit, []).append(window)
    borders = [(windows[0].start_ns, windows[-1].end_ns) for windows in units.values()]
    starts = [start for start, _ in borders]
    held: list[list[Kernel]] = [[] for _ in borders]
    for kernel in timeline.kernels:
        place = bisect_right(starts, kernel.start_ns if kernel.launched_ns is None else kernel.launched_ns) - 1
        held[place].append(kernel)
    return [(start, end, kernels) for (start, end), kernels in zip(borders, held, strict=True)]


def _ranking(ran: Iterable[tuple[str, str, int]], top: int) -> Ranking:
    """Return the ranking of runs, given as name, line and nanoseconds, summed by name and line."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for name, line, ns in ran:
        calls, total = sums.get((name, line), (0, 0))
        sums[name, line] = calls + 1, total + ns
    order = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    return Ranking(
        top=tuple(NamedTime(name, line, calls, ns) for (name, line), (calls, ns) in order[:top]),
        total_ns=sum(ns for _, ns in sums.values()),
        names=len(sums),
    )
