"""Adds the lab's own tracks to a trace: units, phases, calls and parts of networks by their tags, and counters.

They come as a process of their own, `bakeoff`, with a row for each level, so that Perfetto shows them above the
operators and kernels that they contain. The stamps that they are read from are left out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from bakeoff.models.types import Scalar
from bakeoff.trace.busy import LineName
from bakeoff.trace.chrome import ChromeTrace, TraceEvent
from bakeoff.trace.marks import is_ours
from bakeoff.trace.tags import LEVELS, index_in, tag_of_line
from bakeoff.trace.timeline import Timeline, Window

PROCESS = "bakeoff"


@dataclass(frozen=True, slots=True)
class SegmentTag:
    """What a segment of the account is called in a trace."""

    line: LineName
    slot: str
    program: str
    """The program that it calls; "" where it calls none."""


@dataclass(frozen=True, slots=True)
class PartTag:
    """What the range of a part of a network is called in a trace."""

    tag: str
    level: int
    slot: str
    path: str


def annotated(
    trace: ChromeTrace,
    timeline: Timeline,
    segments: Sequence[SegmentTag],
    calls: Mapping[tuple[str, str], Sequence[Mapping[str, Scalar]]],
    parts: Sequence[PartTag],
    first_unit: int,
) -> ChromeTrace:
    """The trace with tracks of ours and without our stamps.

    `calls` has, for each line and `slot.program`, what is known of its calls in the order of a unit, such as the step
    and its timestep. `first_unit` is the number of the first traced unit within its session.
    """
    ours = [
        *_names(),
        *_units(timeline.windows, first_unit),
        *_lines(timeline.windows, segments),
        *_calls(timeline.windows, segments, calls),
        *_parts(timeline, parts),
        *_counters(timeline),
    ]
    others = [
        event for event in trace.traceEvents if not (event.cat.endswith("user_annotation") and is_ours(event.name))
    ]
    return ChromeTrace([*ours, *others], trace.deviceProperties, trace.displayTimeUnit)


def _names() -> Iterator[TraceEvent]:
    yield TraceEvent("M", "process_name", pid=PROCESS, args={"name": PROCESS})
    yield TraceEvent("M", "process_sort_index", pid=PROCESS, args={"sort_index": -1})
    for level, text in LEVELS.items():
        yield TraceEvent("M", "thread_name", pid=PROCESS, tid=level, args={"name": f"{level} {text}"})
        yield TraceEvent("M", "thread_sort_index", pid=PROCESS, tid=level, args={"sort_index": level})


def _range(name: str, level: int, start_ns: int, end_ns: int, args: dict[str, Any] | None = None) -> TraceEvent:
    return TraceEvent(
        "X", name, "bakeoff", start_ns / 1000, (end_ns - start_ns) / 1000, PROCESS, level, args=args or None
    )


def _units(windows: Sequence[Window], first_unit: int) -> Iterator[TraceEvent]:
    for unit, held in groupby(windows, key=lambda window: window.unit):
        pieces = list(held)
        yield _range("unit", 1, pieces[0].start_ns, pieces[-1].end_ns, {"index": first_unit + unit})


def _lines(windows: Sequence[Window], segments: Sequence[SegmentTag]) -> Iterator[TraceEvent]:
    """Neighbouring pieces of one phase are one range, whatever program they call."""
    for (_, line), held in groupby(windows, key=lambda window: (window.unit, segments[window.segment].line)):
        pieces = list(held)
        tag = tag_of_line(line.name)
        args = {"phase": line.name} if tag == "phase" else None
        yield _range(tag, 2, pieces[0].start_ns, pieces[-1].end_ns, args)


def _calls(
    windows: Iterable[Window],
    segments: Sequence[SegmentTag],
    known: Mapping[tuple[str, str], Sequence[Mapping[str, Scalar]]],
) -> Iterator[TraceEvent]:
    count: dict[tuple[int, str, str], int] = {}
    for window in windows:
        segment = segments[window.segment]
        if not segment.program:
            continue
        name = f"{segment.slot}.{segment.program}"
        index = count.get((window.unit, segment.line.name, name), 0)
        count[window.unit, segment.line.name, name] = index + 1
        facts = known.get((segment.line.name, name), ())
        about = dict(facts[index]) if index < len(facts) else {}
        args = {"slot": segment.slot, "program": segment.program, "index": index, **about}
        yield _range("call", 3, window.start_ns, window.end_ns, args)


def _parts(timeline: Timeline, parts: Sequence[PartTag]) -> Iterator[TraceEvent]:
    for one in timeline.parts:
        part = parts[one.part]
        index = index_in(part.path)
        args = {"slot": part.slot, "path": part.path} | ({} if index is None else {"index": index})
        yield _range(part.tag, part.level, one.start_ns, one.end_ns, args)


def _counters(timeline: Timeline) -> Iterator[TraceEvent]:
    for one in timeline.allocations:
        mebibytes = {"allocated MiB": round(one.bytes / 2**20, 3)}
        yield TraceEvent("C", "allocated MiB", "bakeoff", one.t_ns / 1000, pid=PROCESS, args=mebibytes)
