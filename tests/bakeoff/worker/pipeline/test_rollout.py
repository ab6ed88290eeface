"""Rollouts: errors of units and of free runs against closed forms, and faults that begin in a late unit."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="workers need it")

import loop_backends
import torch
from mixes import Heard, hashes, make_job, run_mix
from torch import Tensor
from wrong_loops import LATE

from bakeoff.backends.backend import ModuleEngine
from bakeoff.models.pipelines.pipeline import Call, Key, Loop, Pipeline, Slot, Unit
from bakeoff.process.jobs import LoopReferenceJob, LoopSubject, PipelineJob
from bakeoff.record.finding import Finding
from bakeoff.record.pipeline import Curve, PipelineMeasurement, Rollout
from bakeoff.record.rollout import MIX, ONLY, growth, standing
from bakeoff.worker.pipeline.feeder import ProgramEngine
from bakeoff.worker.pipeline.parity import LoopAbout, LoopCheck, Noise, compared, first_units
from bakeoff.worker.pipeline.reference import make_loop_reference
from bakeoff.worker.pipeline.rollout import EQUIVALENTS, equivalents, free_curves, nudged
from bakeoff.worker.pipeline.runner import LoopRunner

UNITS = 12
EAGER = {"world": "eager/fp32", "stream": "eager/fp32"}
HALF = {"world": "eager/bf16", "stream": "eager/fp32"}


class Straight(Pipeline):
    """x' = f(x)."""

    def start(self, given: Any, run: Any) -> Any:  # noqa: ARG002
        return {"x": given["x"]}

    def given(self, unit: int, draw: Any) -> dict[str, Tensor]:  # noqa: ARG002
        return {"x": draw.value(START[0], slot="world")}

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        x = run.world.step(x=state["x"])["y"]
        return {"x": x}, {"y": x}


START: list[Tensor] = []
"""State with which a session of Straight starts."""
SIZE = 16
LOOP = Loop(
    name="straight",
    preset="default",
    label="",
    options={},
    changed={},
    unit="frame",
    slots=(Slot("world", "toy", "tiny"),),
    opened=Unit((), ()),
    opening=(),
    steady=Unit((Call("world", "world", "step"),), ("world",), 1),
    filling=0,
    max_units=None,
    state={"x": ("world",)},
    outputs={"y": ("world",)},
)


def runner(function: Any, dtype: str) -> LoopRunner:
    like = torch.zeros((1, SIZE), dtype=getattr(torch, {"fp64": "float64", "bf16": "bfloat16"}[dtype]))
    engine = ModuleEngine(lambda x: (function(x),), rebinding=True)
    programs = {Key("world", "step"): ProgramEngine(engine, ["y"], {"x": like})}
    return LoopRunner(Straight("default", None), LoopSubject(LOOP, 0, 0, {}, "cpu", 1), programs, {"world": dtype})


@dataclass(frozen=True)
class InMemory:
    """What `LoopFiles` reads, without files."""

    units: list[dict[str, Tensor]]
    noise: Noise

    def about(self) -> LoopAbout:
        return LoopAbout("loop", "fp64", "cpu", len(self.units) - 1, {}, {})

    def floor(self, _dtypes: Mapping[str, str]) -> Noise:
        return self.noise

    def unit(self, unit: int) -> dict[str, Tensor]:
        return self.units[unit + 1]

    def state_before(self, unit: int) -> dict[str, Tensor]:
        return {"x": self.units[unit]["state.x"]}


def reference(function: Any, units: int) -> InMemory:
    made = [
        {name: value.clone() for name, value in values.items()}
        for _, values in first_units(runner(function, "fp64"), units)
    ]
    return InMemory(made, {str(unit): dict.fromkeys(("y", "state.x"), 0.0) for unit in range(-1, units)})


def check(files: InMemory, dtype: str, noise: Noise) -> LoopCheck:
    return LoopCheck(LOOP, InMemory(files.units, noise), {"world": dtype}, {})  # type: ignore[arg-type]


def test_flicker_is_an_error_of_changes_and_an_offset_is_not() -> None:
    """x' = x + 1: the reference changes by 1 a unit."""
    START[:] = [torch.zeros((1, SIZE), dtype=torch.float64)]
    files, signs = reference(lambda x: x + 1, 10), itertools.cycle((1, -1))
    flickers = free_curves(MIX, runner(lambda x: x + 1 + 0.01 * next(signs), "fp64"), LOOP, files)[0]  # type: ignore[arg-type]
    assert flickers.changes == (pytest.approx(0.01),) * 9
    START[:] = [torch.full((1, SIZE), 0.01, dtype=torch.float64)]
    offset = free_curves("eager", runner(lambda x: x + 1, "fp64"), LOOP, files)[0]  # type: ignore[arg-type]
    assert offset.errors[0] == pytest.approx(0.01)
    assert all(one is not None and one < 1e-12 for one in offset.changes)


