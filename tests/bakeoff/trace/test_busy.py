"""Busy and idle time by hand-made traces whose every microsecond is known."""

import pytest
from chrome import DECODE, DENOISE, GLUE, LINES, kernel, launch, operator, stamp, unit

from bakeoff.record.pipeline import LineTrace, Profile
from bakeoff.trace.busy import account, covered_ns, union
from bakeoff.trace.chrome import TraceEvent
from bakeoff.trace.timeline import disturbed_units, read_timeline, without


def on_gpu(events: list[TraceEvent]) -> Profile:
    return account(read_timeline(events, "cuda"), LINES, "cuda", 10)


def lines(found: Profile) -> dict[str, LineTrace]:
    return {line.name: line for line in found.lines}


def microseconds(line: LineTrace) -> tuple[float, float, float, float]:
    parts = line.busy_ns, line.host_wait_ns, line.gap_ns, line.other_ns
    return tuple(part / 1000 for part in parts)  # type: ignore[return-value]


EVENTS = [
    *unit(0, [(DENOISE, 100), (GLUE, 110), (DECODE, 200), (0, 205)], 400),
    # Two streams that overlap: 20 to 60 and 40 to 80 are 60 us of busy time, not 80.
    launch(10, 1),
    kernel("gemm", 20, 60, 1),
    launch(15, 2),
    kernel("attention", 40, 80, 2, stream=8),
    # In the queue before the last one ended, and 3 us after it: the queue's own gap.
    launch(30, 3),
    kernel("gemm", 83, 100, 3),
    # Launched in `denoise`, but it runs after that has ended; it waits for another stream.
    launch(95, 4),
    kernel("norm", 130, 150, 4),
    # Launched when the device was already idle: the host is late.
    launch(170, 5),
    kernel("conv", 180, 300, 5),
    # A copy counts as busy time.
    launch(190, 6, "cudaMemcpyAsync"),
    kernel("Memcpy DtoH", 300, 320, 6, cat="gpu_memcpy"),
    # Annotations enclose kernels, on the host and on the device, and are in no sum.
    TraceEvent("X", "denoise", "user_annotation", 0, 100, 1, 1),
    TraceEvent("X", "denoise", "gpu_user_annotation", 20, 130, 0, 7),
    TraceEvent("X", "Context Sync", "cuda_sync", 205, 195, 0, 7),
    # A kernel whose launch the trace lacks has no line.
    kernel("lost", 330, 340, None),
]


def test_every_microsecond_of_a_unit_has_its_place() -> None:
    found = lines(on_gpu(EVENTS))
    assert microseconds(found["denoise"]) == (60 + 17 + 20, 20, 3, 30)
    assert microseconds(found["decode"]) == (120 + 20, 30, 0, 0)
    assert microseconds(found["unattributed"]) == (10, 60, 0, 10)
    assert microseconds(found["glue"]) == (0, 0, 0, 0)


def test_busy_and_idle_time_add_up_to_the_unit() -> None:
    found = on_gpu(EVENTS)
    idle = sum(line.host_wait_ns + line.gap_ns + line.other_ns for line in found.lines)
    assert found.busy_ns + idle == 400_000
    assert sum(line.span_ns for line in found.lines) == 400_000


def test_a_kernel_belongs_to_the_line_that_launched_it() -> None:
    found = on_gpu(EVENTS)
    assert found.kernels is not None
    assert {(row.name, row.line) for row in found.kernels.top} >= {("norm", "denoise"), ("conv", "decode")}


def test_waits_of_the_host_are_named() -> None:
    events = [*EVENTS, TraceEvent("X", "cudaStreamSynchronize", "cuda_runtime", 50, 12, 1, 1, args={"correlation": 77})]
    (wait,) = on_gpu(events).synchronisations
    assert (wait.name, wait.line, wait.ns) == ("cudaStreamSynchronize", "denoise", 12_000)


