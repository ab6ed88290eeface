"""Records of pipelines for tests, with times that can be computed by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from records import HOST

from bakeoff.machine.identity import Machine
from bakeoff.mix import parse_mix
from bakeoff.record.finding import Finding
from bakeoff.record.pipeline import (
    Forecast,
    Line,
    LoopParity,
    PipelineMeasurement,
    PipelineMemory,
    PipelineRecord,
    ProgramTime,
    SlotProgram,
    UnitKind,
    UnitParity,
    Units,
)
from bakeoff.record.schema import SCHEMA, OutputParity
from bakeoff.variant import Variant

MACHINE = Machine("0123456789abcdef", "class-1", "Test CPU, 4 cores")
EAGER = "owl:200m/wm=eager/fp32,image=eager/fp32@cpu"
BEST = "owl:200m/wm=inductor[freezing]/bf16,image=openvino/bf16@cpu"
CALLS = {"wm.step": 4, "image.decode": 1}
LINES: Mapping[str, tuple[str, str]] = {
    "denoise": ("phase", "wm"),
    "decode": ("phase", "image"),
    "present": ("phase", ""),
    "glue": ("glue", ""),
    "copies": ("copies", ""),
    "unattributed": ("unattributed", ""),
}
"""Name to kind and slot."""
TIMES_MS: Mapping[str, float] = {
    "denoise": 60, "decode": 30, "present": 4, "glue": 3, "copies": 2, "unattributed": 1,
}  # fmt: skip


def units(
    walls: Sequence[Mapping[str, float]],
    kinds: Sequence[UnitKind] = (),
    frames: Sequence[int] = (),
    moved: Mapping[str, tuple[str, ...]] | None = None,
) -> Units:
    """Units whose lines take the given milliseconds; what a unit lacks is 0."""
    names = list(dict.fromkeys(name for wall in walls for name in wall))
    held = [LINES.get(name, ("phase", "")) for name in names]
    ns = {name: tuple(round(wall.get(name, 0) * 1e6) for wall in walls) for name in names}
    wall_ns = tuple(sum(ns[name][place] for name in names) for place in range(len(walls)))
    programs = [name for name in names if LINES.get(name, ("", ""))[1]]
    return Units(
        wall_ns=wall_ns,
        started_ns=tuple(sum(wall_ns[:place]) for place in range(len(walls))),
        frames=tuple(frames) or (1,) * len(walls),
        kinds=tuple(kinds) or ("steady",) * len(walls),
        sessions=(0,) * len(walls),
        lines=tuple(Line(name, kind, slot, ns[name]) for name, (kind, slot) in zip(names, held, strict=True)),
        programs=tuple(
            ProgramTime(LINES[name][1], program, (CALLS[f"{LINES[name][1]}.{program}"],) * len(walls), ns[name])
            for name in programs
            for program in [_program(LINES[name][1])]
        ),
        copied_bytes=(4096,) * len(walls),
        moved=dict(moved or {}),
    )


def _program(slot: str) -> str:
    return next(key.partition(".")[2] for key in CALLS if key.startswith(f"{slot}."))


def scaled(factor: float, count: int = 20) -> list[dict[str, float]]:
    """Units of `TIMES_MS` times the factor, each 0.1 % slower than the one before."""
    return [{name: ms * factor * (1 + place / 1000) for name, ms in TIMES_MS.items()} for place in range(count)]


def programs(text: str, part: str = "part") -> tuple[SlotProgram, ...]:
    """The programs of a mix."""
    mix = parse_mix(text)
    found = []
    for slot in mix.slots:
        program = _program(slot.slot)
        found.append(
            SlotProgram(
                slot=slot.slot,
                variant=Variant(slot.slot, mix.preset, program, slot.backends, slot.dtype, mix.device),
                batch=1,
                status="ok",
                part=f"{part}-{slot.slot}" if part else "",
            )
        )
    return tuple(found)


def promise(text: str = EAGER) -> Forecast:
    """A promise of 90 % of the time that the phases of eager take, and nothing between programs."""
    parts = {LINES[name][1]: 0.9 * ms for name, ms in TIMES_MS.items() if LINES[name][1]}
    ms = sum(parts.values())
    return Forecast(parse_mix(text).variants, ms, None, None, (ms / 1.1, ms * 1.1), parts)


def measured(text: str = EAGER, factor: float = 1.0, **changes: Any) -> PipelineMeasurement:
    """A worker's report on one opening, one filling and 20 steady units."""
    walls = [{**TIMES_MS, "denoise": TIMES_MS["denoise"] * 3}, *scaled(factor, 21)]
    kinds: list[UnitKind] = ["opening", "filling", *(["steady"] * 20)]
    made = PipelineMeasurement(
        status="ok",
        programs=programs(text),
        opened_ns=(250_000_000,),
        units=units(walls, kinds),
        parity=LoopParity(
            "loop-1", "fp64", (UnitParity(0, (OutputParity("video", 1e-6, 2e-6, True, signal_db=92.0),)),)
        ),
        memory=PipelineMemory(900 << 20, None),
        stamp_ns=900,
        settings={"threads": 4},
    )
    return replace(made, **changes)


def pipeline_record(
    text: str = EAGER, role: Any = "eager", made: PipelineMeasurement | None = None, **changes: Any
) -> PipelineRecord:
    """A record of a mix of owl:200m on HOST; `changes` are fields of the record."""
    base = PipelineRecord(
        schema=SCHEMA,
        created="2026-01-02T03:04:05.000000Z",
        run="20260102T030400-abcdef",
        how="interleaved",
        mix=parse_mix(text),
        config_id="c0ffee",
        subject_id="5ub1ec7",
        role=role,
        label="",
        options={"steps": 4, "window": 30},
        sizes={"audio window": 30, "steps": 4},
        calls=dict(CALLS),
        configs={"wm": {"width": 32}, "image": {"width": 16}},
        unit="frame",
        frame_rate=25.0,
        threads=4,
        weight_seed=0,
        input_seed=0,
        checkpoints={"wm": "", "image": ""},
        measurement=made or measured(text),
        host=HOST,
        load_before=0.25,
        environment={"OMP_NUM_THREADS": "4"},
        versions={"bakeoff": "0.1.0", "torch": "2.13.0"},
        commit="0123456789abcdef0123456789abcdef01234567",
        dirty=False,
        wall_s=41.5,
        log="logs/20260102T030400-abcdef/pipeline.log",
        machine=MACHINE,
        code="c0de",
        loop_hash="100b",
        instrument="1257",
        forecast=promise(text),
        phase_calls={"denoise": 4, "decode": 1},
    )
    return replace(base, **changes)


def failed(text: str = BEST, status: Any = "oom", reason: str = "needs 13 GiB, 4 are free") -> PipelineMeasurement:
    """A worker's report without units."""
    return PipelineMeasurement(status, reason, (Finding("busy-host", "load average 3.0"),), programs(text))


def run_of_two(factor: float = 0.5) -> tuple[PipelineRecord, PipelineRecord]:
    """Eager and the best mix of one run, whose units take `factor` of eager's time."""
    return pipeline_record(), pipeline_record(BEST, "best", measured(BEST, factor))