def test_a_bias_is_flat_from_the_references_state_and_grows_geometrically_when_free() -> None:
    """x' = a x + b at its fixed point -b/(a-1), with a = 2 and b = 1, so that the reference stays -1."""
    a, eps, units = 2.0, 1e-9, 40
    START[:] = [torch.full((1, SIZE), -1.0, dtype=torch.float64)]
    files = reference(lambda x: a * x + 1, units)

    def biased(x: Tensor) -> Tensor:
        return a * x + 1 + eps

    parity = check(files, "fp64", files.noise).compare(runner(biased, "fp64"))
    assert [unit.outputs[0].rel_l2 for unit in parity.units[1:]] == [pytest.approx(eps, rel=0.01)] * units
    free = {one.output: one for one in free_curves(MIX, runner(biased, "fp64"), LOOP, files)}  # type: ignore[arg-type]
    assert set(free) == {"y", "state"}
    for curve in free.values():
        for unit, error in enumerate(curve.errors):
            assert error == pytest.approx(eps * (a ** (unit + 1) - 1) / (a - 1), rel=0.01)
        slope = growth(curve)
        assert slope is not None
        assert math.log(slope[0]) == pytest.approx(math.log(a), rel=0.01)
    first = next(unit for unit, db in enumerate(free["y"].decibels) if db is not None and db < 30)
    assert eps * (a ** (first + 1) - 1) > 10**-1.5 > eps * (a**first - 1)


def test_eager_against_itself_passes_for_every_seed() -> None:
    for seed in range(1000):
        generator = torch.Generator().manual_seed(seed)
        weights = torch.randn((SIZE, SIZE), generator=generator, dtype=torch.float64) / SIZE**0.5
        START[:] = [torch.randn((1, SIZE), generator=generator, dtype=torch.float64)]

        def step(x: Tensor, weights: Tensor = weights) -> Tensor:
            return torch.tanh(x @ weights.to(x.dtype))

        files, eager = reference(step, 2), runner(step, "bf16")
        noise = {
            str(unit): {name: compared(value, files.unit(unit)[name]).rel_l2 for name, value in values.items()}
            for unit, values in first_units(eager, 2, files.state_before)
        }
        assert check(files, "bf16", noise).compare(eager).passed, seed
        if seed % 50 == 0:
            curves = [
                *free_curves(MIX, eager, LOOP, files),  # type: ignore[arg-type]
                *free_curves("eager", runner(step, "bf16"), LOOP, files),  # type: ignore[arg-type]
                *free_curves("nudged", eager, LOOP, files, nudged(eager, seed)),  # type: ignore[arg-type]
            ]
            assert standing(Rollout(30.0, tuple(curves)), "y") == "with eager"


def test_a_nudge_changes_floating_values_by_a_rounding() -> None:
    START[:] = [torch.linspace(1, 2, SIZE)[None]]
    made = runner(lambda x: x, "bf16")
    made.open()
    before, change = made.state()["x"], nudged(made, 3)
    after = (change(0) or {})["x"]
    assert (before != after).all()
    assert ((before - after).abs() <= 2 * before.abs() * torch.finfo(torch.bfloat16).eps).all()
    assert change(2) is None


