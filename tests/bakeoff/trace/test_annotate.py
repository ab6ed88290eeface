"""The lab's own tracks in a trace."""

from dataclasses import replace

from chrome import DECODE, DENOISE, GLUE, LINES, kernel, launch, operator, stamp, unit

from bakeoff.record.pipeline import PartTime
from bakeoff.trace.chrome import ChromeTrace, TraceEvent, is_ours, part_name
from bakeoff.trace.tags import PROCESS, annotated
from bakeoff.trace.timeline import read_timeline

SEGMENTS = [replace(line, program={"denoise": "step", "decode": "decode"}.get(line.line, "")) for line in LINES]
PARTS = [PartTime("block", 4, "wm", "blocks.3", 0, 0)]
EVENTS = [
    *unit(0, [(DENOISE, 40), (GLUE, 45), (DENOISE, 90), (DECODE, 150)], 160),
    *unit(200, [(DENOISE, 240), (GLUE, 245), (DENOISE, 290), (DECODE, 350)], 360),
    operator("aten::linear", 10, 20),
    launch(10, 1),
    kernel("gemm", 20, 60, 1),
    TraceEvent("X", part_name(0), "user_annotation", 5, 30, 1, 1),
    TraceEvent("X", part_name(0), "gpu_user_annotation", 20, 40, 0, 7),
    TraceEvent("X", "mine", "user_annotation", 5, 30, 1, 1),
    TraceEvent("i", "[memory]", "cpu_instant_event", 12, 0, 1, 1, args={"Device Type": 0, "Total Allocated": 3 << 20}),
]


def shown() -> ChromeTrace:
    calls = {("denoise", "wm.step"): [{"step": 0, "timestep": 1.0}, {"step": 1, "timestep": 0.5}]}
    return annotated(ChromeTrace(EVENTS), read_timeline(EVENTS, "cpu"), SEGMENTS, calls, PARTS, 7)


def ours(level: int) -> list[tuple[str, float, float, dict[str, object] | None]]:
    return [
        (event.name, event.ts, event.dur, event.args)
        for event in shown().traceEvents
        if event.pid == PROCESS and event.ph == "X" and event.tid == level
    ]


def test_units_and_phases_are_ranges_with_their_indices_as_arguments() -> None:
    assert ours(1) == [("unit", 0, 160, {"index": 7}), ("unit", 200, 160, {"index": 8})]
    assert [name for name, *_ in ours(2)][:5] == ["denoise", "glue", "denoise", "decode", "unattributed"]


def test_calls_have_their_step_and_timestep() -> None:
    of_a_unit = [
        {"slot": "wm", "program": "step", "index": 0, "step": 0, "timestep": 1.0},
        {"slot": "wm", "program": "step", "index": 1, "step": 1, "timestep": 0.5},
        {"slot": "image", "program": "decode", "index": 0},
    ]
    assert [args for name, *_, args in ours(3) if name == "call"] == 2 * of_a_unit


def test_parts_of_networks_have_their_path() -> None:
    assert ours(4) == [("block", 5, 30, {"slot": "wm", "path": "blocks.3", "index": 3})]


def test_memory_is_a_track() -> None:
    (counter,) = [event for event in shown().traceEvents if event.ph == "C"]
    assert (counter.ts, counter.args) == (12, {"allocated MiB": 3.0})


def test_our_stamps_are_gone_and_all_else_is_kept() -> None:
    left = [event for event in shown().traceEvents if event.pid != PROCESS]
    assert not any(is_ours(event.name) for event in left)
    assert {event.name for event in left} == {"aten::linear", "cudaLaunchKernel", "gemm", "mine", "[memory]"}


def test_a_stamp_is_only_a_stamp_with_a_whole_number() -> None:
    assert not is_ours(stamp("bakeoff mark x", 0).name)
    assert not is_ours("denoise")
