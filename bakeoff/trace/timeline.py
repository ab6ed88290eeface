"""Reads a trace's events: windows of the account, operators with their own time, and kernels with their launches.

Ranges that users or the profiler wrote (`user_annotation`, and their copies on the device) count neither as operators
nor as kernels: they enclose both, and a sum that includes them counts time twice (pytorch#130730).
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from statistics import median_low
from typing import Any

from bakeoff.models.grouping import grouped
from bakeoff.record.session import LineKind
from bakeoff.trace.chrome import BEGIN, END, TraceEvent, marked_segment, named_part

_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
_LAUNCHES = {"cuda_runtime", "cuda_driver"}
_SYNCHRONISES = re.compile(r"Synchronize|^aten::(item|_local_scalar_dense|is_nonzero)$")
_COMPILES = re.compile(
    r"\(dynamo_timed\)|compile_inner|compile_fx|async_compile|^inductor[_ ]codegen|convert_frame"
    r"|cudaGraphInstantiate|cudaStreamBeginCapture|cuModuleLoad|cuLibraryLoad",
)
"""Names of events that show dynamo or inductor compiling (torch/_dynamo/utils.py names them `... (dynamo_timed)`), a
CUDA graph being made, or code being loaded onto the device."""
DISTURBED = 1.5
"""Factor over the median unit time: a traced steady unit that took longer was disturbed, usually by another process."""
_WRAPPERS = ("Torch-Compiled Region", "## Call", "TorchDynamo Cache Lookup", "CompiledFxGraph", "Pregraph bytecode")
"""Beginnings of names of operators that only enclose what a compiled region runs; their own time is the host's."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Part of a unit's time: the line of the account that it belongs to, and its slot and program."""

    line: str
    kind: LineKind
    slot: str = ""
    program: str = ""
    """The program that the segment calls; "" if it calls none."""


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of a traced unit between two stamps."""

    unit: int
    """Number of the traced unit, from 0."""
    segment: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Activity:
    """One run of an operator on the host, or one kernel, copy or fill on a device."""

    name: str
    start_ns: int
    end_ns: int
    own_ns: int
    """Duration without the operators that it calls."""
    host_ns: int | None
    """Time at which it began on the host: of a kernel, its launch; None if the trace lacks the launch."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events of a trace that lie in traced units, ordered by time."""

    windows: tuple[Window, ...]
    operators: tuple[Activity, ...]
    kernels: tuple[Activity, ...]
    waits: tuple[Activity, ...]
    """Calls that make the host wait for the device."""
    parts: tuple[tuple[int, int, int], ...]
    """Number, start and end of each run of a part of a network."""
    allocations: tuple[tuple[int, int], ...]
    """Time of each allocation or release, and the total of allocated bytes after it."""
    compiled: tuple[str, ...]
    """Distinct names of a compiler's events."""


def disturbed_units(timeline: Timeline) -> dict[int, int]:
    """Return, by number, the nanoseconds of units longer than `DISTURBED` times the median: at most half of all."""
    times = [end_ns - start_ns for start_ns, end_ns in _spans(timeline.windows)]
    longest = DISTURBED * median_low(times) if times else 0
    return {unit: ns for unit, ns in enumerate(times) if ns > longest}


def without(timeline: Timeline, units: Collection[int]) -> Timeline:
    """Return the timeline without these units; allocations and the compiler's events are kept."""
    spans = _spans(timeline.windows)

    def kept(ns: int) -> bool:
        return bisect_right(spans, (ns, float("inf"))) - 1 not in units

    def kept_of(activities: Iterable[Activity]) -> tuple[Activity, ...]:
        return tuple(one for one in activities if kept(begin_ns(one)))

    return replace(
        timeline,
        windows=tuple(one for one in timeline.windows if one.unit not in units),
        operators=kept_of(timeline.operators),
        kernels=kept_of(timeline.kernels),
        waits=kept_of(timeline.waits),
        parts=tuple(part for part in timeline.parts if kept(part[1])),
    )


def begin_ns(one: Activity) -> int:
    """Return when an activity began on the host, or if that is unknown, on its device."""
    return one.start_ns if one.host_ns is None else one.host_ns