def test_on_a_cpu_operators_are_busy_time_and_count_without_what_they_call() -> None:
    events = [
        *unit(0, [(DENOISE, 100), (DECODE, 200)], 200),
        operator("aten::linear", 10, 60),
        operator("aten::addmm", 20, 50),
        operator("aten::mul", 70, 80),
        operator("aten::conv2d", 110, 190, thread=1),
        operator("aten::add", 120, 200, thread=2),
    ]
    found = account(read_timeline(events, "cpu"), LINES, "cpu", 10)
    assert found.kernels is None
    assert {line.name: line.busy_ns for line in found.lines if line.kind == "phase"} == {
        "denoise": 60_000,
        "decode": 90_000,
    }
    own = {row.name: row.ns for row in found.operators.top}
    assert own == {
        "aten::linear": 20_000,
        "aten::addmm": 30_000,
        "aten::mul": 10_000,
        "aten::conv2d": 80_000,
        "aten::add": 80_000,
    }
    assert found.operators.total_ns == sum(own.values())


def test_what_is_not_listed_is_in_the_total() -> None:
    found = account(read_timeline(EVENTS, "cuda"), LINES, "cuda", 2)
    assert found.kernels is not None
    assert [row.name for row in found.kernels.top] == ["conv", "gemm"]
    assert found.kernels.total_ns == 267_000
    assert found.kernels.names == 6


def test_compiling_within_a_traced_unit_is_seen() -> None:
    names = ["_compile.compile_inner (dynamo_timed)", "cudaGraphInstantiate", "cuModuleLoadData"]
    events = [TraceEvent("X", name, "user_annotation", 50 + place, 1, 1, 1) for place, name in enumerate(names)]
    late = TraceEvent("X", "cuModuleLoad", "cuda_driver", 1000, 1, 1, 1)
    calm = TraceEvent("X", "Torch-Compiled Region: 0/0", "cpu_op", 60, 5, 1, 1)
    assert read_timeline([*EVENTS, *events, late, calm], "cuda").compiled == tuple(names)


def five_units(slow: int) -> list[TraceEvent]:
    """Units of 1.67, 1.44, 7.44, 1.96 and 1.60 ms; in the slow one `aten::empty` was preempted."""
    events: list[TraceEvent] = []
    for place, us in enumerate((1670, 1440, slow, 1960, 1600)):
        at = place * 10_000
        events += unit(at, [(DENOISE, at + us - 600), (DECODE, at + us)], at + us)
        events += [operator("aten::mm", at + 10, at + 500), operator("aten::empty", at + us - 500, at + us - 490)]
        events += [operator("aten::empty", at + 600, at + us - 700)] if us > 2000 else []
    return events


def test_a_unit_that_was_disturbed_is_named_and_in_no_operator() -> None:
    timeline = read_timeline(five_units(7440), "cpu")
    assert disturbed_units(timeline) == {2: 7_440_000}
    found = account(without(timeline, disturbed_units(timeline)), LINES, "cpu", 10)
    assert {(row.name, row.line, row.calls, row.ns) for row in found.operators.top} == {
        ("aten::mm", "denoise", 4, 4 * 490_000),
        ("aten::empty", "decode", 4, 40_000),
    }
    assert sum(line.span_ns for line in found.lines) == (1670 + 1440 + 1960 + 1600) * 1000
    assert disturbed_units(read_timeline(five_units(1700), "cpu")) == {}


def test_units_that_do_not_end_are_refused() -> None:
    with pytest.raises(ValueError, match="begins within"):
        read_timeline([*unit(0, [(DENOISE, 10)], 20)[:-1], *unit(30, [(DENOISE, 40)], 50)], "cpu")
    with pytest.raises(ValueError, match="outside of a unit"):
        read_timeline([*unit(0, [(DENOISE, 10)], 20), stamp("bakeoff mark 3", 25)], "cpu")


@pytest.mark.parametrize(
    ("intervals", "covered"),
    [
        ([], 0),
        ([(0, 5)], 5),
        ([(0, 5), (5, 9)], 9),
        ([(3, 9), (0, 5)], 9),
        ([(0, 9), (2, 3)], 9),
        ([(5, 5), (7, 6)], 0),
    ],
)
def test_unions_of_intervals(intervals: list[tuple[int, int]], covered: int) -> None:
    assert covered_ns(intervals) == covered
    assert sum(end - start for start, end in union(intervals)) == covered
