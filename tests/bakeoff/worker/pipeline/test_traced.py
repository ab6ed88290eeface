"""The traced pass of the toy loop: what it sees, and that no timed unit is touched by it."""

import gzip
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="workers need it")

import loop_backends
import torch
from mixes import make_job, run_mix
from toys import LIBRARY_WARNINGS, NEEDS_COMPILER

from bakeoff.process.jobs import PipelineJob, ProfileOptions
from bakeoff.record.pipeline import PipelineMeasurement, Profile
from bakeoff.trace import timeline
from bakeoff.trace.chrome import is_ours
from bakeoff.worker.pipeline import clocks, traced

EAGER = {"world": "eager/fp32", "stream": "eager/fp32"}
UNITS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traced")


@pytest.fixture(autouse=True, scope="module")
def undisturbed() -> Iterator[None]:
    """Units of a few milliseconds on a busy machine count, however long they take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeline, "DISTURBED", 1e9)
        yield


@pytest.fixture(autouse=True)
def told() -> Iterator[None]:
    yield
    loop_backends.COMPILED.clear()


def asking(job: PipelineJob, folder: Path, snapshot: str = "", **changes: Any) -> PipelineJob:
    files = {"folder": str(folder), "file": str(folder / "traces" / "mix.json.gz"), "snapshot": snapshot}
    return replace(job, profile=ProfileOptions(**{"units": UNITS, **files, **changes}))


def profile_of(made: PipelineMeasurement) -> Profile:
    assert (made.status, made.reason) == ("ok", "")
    assert made.profile is not None, made.findings
    return made.profile


def events(folder: Path) -> list[dict[str, Any]]:
    with gzip.open(folder / "traces" / "mix.json.gz") as file:
        found: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return found


@pytest.fixture(scope="module")
def eager(folder: Path) -> PipelineMeasurement:
    made, _ = run_mix(asking(make_job(folder, EAGER), folder / "eager", level=5, memory=True), folder / "work-eager")
    return made


def test_the_units_of_the_record_are_those_that_were_asked_for(eager: PipelineMeasurement) -> None:
    assert eager.units is not None
    assert len(eager.units.wall_ns) == 14, "traced ones are not among them"
    assert len(eager.opened_ns) == 1


def test_spans_of_the_traced_units_add_up(eager: PipelineMeasurement) -> None:
    found = profile_of(eager)
    assert found.units == UNITS
    spans = sum(line.span_ns for line in found.lines)
    assert spans == pytest.approx(found.wall_ns, rel=0.05), "stamps in the trace are those of the clock"
    assert {line.name for line in found.lines if line.kind == "phase"} >= {"denoise", "decode"}
    assert found.cpu_ns > 0


def test_operators_are_attributed_to_their_phases(eager: PipelineMeasurement) -> None:
    found = profile_of(eager)
    assert found.operators is not None
    assert found.kernels is None
    by_line = {(row.name, row.line): row.calls for row in found.operators.top}
    assert any(name.startswith("aten::") and line == "denoise" for name, line in by_line)
    assert any("conv" in name and line == "decode" for name, line in by_line)
    busy = {line.name: line.busy_ns for line in found.lines}
    assert busy["denoise"] > 0
    for line in found.lines:
        assert line.busy_ns <= line.span_ns
    assert [(sight.slot, sight.sight) for sight in found.programs] == [("world", "inside"), ("stream", "inside")]
    assert {line.name: line.programs for line in found.lines if line.programs} == {
        "denoise": ("world.world",),
        "decode": ("stream.stream",),
    }


def test_a_disturbed_unit_is_named_and_does_not_count(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of three traced units sleeps for two seconds."""
    once, ends = clocks.ToldClock.end, []

    def end(clock: clocks.ToldClock) -> tuple[int, list[int]]:
        ends.append(clock)
        if len(ends) == 4:  # two units warm up
            time.sleep(2)
        return once(clock)

    monkeypatch.setattr(clocks.ToldClock, "end", end)
    monkeypatch.setattr(timeline, "DISTURBED", 10)
    made, _ = run_mix(asking(make_job(folder, EAGER), tmp_path), tmp_path / "work")
    found = profile_of(made)
    assert found.units == UNITS - 1
    assert found.wall_ns < 2e9
    assert all(line.span_ns < 2e9 for line in found.lines)
    (finding,) = [finding for finding in made.findings if finding.code == "traced-unit"]
    assert finding.text.startswith("of 3 traced units, unit 9 took 2")


