"""The tags of a trace, a closed list of range names, and the tracks that show units, phases, calls and parts by tag.

With tags, ranges of all units and steps can be summed and searched for. Whatever differs from one range to the next,
such as the number of a unit or step, a timestep or a module's path, is an argument of the range and never part of its
name. The tracks form a process of their own, `bakeoff`, with a row for each level, so that Perfetto shows them above
the operators and kernels that they contain. The stamps from which they are made are left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from bakeoff.models.types import Scalar
from bakeoff.record.pipeline import PartTime
from bakeoff.trace.chrome import ChromeTrace, TraceEvent, is_ours
from bakeoff.trace.timeline import Segment, Timeline, Window

LEVELS: Mapping[int, str] = {
    1: "units",
    2: "phases, glue, copies",
    3: "calls of programs and steps of the sampler",
    4: "parts of a network: embeddings, blocks, stages, heads",
    5: "parts of these: attention, feed-forward, convolutions",
}


_NAMES = {
    1: "unit",
    2: "denoise context decode image audio present phase glue copies unattributed",
    3: "call",
    4: "embedding block head first-layer middle upsample resize module",
    5: "self-attention cross-attention action feed-forward modulation residual resampling time-convolution submodule",
}
TAGS: Mapping[str, int] = {name: level for level, names in _NAMES.items() for name in names.split()}
"""Level of every range name that bakeoff writes into a trace; docs/pipelines.md says what each is. `phase`, `module`
and `submodule` stand for what is not in this list."""

_PATHS: Mapping[str, Sequence[tuple[str, str]]] = {
    "wm": (
        (r"control_embed|t_embed|proj_in|audio_proj_in|pos_enc", "embedding"),
        (r"transformer\.blocks\.\d+", "block"),
        (r"proj_out|audio_proj_out", "head"),
        (r"transformer\.blocks\.\d+\.attn", "self-attention"),
        (r"transformer\.blocks\.\d+\.mlp", "feed-forward"),
        (r"transformer\.blocks\.\d+\.(adaln|gate)\d", "modulation"),
    ),
    "matrix-wm": (
        (r"patch_embedding|time_embedding|time_projection|img_emb", "embedding"),
        (r"blocks\.\d+", "block"),
        (r"head", "head"),
        (r"blocks\.\d+\.self_attn", "self-attention"),
        (r"blocks\.\d+\.cross_attn", "cross-attention"),
        (r"blocks\.\d+\.action_model", "action"),
        (r"blocks\.\d+\.ffn", "feed-forward"),
    ),
    "image": (
        (r"decoder\.conv_in", "first-layer"),
        (r"decoder\.starter", "middle"),
        (r"decoder\.blocks\.\d+", "upsample"),
        (r"decoder\.s_to_l", "resize"),
        (r"decoder\.(norm_out|conv_out)", "head"),
        (r"decoder\.blocks\.\d+\.up", "resampling"),
        (r"decoder\.(starter|blocks\.\d+)\.blocks\.\d+", "residual"),
    ),
    "audio": (
        (r"decoder\.conv_in", "first-layer"),
        (r"decoder\.starter", "middle"),
        (r"decoder\.blocks\.\d+", "upsample"),
        (r"decoder\.conv_out", "head"),
        (r"decoder\.blocks\.\d+\.proj", "resampling"),
        (r"decoder\.(starter|blocks\.\d+)\.block\d", "residual"),
    ),
    "matrix-vae": (
        (r"conv2|decoder\.conv1", "first-layer"),
        (r"decoder\.middle\.\d+", "middle"),
        (r"decoder\.upsamples\.\d+", "upsample"),
        (r"decoder\.head", "head"),
        (r"decoder\.upsamples\.\d+\.residual", "residual"),
        (r"decoder\.upsamples\.\d+\.time_conv", "time-convolution"),
        (r"decoder\.upsamples\.\d+\.resample\.1", "resampling"),
    ),
}
"""For each component, patterns of whole module paths, each with the tag of the modules that it matches."""


def tag_of_line(name: str) -> str:
    """Return the tag of a line of the account: its own name, or `phase` if the list has no such tag of level 2."""
    return name if TAGS.get(name) == 2 else "phase"


def tag_of_path(component: str, path: str) -> str | None:
    """Return the tag of a module by its path; None if no pattern of its component matches.

    In a component without patterns, direct parts get `module`, parts of these `submodule`, and deeper modules no tag.
    """
    patterns = _PATHS.get(component)
    if patterns is None:
        depth = path.count(".") + 1
        return {1: "module", 2: "submodule"}.get(depth) if path else None
    return next((name for pattern, name in patterns if re.fullmatch(pattern, path)), None)


def index_in(path: str) -> int | None:
    """Return the number at the end of a module's path, such as 3 for `blocks.3`; None if it does not end in one."""
    last = path.rpartition(".")[2]
    return int(last) if last.isdecimal() else None


PROCESS = "bakeoff"


def annotated(
    trace: ChromeTrace,
    timeline: Timeline,
    segments: Sequence[Segment],
    calls: Mapping[tuple[str, str], Sequence[Mapping[str, Scalar]]],
    parts: Sequence[PartTime],
    first_unit: int,
) -> ChromeTrace:
    """Return the trace with bakeoff's tracks added and its stamps removed.

    `segments` and `parts` are in the order of their numbers. `calls` has, for each line and `slot.program`, the
    arguments of its calls in the order of a unit, such as step and timestep. `first_unit` is the number of the first
    traced unit within its session.
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
    """Yield the metadata that names bakeoff's process and its rows."""
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


def _lines(windows: Sequence[Window], segments: Sequence[Segment]) -> Iterator[TraceEvent]:
    """Yield one range for neighbouring pieces of the same line, whatever programs they call."""
    lines = [replace(segment, program="") for segment in segments]
    for (_, line), held in groupby(windows, key=lambda window: (window.unit, lines[window.segment])):
        pieces = list(held)
        tag = tag_of_line(line.line)
        args = {"phase": line.line} if tag == "phase" else None
        yield _range(tag, 2, pieces[0].start_ns, pieces[-1].end_ns, args)


def _calls(
    windows: Iterable[Window],
    segments: Sequence[Segment],
    known: Mapping[tuple[str, str], Sequence[Mapping[str, Scalar]]],
) -> Iterator[TraceEvent]:
    """Yield a range for each call of a program, with the slot, the program, its index and what is known of the call."""
    count: dict[tuple[int, str, str], int] = {}
    for window in windows:
        segment = segments[window.segment]
        if not segment.program:
            continue
        name = f"{segment.slot}.{segment.program}"
        index = count.get((window.unit, segment.line, name), 0)
        count[window.unit, segment.line, name] = index + 1
        facts = known.get((segment.line, name), ())
        about = dict(facts[index]) if index < len(facts) else {}
        args = {"slot": segment.slot, "program": segment.program, "index": index, **about}
        yield _range("call", 3, window.start_ns, window.end_ns, args)


def _parts(timeline: Timeline, parts: Sequence[PartTime]) -> Iterator[TraceEvent]:
    for number, start_ns, end_ns in timeline.parts:
        part = parts[number]
        index = index_in(part.path)
        args = {"slot": part.slot, "path": part.path} | ({} if index is None else {"index": index})
        yield _range(part.tag, part.level, start_ns, end_ns, args)


def _counters(timeline: Timeline) -> Iterator[TraceEvent]:
    for t_ns, size in timeline.allocations:
        mebibytes = {"allocated MiB": round(size / 2**20, 3)}
        yield TraceEvent("C", "allocated MiB", "bakeoff", t_ns / 1000, pid=PROCESS, args=mebibytes)