def read_timeline(events: Iterable[TraceEvent], device: str) -> Timeline:
    """Return the timeline of the traced units of one process, with allocations on `device`, which is cpu or cuda.

    Raises ValueError if the stamps are not in the order of whole units, which cannot happen in a complete trace.
    """
    every = list(events)
    ranges = [event for event in every if event.ph == "X"]
    windows = _windows(ranges)
    spans = _spans(windows)

    def inside(start_ns: int) -> bool:
        place = bisect_right(spans, (start_ns, float("inf"))) - 1
        return place >= 0 and start_ns < spans[place][1]

    launched = {
        _correlation(event): event.start_ns for event in ranges if event.cat in _LAUNCHES and _correlation(event)
    }
    kernels = [_activity(event, launched.get(_correlation(event))) for event in ranges if event.cat in _DEVICE]
    host = [event for event in ranges if inside(event.start_ns) and event.cat not in _DEVICE]
    operators = _operators(event for event in host if event.cat == "cpu_op")
    waits = [
        _activity(event, event.start_ns)
        for event in host
        if event.cat in _LAUNCHES and _SYNCHRONISES.search(event.name)
    ]
    return Timeline(
        windows=windows,
        operators=tuple(one for one in operators if not one.name.startswith(_WRAPPERS)),
        kernels=tuple(
            sorted(
                (one for one in kernels if inside(begin_ns(one))),
                key=lambda one: (one.start_ns, one.end_ns),
            )
        ),
        waits=tuple(sorted(waits, key=lambda one: one.start_ns)),
        parts=tuple(
            (part, event.start_ns, event.end_ns)
            for event in host
            if event.cat == "user_annotation" and (part := named_part(event.name)) is not None
        ),
        allocations=tuple(_allocations(every, device, inside)),
        compiled=tuple(dict.fromkeys(event.name for event in host if _COMPILES.search(event.name))),
    )


def _windows(ranges: Sequence[TraceEvent]) -> tuple[Window, ...]:
    """Return the windows between successive stamps. Raises ValueError if stamps are not in the order of whole units."""
    stamps = sorted(
        (
            (event.start_ns, event.name)
            for event in ranges
            if event.cat == "user_annotation" and (event.name in (BEGIN, END) or marked_segment(event.name) is not None)
        ),
        key=lambda stamp: (stamp[0], stamp[1] == END),
    )
    found: list[Window] = []
    unit, is_open = -1, False
    for (start_ns, before), (end_ns, name) in pairwise(stamps):
        if before == BEGIN:
            unit, is_open = unit + 1, True
        elif before == END:
            is_open = False
        segment = marked_segment(name)
        if not is_open:
            if name != BEGIN:
                raise ValueError(f"stamp {name!r} outside of a unit")
        elif segment is not None:
            found.append(Window(unit, segment, start_ns, end_ns))
        elif name != END:
            raise ValueError(f"a unit begins within unit {unit}")
        else:
            found.append(Window(unit, 0, start_ns, end_ns))  # waiting for the device at the end has no name
    return tuple(found)


def _spans(windows: Sequence[Window]) -> list[tuple[int, int]]:
    """Return the start and end of each unit."""
    units = [list(pieces) for _, pieces in groupby(windows, key=lambda window: window.unit)]
    return [(pieces[0].start_ns, pieces[-1].end_ns) for pieces in units]


def _activity(event: TraceEvent, host_ns: int | None) -> Activity:
    return Activity(event.name, event.start_ns, event.end_ns, event.end_ns - event.start_ns, host_ns)


def _correlation(event: TraceEvent) -> Any:
    return (event.args or {}).get("correlation")


def _operators(events: Iterable[TraceEvent]) -> list[Activity]:
    """Return the operators with their own times. One that begins within another on the same thread is called by it."""
    found: list[Activity] = []
    for ran in grouped(((str(event.pid), str(event.tid)), event) for event in events).values():
        own: list[int] = []
        order = sorted(ran, key=lambda event: (event.start_ns, -event.end_ns))
        stack: list[int] = []
        for place, event in enumerate(order):
            own.append(event.end_ns - event.start_ns)
            while stack and order[stack[-1]].end_ns <= event.start_ns:
                stack.pop()
            if stack:
                own[stack[-1]] -= max(0, min(event.end_ns, order[stack[-1]].end_ns) - event.start_ns)
            stack.append(place)
        found += [
            replace(_activity(event, event.start_ns), own_ns=max(0, ns)) for event, ns in zip(order, own, strict=True)
        ]
    return sorted(found, key=lambda one: (one.start_ns, -one.end_ns))


def _allocations(events: Iterable[TraceEvent], device: str, inside: Any) -> Iterable[tuple[int, int]]:
    """Yield allocations by kineto's `[memory]` instants; device type 0 is the CPU, 1 CUDA (c10/core/DeviceType.h)."""
    wanted = 1 if device == "cuda" else 0
    for event in sorted((one for one in events if one.name == "[memory]"), key=lambda one: one.ts):
        held = event.args or {}
        total = held.get("Total Allocated")
        if held.get("Device Type") == wanted and isinstance(total, int) and inside(event.start_ns):
            yield event.start_ns, total
