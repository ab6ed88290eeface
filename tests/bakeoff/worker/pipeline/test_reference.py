"""The reference of a loop: units in high precision, floors by dtypes, and what is checked against them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="references are tensors")

import torch
from mixes import Heard, loop_of

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import OPENING
from bakeoff.process.jobs import LoopReferenceJob, LoopSubject, floor_file
from bakeoff.record.pipeline import LoopParity, UnitParity
from bakeoff.record.schema import OutputParity
from bakeoff.worker.pipeline.parity import LoopFiles, first_problem, for_record, worse_of
from bakeoff.worker.pipeline.reference import make_loop_reference
from bakeoff.worker.reference.files import ReferenceFiles

SUBJECT = LoopSubject(loop_of("toy_loops:Toy"), 0, 0, {}, "cpu", 1)
FP32, MIXED = {"world": "fp32", "stream": "fp32"}, {"world": "bf16", "stream": "fp32"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    make_loop_reference(LoopReferenceJob(SUBJECT, (FP32, MIXED), 3, str(folder)), Heard())
    return folder


@pytest.fixture
def files(folder: Path) -> LoopFiles:
    return LoopFiles(ReferenceFiles(folder, None))


def test_units_are_in_high_precision_and_start_where_the_one_before_ended(files: LoopFiles) -> None:
    about = files.about()
    assert (about.dtype, about.device, about.units) == ("fp64", "cpu", 3)
    assert set(about.weights) == {"world.world", "stream.stream"}
    for unit in range(3):
        found = files.unit(unit)
        assert set(found) == {"x", "video", "state.cache", "state.cache_k", "state.cache_v"}
        assert found["x"].dtype == torch.float64
        assert torch.equal(found["state.cache_k"][:, -16:], found["x"]), "the newest entries of the window"
        assert torch.equal(found["state.cache_k"][:, :-16], files.state_before(unit)["cache_k"][:, 16:])
    assert not files.unit(OPENING)["state.cache_k"].any()
    assert torch.equal(files.state_before(2)["cache"], files.unit(1)["state.cache"])
    assert about.sensitivity["x"] > 0.5, "units have other noise"


def test_the_floor_is_of_the_slots_own_dtypes(files: LoopFiles) -> None:
    exact, mixed = (files.floor(dtypes) for dtypes in (FP32, MIXED))
    assert set(exact) == {str(OPENING), "0", "1", "2"}
    for unit in ("0", "1", "2"):
        assert 0 < exact[unit]["video"] < 1e-5
        assert 1e-3 < mixed[unit]["x"] < 0.1
        assert 1e-3 < mixed[unit]["state.cache_v"] < 0.1


def test_only_what_is_missing_is_made(folder: Path, files: LoopFiles) -> None:
    half = {"world": "bf16", "stream": "bf16"}
    os.remove(folder / floor_file(MIXED))
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    heard = Heard()
    make_loop_reference(LoopReferenceJob(SUBJECT, (FP32, MIXED, half), 3, str(folder)), heard)
    after = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert {name for name in after if before.get(name) != after[name]} == {
        floor_file(MIXED),
        floor_file(half),
    }
    assert heard.phases.count("loop reference") == 2
    assert files.floor(half)["1"]["video"] > 1e-3


def test_other_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    del tmp_path
    tf32 = {"world": "tf32", "stream": "fp32"}
    with pytest.raises(BakeoffError) as refused:
        make_loop_reference(LoopReferenceJob(replace(SUBJECT, weight_seed=1), (tf32,), 3, str(folder)), Heard())
    assert refused.value.code == "bad-checkpoint"


def output(name: str, error: float | None, limit: float = 0.1) -> OutputParity:
    passed = error is not None and error <= limit
    return OutputParity(name, error, limit, passed, problem="" if passed else f"{name}: wrong")


def parity(*outputs: OutputParity) -> LoopParity:
    return LoopParity("a", "fp64", (UnitParity(0, outputs),))


def test_of_two_comparisons_the_worse_one_of_each_value_counts() -> None:
    early = parity(output("x", 0.01), output("state.k", 0.05))
    late = parity(output("x", 0.02), output("state.k", None))
    for both in (worse_of(early, late), worse_of(late, early)):
        assert [one.rel_l2 for one in both.units[0].outputs] == [0.02, None]
        assert not both.passed
        assert first_problem(both) == "state.k: wrong"


def test_a_record_has_all_outputs_and_of_the_state_what_is_nearest_to_its_limit() -> None:
    made = for_record(parity(output("x", 0.01), output("state.k", 0.05, 1.0), output("state.v", 0.04, 0.05)))
    assert [one.name for one in made.units[0].outputs] == ["x", "state.v"]
    made = for_record(parity(output("x", 0.01), output("state.k", 2.0, 1.0), output("state.v", 0.04, 0.05)))
    assert [one.name for one in made.units[0].outputs] == ["x", "state.k"], "a wrong one first"