@pytest.mark.parametrize(("device", "threads"), [("cpu", 1), ("cpu", 2), ("cpu", 8), ("cuda", 2)])
def test_eager_and_five_equivalents_have_names_of_their_own(device: str, threads: int) -> None:
    found = list(equivalents(device, threads))
    assert len({one.name for one in found}) == len(found) == 1 + EQUIVALENTS
    assert found[0].threads == threads
    assert len({one.threads for one in found}) == (1 if device == "cuda" else 2 if threads == 1 else 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """References and caches of all tests."""
    return tmp_path_factory.mktemp("rollouts")


def rollout_job(folder: Path, ways: dict[str, str], pipeline: str = "toy_loops:Toy") -> PipelineJob:
    """A job of the toy loop over UNITS units, with their reference."""
    job = make_job(folder, ways, pipeline=pipeline)
    long = folder / "rollout"
    dtypes = {slot: str(measure.dtype) for slot, measure in job.programs}
    make_loop_reference(LoopReferenceJob(job.subject, (dtypes,), UNITS, str(long), free=True), Heard())
    return replace(job, reference_folder=str(long), reference_hashes=hashes(long), horizon_db=30.0)


def run(job: PipelineJob, work: Path, **heard: Any) -> PipelineMeasurement:
    made, _ = run_mix(job, work, 0, **heard)
    assert made.units is None, "nothing is timed"
    assert not made.opened_ns
    assert made.rollout is not None
    assert made.parity is not None
    assert [unit.unit for unit in made.parity.units] == list(range(-1, UNITS))
    return made


@pytest.mark.parametrize("ways", [EAGER, HALF], ids=["fp32", "bf16"])
def test_eager_is_ok_for_all_units_and_stands_with_itself(ways: dict[str, str], folder: Path, tmp_path: Path) -> None:
    made = run(rollout_job(folder, ways), tmp_path / "work")
    assert (made.status, made.reason) == ("ok", "")
    assert made.rollout is not None
    by_run: dict[str, list[Curve]] = {}
    for curve in made.rollout.curves:
        by_run.setdefault(curve.run, []).append(curve)
        assert len(curve.errors) == len(curve.decibels) == UNITS
    assert len(by_run) == 2 + EQUIVALENTS
    assert [curve.errors for curve in by_run[MIX]] == [curve.errors for curve in by_run["eager"]]
    assert {curve.output for curve in by_run[MIX]} == {"x", "video", "state"}
    assert all(standing(made.rollout, one.output) == "with eager" for one in by_run[MIX])
    assert any(curve.errors != by_run["eager"][place].errors for place, curve in enumerate(by_run["start nudged 1"]))


def test_a_step_cache_and_an_int8_slot_are_right_alone_and_flicker_together(folder: Path, tmp_path: Path) -> None:
    """What int8 rounds up in one unit and down in the next, the cache extrapolates (NVIDIA/cosmos-framework#247)."""
    int8, cache = {"world": "int8[least=0]+eager/fp32"}, {"stream": "loop_backends:CACHES_STEPS/fp32"}
    runs = {}
    for name, ways in (("int8", int8), ("cache", cache), ("both", int8 | cache)):
        made = run(rollout_job(folder / "drift", {**EAGER, **ways}, "toy_loops:Drift"), tmp_path / name)
        assert (made.status, made.reason) == ("ok", ""), name
        assert made.rollout is not None
        found = [finding.text for finding in made.findings if finding.code == "flicker"]
        runs[name] = {curve.run for curve in made.rollout.curves if curve.run.startswith(ONLY)}, found
    assert runs["int8"] == runs["cache"] == (set(), [])
    alone, texts = runs["both"]
    assert (alone, len(texts)) == ({"only world", "only stream"}, 1)
    (text,) = texts
    assert text.startswith("world and stream together: video is ")


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("TOY_NOT_SHIFTED_LATE", "state.cache_k"),
        ("TOY_SHIFTED_BY_A_TOKEN_LATE", "state.cache_k"),
        ("TOY_NAN_LATE", "x"),
    ],
)
def test_a_fault_of_a_late_unit_is_found_in_that_unit(fault: str, name: str, folder: Path, tmp_path: Path) -> None:
    job = rollout_job(folder, EAGER)
    loop = replace(job.subject.loop, reference=f"wrong_loops:{fault}")
    made = run(replace(job, subject=replace(job.subject, loop=loop)), tmp_path / "work")
    assert made.status == "parity_failed"
    assert made.reason.startswith(f"{name}: ")
    assert f"(unit {LATE})" in made.reason
    assert made.parity is not None
    assert next(unit.unit for unit in made.parity.units if not all(one.passed for one in unit.outputs)) == LATE


class Telling(Heard):
    """Adds a value to each output of the backend `goes-wrong` from the unit LATE on."""

    value = 0.0

    def __call__(self, phase: str, detail: str = "", /) -> None:
        super().__call__(phase, detail)
        if detail == f"unit {LATE} of {UNITS}":
            loop_backends.ADDED.append(self.value)


@pytest.mark.parametrize("value", [math.nan, 1.0])
def test_a_program_that_goes_wrong_late_is_found_in_its_unit(value: float, folder: Path, tmp_path: Path) -> None:
    heard = Telling()
    heard.value = value
    try:
        made = run(
            rollout_job(folder, {**EAGER, "world": "loop_backends:GOES_WRONG/fp32"}), tmp_path / "work", heard=heard
        )
    finally:
        loop_backends.ADDED.clear()
    assert made.status == "parity_failed"
    assert made.reason.startswith("x: ")
    assert f"(unit {LATE})" in made.reason
    assert all(one.status == "ok" for one in made.programs), "each program passed its own check"
    assert not [finding for finding in made.findings if isinstance(finding, Finding) and finding.code == "settings"]


def test_a_nan_of_a_free_run_alone_is_found_in_its_unit(folder: Path, tmp_path: Path) -> None:
    class Free(Telling):
        def __call__(self, phase: str, detail: str = "", /) -> None:
            Heard.__call__(self, phase, detail)
            if detail == f"free, unit {LATE} of {UNITS}":
                loop_backends.ADDED.append(math.nan)

    try:
        job = rollout_job(folder, {**EAGER, "stream": "loop_backends:GOES_WRONG/fp32"})
        made = run(job, tmp_path / "work", heard=Free())
    finally:
        loop_backends.ADDED.clear()
    assert (made.status, made.reason) == ("parity_failed", f"video: not finite (unit {LATE}, running free)")
