"""Records with profiles for tests, on the times of pipeline_records: a unit of about 100 ms."""

from dataclasses import replace
from typing import Any

from pipeline_records import EAGER, LINES, TIMES_MS, measured, pipeline_record

from bakeoff.record.pipeline import (
    LineTrace,
    MemoryPoint,
    NamedTime,
    PartTime,
    PipelineRecord,
    Profile,
    ProgramSight,
    Ranking,
    TraceFile,
)
from bakeoff.record.schema import KernelTime
from bakeoff.record.store import Records, StoredPipeline

UNITS = 2
PROGRAMS = {"denoise": ("wm.step",), "decode": ("image.decode",)}
SEEN = (
    ProgramSight("wm", "step", "inside", "torch.profiler"),
    ProgramSight("image", "decode", "inside", "torch.profiler"),
)


def line(name: str, busy_ms: float, wait_ms: float = 0.0, gap_ms: float = 0.0, other_ms: float = 0.0) -> LineTrace:
    """Of `UNITS` traced units whose spans are twice as long as a timed unit's; arguments are milliseconds a unit."""
    kind, slot = LINES[name]
    busy, wait, gap, other = (round(ms * 1e6 * UNITS) for ms in (busy_ms, wait_ms, gap_ms, other_ms))
    span = round(TIMES_MS[name] * 2e6 * UNITS)
    return LineTrace(name, kind, slot, span, busy, wait, gap, other, 10 * UNITS, PROGRAMS.get(name, ()))  # type: ignore[arg-type]


def named(name: str, in_line: str, ms: float, calls: int = 4) -> NamedTime:
    return NamedTime(name, in_line, calls * UNITS, round(ms * 1e6 * UNITS))


def on_gpu(**changes: Any) -> Profile:
    """denoise: 20 of 60 ms busy; decode: 29 of 30."""
    kernels = (
        named("slow_conv_dilated3d", "decode", 25.0),
        named("gemm", "denoise", 20.0),
        named("Memcpy DtoD", "copies", 1.5),
    )
    made = Profile(
        level=3,
        units=UNITS,
        wall_ns=UNITS * 200_000_000,
        cpu_ns=UNITS * 100_000_000,
        busy_ns=UNITS * 51_000_000,
        lines=(
            line("denoise", 20.0, 70.0, 5.0, 5.0),
            line("decode", 29.0, 0.0, 1.0),
            line("present", 0.5),
            line("glue", 0.0),
            line("copies", 1.5),
            line("unattributed", 0.0, 2.0),
        ),
        kernels=Ranking(kernels, round(51e6 * UNITS), 9),
        operators=Ranking((named("aten::addmm", "denoise", 12.0),), round(12e6 * UNITS), 1),
        programs=SEEN,
        stamps=20,
        stamps_ns=(900, 1000, 1100) * 5,
        stepped_ns=(103_000_000, 107_000_000),
        synchronisations=(named("cudaStreamSynchronize", "denoise", 6.0),),
        memory=(MemoryPoint(0, 1 << 20), MemoryPoint(5_000_000, 3 << 20), MemoryPoint(9_000_000, 2 << 20)),
        trace=TraceFile("traces/run/mix.json.gz", 1234, "ab" * 32),
    )
    return replace(made, **changes)


def on_cpu(**changes: Any) -> Profile:
    """wm shows its operators, image only a traced build of its own."""
    kernels = (KernelTime("conv_1", 2.0, 9_000_000, own=True), KernelTime("resize", 1.0, 3_000_000, own=True))
    opaque = ProgramSight("image", "decode", "in its own build", "OpenVINO", kernels, 5, 20_000_000, 15_000_000)
    made = on_gpu(
        lines=(
            line("denoise", 108.0),
            line("decode", 0.0),
            line("present", 4.0),
            line("glue", 3.0),
            line("copies", 4.0),
            line("unattributed", 0.0),
        ),
        kernels=None,
        operators=Ranking(
            (named("aten::mm", "denoise", 80.0), named("aten::copy_", "denoise", 20.0)), 110_000_000 * UNITS, 3
        ),
        programs=(SEEN[0], opaque),
        stepped_ns=(),
        synchronisations=(),
        parts=(PartTime("block", 4, "wm", "blocks.0", 8, 40_000_000),),
    )
    return replace(made, **changes)


def profiled(profile: Profile, text: str = EAGER, **changes: Any) -> PipelineRecord:
    return pipeline_record(text, made=replace(measured(text), profile=profile), **changes)


def stored(record: PipelineRecord, name: str = "an-id") -> StoredPipeline:
    return StoredPipeline(name, record)


NO_RECORDS = Records((), (), ())