def test_parts_of_networks_that_run_in_eager_are_seen(eager: PipelineMeasurement) -> None:
    parts = profile_of(eager).parts
    assert {part.slot for part in parts} == {"world", "stream"}
    assert {part.level for part in parts} <= {4, 5}
    assert all(part.calls % UNITS == 0 and part.ns > 0 for part in parts)


def test_memory_over_time_is_recorded(eager: PipelineMeasurement) -> None:
    points = profile_of(eager).memory
    assert len(points) > 2
    assert [point.t_ns for point in points] == sorted(point.t_ns for point in points)
    assert max(point.bytes for point in points) > 0


def test_the_trace_is_of_tags_with_arguments(eager: PipelineMeasurement, folder: Path) -> None:
    found = profile_of(eager)
    assert found.trace is not None
    assert found.trace.path == "traces/mix.json.gz"
    every = events(folder / "eager")
    ours = [event for event in every if event.get("pid") == "bakeoff" and event["ph"] == "X"]
    names = [event["name"] for event in ours]
    assert names.count("unit") == UNITS
    assert names.count("call") == 3 * UNITS
    assert [event["args"]["index"] for event in ours if event["name"] == "unit"] == [8, 9, 10]
    assert any(event["ph"] == "C" for event in every)
    assert not any(is_ours(event.get("name", "")) for event in every)
    assert any(event.get("cat") == "cpu_op" for event in every)


@NEEDS_COMPILER
@LIBRARY_WARNINGS
def test_a_compiled_program_is_a_region_whose_inside_is_not_visible(folder: Path, tmp_path: Path) -> None:
    job = make_job(folder, {"world": "eager/fp32", "stream": "inductor/fp32"})
    made, _ = run_mix(asking(job, tmp_path, level=5), tmp_path / "work")
    found = profile_of(made)
    assert [(sight.slot, sight.sight) for sight in found.programs] == [("world", "inside"), ("stream", "hidden")]
    assert {part.slot for part in found.parts} == {"world"}
    levels = {event["tid"] for event in events(tmp_path) if event.get("pid") == "bakeoff" and event["ph"] == "X"}
    assert levels >= {1, 2, 3}


def test_hooks_are_gone_afterwards() -> None:
    """Tags must not stay in a module that another program of the slot runs."""
    network = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    from bakeoff.worker.pipeline.traced import parts_marked

    with parts_marked({"slot": ("mine", [network])}, 4) as tags:
        network(torch.zeros(1, 2))
        assert [tag.path for tag in tags] == ["0", "1"]
        assert network[0]._forward_hooks
    assert not network[0]._forward_hooks
    assert not network[0]._forward_pre_hooks


def test_a_session_near_its_end_is_opened_anew(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced units are steady ones of one session."""
    opened = []
    from bakeoff.worker.pipeline.runner import LoopRunner

    once = LoopRunner.open
    monkeypatch.setattr(LoopRunner, "open", lambda self: (opened.append(self.next_unit), once(self))[1])
    job = make_job(folder, EAGER)
    before = traced.TracedPass._steady

    def near_its_end(self: traced.TracedPass, units: int) -> None:
        limited = replace(self.loop, max_units=self.runner.next_unit + units - 1)
        before(replace(self, loop=limited), units)

    monkeypatch.setattr(traced.TracedPass, "_steady", near_its_end)
    made, _ = run_mix(asking(job, tmp_path), tmp_path / "work")
    assert profile_of(made).units == UNITS
    assert len(opened) >= 2
    assert len(made.opened_ns) == 1, "openings of the traced pass are in no figure"


@pytest.mark.gpu
def test_on_cuda_kernels_belong_to_phases_and_calls_overlap(tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    job = make_job(tmp_path / "made", EAGER, device="cuda")
    made, _ = run_mix(
        asking(job, tmp_path, memory=True, snapshot=str(tmp_path / "traces" / "m.pickle")), tmp_path / "work"
    )
    found = profile_of(made)
    assert found.kernels is not None
    assert {row.line for row in found.kernels.top} >= {"denoise", "decode"}
    assert len(found.stepped_ns) == UNITS
    assert found.snapshot is not None
    assert found.snapshot.bytes > 0
