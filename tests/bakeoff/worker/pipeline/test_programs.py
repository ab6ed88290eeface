"""Programs of one slot in one process: shared weights, and folders of their own."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="workers need it")

from lab import FAST
from mixes import Heard, hashes, loop_of, make_job

from bakeoff.process.jobs import (
    BackendStep,
    LoopSubject,
    MeasureJob,
    PipelineJob,
    ReferenceJob,
    Subject,
)
from bakeoff.record.pipeline import SlotProgram
from bakeoff.worker.clocks import in_loop
from bakeoff.worker.pipeline.programs import LoopProgram, build_programs
from bakeoff.worker.reference.make import make_reference

WORKLOADS = ("world", "picture", "sound")


def built(
    folder: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, *backends: str
) -> tuple[list[LoopProgram], SlotProgram | None, str]:
    """Three programs of one slot: those that were built, the one that failed, and its traceback."""
    programs = []
    for workload in WORKLOADS:
        subject = Subject("toy", "tiny", workload, 1, 0, 0, "", "cpu", 1)
        reference = folder / workload
        make_reference(ReferenceJob(subject, (dtype,), str(reference)), Heard())
        variant = f"toy:tiny.{workload}/eager/{dtype}@cpu"
        steps = tuple(BackendStep(name, {}) for name in backends)
        job = MeasureJob(subject, variant, steps, dtype, FAST, str(reference), "", "", hashes(reference))  # type: ignore[arg-type]
        programs.append(("world", job))
    loop = LoopSubject(loop_of("toy_loops:Toy"), 0, 0, {}, "cpu", 1)
    work = folder / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    made = build_programs(PipelineJob(loop, tuple(programs), FAST, "", {}), Heard())
    assert Path.cwd() == work
    return made


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_programs_of_a_slot_read_one_set_of_weights(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, *_ = built(tmp_path, monkeypatch, dtype, "eager")
    modules = [program.checked.loaded.module for program in programs]
    for name, parameter in modules[0].named_parameters():
        for other in modules[1:]:
            assert other.get_parameter(name).data_ptr() == parameter.data_ptr(), name
    made = [program.made for program in programs]
    assert [one.status for one in made] == ["ok"] * 3
    assert [one.shares_weights for one in made] == [False, True, True]


def test_programs_that_a_backend_prepared_have_weights_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, *_ = built(tmp_path, monkeypatch, "fp32", "loop_backends:PREPARES", "eager")
    pointers = {program.checked.loaded.module.get_parameter("world.weight").data_ptr() for program in programs}
    assert len(pointers) == 3
    made = [program.made for program in programs]
    assert [one.shares_weights for one in made] == [False] * 3


def test_programs_whose_engines_copy_weights_free_the_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, failed, _ = built(tmp_path, monkeypatch, "fp32", "loop_backends:COPIES")
    assert failed is None
    for program in programs:
        assert list(program.checked.loaded.module.parameters()) == []
        assert not program.made.shares_weights


def test_each_build_has_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backends write files of fixed names there, and may read them as long as the engine lives."""
    programs, *_ = built(tmp_path, monkeypatch, "fp32", "loop_backends:WRITES")
    assert [program.made.status for program in programs] == ["ok"] * 3
    assert sorted(os.listdir(tmp_path / "work")) == ["program0", "program1", "program2"]


def test_a_program_that_fails_keeps_what_was_built_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, failed, traceback = built(tmp_path, monkeypatch, "fp32", "loop_backends:FAILS_FOR_PICTURES")
    assert [program.made.variant.workload for program in programs] == ["world"]
    assert failed is not None
    assert (failed.variant.workload, failed.status) == ("picture", "build_failed")
    assert "no pictures" in failed.reason
    assert "no pictures" in traceback
    assert failed.weights, "its weights are known"


def test_calls_are_timed_after_the_loops_next_module_and_other_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(tmp_path, {"world": "eager/fp32", "stream": "eager/fp32"}).programs[0][1]
    monkeypatch.setattr(in_loop, "_LONGEST_NS", 50_000_000)
    order = list[str]()
    work = in_loop.other_work("cpu")
    monkeypatch.setattr(in_loop, "other_work", lambda _device: lambda: (order.append("work"), work()))
    found = in_loop.time_in_loop(replace(job, next_slot="toy"), lambda: order.append("call") or ())  # type: ignore[func-returns-value]
    assert len(found) >= 5
    assert order == ["work", "call"] * len(found)
    assert sorted(found)[len(found) // 2] < 300_000, "the work of 0.3 ms is not in the times"
    assert not in_loop.time_in_loop(job, lambda: ())
