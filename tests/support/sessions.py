"""Records of sessions for tests: units of 100 ms with a phase in it of each kind, and a monitor's report.

A unit is denoise (2 ms and four steps of 12), context (14), decode (30, and a collective of 3 within it), and 3 ms that
no phase has. The first one is an opening one of 9 frames; the others deliver 12.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from math import sin
from typing import Any

from bakeoff.record.finding import Finding
from bakeoff.record.monitor import DeviceEnergy, MonitorCost, Monitored, Point, SeriesRecord, ThrottleTime
from bakeoff.record.session import (
    SESSION_SCHEMA,
    ModelParameters,
    RangeTotal,
    RankFacts,
    RecordingCost,
    SessionEvent,
    SessionRecord,
    Span,
    StepTotals,
    UnitKind,
    UnitSpans,
    UnitTotals,
)

MS = 1_000_000
LOAD, BETWEEN, COMPILES = 500 * MS, 5 * MS, 400 * MS
STEPS, STEP = 4, 12 * MS
DENOISE, CONTEXT, DECODE, REDUCE, NAMELESS = 2 * MS, 14 * MS, 30 * MS, 3 * MS, 3 * MS
UNIT = DENOISE + STEPS * STEP + CONTEXT + DECODE + REDUCE + NAMELESS
FIRST_KEPT, LAST_KEPT = 3, 20
GPU = "GPU-5ca1ab1e-0000-4000-8000-000000000001"
RANK = RankFacts("run-1", 7, 8, "node-1", GPU, 4242, "model")


def session_record(units: int = 40, compiling: Collection[int] = (), **changes: Any) -> SessionRecord:
    """A session of this many units; something is compiled in those whose numbers are in `compiling`."""
    kept = list(_units(units, compiling))
    ends = LOAD + (kept[-1].start_ns + kept[-1].ns + BETWEEN - LOAD if kept else 0)
    made = SessionRecord(
        schema=SESSION_SCHEMA,
        name="t2v",
        status="ok",
        started_at="2026-01-02T03:04:05.000Z",
        started_wall_ns=1_767_323_045_000_000_000,
        ns=ends + 10 * MS,
        tags={"mode": "i2v", "seed": 7},
        settings={"enabled": True, "overhead_limit": 0.01, "report_format": "both"},
        environment={"cpu": "Test CPU", "torch": "2.11.0", "device": "cuda:0", "gpu_memory_mib": "81920"},
        ranges=_ranges(kept, ends + 10 * MS),
        before=(RangeTotal(("load_checkpoint",), "stage", 1, 900 * MS, 900 * MS),),
        units=_totals(kept),
        spans=(*kept[:FIRST_KEPT], *kept[FIRST_KEPT:][-LAST_KEPT:]),
        steps=tuple(
            StepTotals(index, 1000.0 - 250 * index, len(kept), len(kept) * STEP, STEP, STEP)
            for index in range(STEPS if kept else 0)
        ),
        events=(
            SessionEvent(LOAD, "checkpoint_loaded", {"path": "model.safetensors", "gib": 2.5}),
            SessionEvent(ends, "saved", {"error": "no space"}, failed=True),
        ),
        parameters=(ModelParameters("wm", 1_300_000_000, 2_600_000_000, "bfloat16", "diffusion"),),
        series=(
            SeriesRecord("unit", "ns", "process", tuple(Point(u.start_ns, u.ns, u.ns, u.ns, 1) for u in kept)),
            wave("queue", "frames", "user", ends, 4.0, 3.0),
        ),
        monitored=monitored(ends),
        cost=RecordingCost(800.0, 10 * len(kept) + 3),
        findings=(Finding("misused", "1 range had not ended"),),
    )
    return replace(made, **changes)


def monitored(ns: int, **changes: Any) -> Monitored:
    """A monitor's report on a session of this length on one GPU."""
    made = Monitored(
        series=(
            wave("gpu.memory", "MiB", GPU, ns, 40_000.0, 2_000.0),
            wave("gpu.power", "W", GPU, ns, 350.0, 60.0),
            wave("gpu.temperature", "C", GPU, ns, 61.0, 3.0),
            wave("gpu.clock", "MHz", GPU, ns, 1_900.0, 80.0),
            wave("cpu.process", "%", "process", ns, 110.0, 20.0),
        ),
        energy=(
            DeviceEnergy(GPU, 350.0 * ns / 1e6, 351.0 * ns / 1e6),
            DeviceEnergy("package-0", None, None, "energy_uj cannot be read"),
        ),
        throttled=(ThrottleTime(GPU, "power cap", 0.004),),
        cost=MonitorCost(ns, ns // 400, 90, {"gpu": 0.5, "cpu": 1.0}, {"gpu": 0.5, "cpu": 1.0}, {"gpu": 300_000}),
        missing=("the energy of package-0 cannot be read: permission denied",),
    )
    return replace(made, **changes)


def wave(name: str, unit: str, source: str, ns: int, mean: float, height: float, points: int = 100) -> SeriesRecord:
    """A series of points of four samples each."""
    values = [mean + height * sin(place / 9) for place in range(points)]
    return SeriesRecord(
        name,
        unit,
        source,
        tuple(
            Point(ns * place // points, value - height / 5, value, value + height / 3, 4)
            for place, value in enumerate(values)
        ),
    )


def _units(count: int, compiling: Collection[int]) -> Iterator[UnitSpans]:
    now = LOAD
    for index in range(count):
        extra = COMPILES if index in compiling else 0
        kind: UnitKind = "compiling" if extra else "steady" if index else "opening"
        yield UnitSpans(index, kind, 12 if index else 9, now, UNIT + extra, tuple(_spans(now, extra)))
        now += UNIT + extra + BETWEEN


def _spans(start: int, extra: int) -> Iterator[Span]:
    now = start
    yield Span("denoise", "phase", 1, now, DENOISE + extra + STEPS * STEP)
    for place in range(STEPS):
        yield Span("step", "step", 2, now + DENOISE + extra + place * STEP, STEP)
    now += DENOISE + extra + STEPS * STEP
    yield Span("context", "phase", 1, now, CONTEXT)
    now += CONTEXT + NAMELESS
    yield Span("decode", "phase", 1, now, DECODE + REDUCE)
    yield Span("all_reduce", "collective", 2, now + DECODE, REDUCE)


def _totals(kept: list[UnitSpans]) -> tuple[UnitTotals, ...]:
    found = []
    for kind in dict.fromkeys(unit.kind for unit in kept):
        chosen = [unit for unit in kept if unit.kind == kind]
        times = [unit.ns for unit in chosen]
        frames = sum(unit.frames for unit in chosen)
        middle = {"p50": float(sorted(times)[(len(times) - 1) // 2])}
        found.append(UnitTotals(kind, len(chosen), frames, 3 * len(chosen), sum(times), min(times), max(times), middle))
    return tuple(found)


def _ranges(kept: list[UnitSpans], ns: int) -> tuple[RangeTotal, ...]:
    units, all_units = len(kept), sum(unit.ns for unit in kept)
    extra = all_units - units * UNIT
    generate = all_units + units * BETWEEN
    root = RangeTotal((), "session", 1, ns, ns - LOAD - generate)
    load = RangeTotal(("load",), "stage", 1, LOAD, LOAD)
    if not kept:
        return root, load
    above = ("generate", "unit")
    denoise = units * (DENOISE + STEPS * STEP) + extra
    return (
        root,
        load,
        RangeTotal(("generate",), "stage", 1, generate, units * BETWEEN),
        RangeTotal(above, "unit", units, all_units, units * NAMELESS),
        RangeTotal(
            (*above, "denoise"), "phase", units, denoise, units * DENOISE + extra, device_ns=denoise - units * MS
        ),
        RangeTotal((*above, "denoise", "step"), "step", units * STEPS, units * STEPS * STEP, units * STEPS * STEP),
        RangeTotal((*above, "context"), "phase", units, units * CONTEXT, units * CONTEXT),
        RangeTotal((*above, "decode"), "phase", units, units * (DECODE + REDUCE), units * DECODE),
        RangeTotal((*above, "decode", "all_reduce"), "collective", units, units * REDUCE, units * REDUCE),
    )
