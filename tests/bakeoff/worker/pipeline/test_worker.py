"""A mix in a real worker: the parent asks for one unit after the other."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="workers need it")

from types import NoneType

from mixes import make_job

from bakeoff.process.jobs import LoopReferenceJob
from bakeoff.process.supervisor import Deadlines, Launch, LiveWorker, run_job
from bakeoff.record.pipeline import PipelineMeasurement

WAYS = {"world": "eager/bf16", "stream": "eager/fp32"}
DTYPES = {"world": "bf16", "stream": "fp32"}


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    return Launch({**os.environ, "OMP_NUM_THREADS": "1"}, Deadlines(120.0), tmp_path / "worker.log")


def test_units_run_on_command_until_stop(launch: Launch, tmp_path: Path) -> None:
    job = make_job(tmp_path, WAYS)
    with LiveWorker(replace(job, heap_offset_bytes=4096), launch) as worker:
        ready = worker.wait("ready")
        assert ready is not None, launch.log.read_text()
        kinds, walls = [], []
        for _ in range(13):
            worker.tell("unit 1")
            event = worker.wait("unit")
            assert event is not None
            assert event.block is not None
            assert event.block.idle_cpu_s < 5
            kinds.append(event.block.kind)
            walls.append(*event.block.samples_ns)
        worker.tell("stop")
        worker.wait()
        outcome = worker.finish(PipelineMeasurement)
    assert outcome.kind == "result", outcome.reason
    made = outcome.value
    assert isinstance(made, PipelineMeasurement)
    assert (made.status, made.reason) == ("ok", "")
    assert kinds == ["filling"] * 12 + ["steady"]
    assert made.units is not None
    assert list(made.units.wall_ns) == walls
    assert all(sum(line.ns[unit] for line in made.units.lines) == wall for unit, wall in enumerate(walls))


def test_every_process_makes_the_same_reference(launch: Launch, tmp_path: Path) -> None:
    job = make_job(tmp_path, WAYS)
    folder = tmp_path / "in-a-worker"
    again = LoopReferenceJob(job.subject, (DTYPES,), 3, str(folder))
    outcome = run_job(again, NoneType, launch)
    assert outcome.kind == "result", launch.log.read_text()
    here = Path(job.reference_folder)
    assert {path.name for path in folder.iterdir()} == {path.name for path in here.iterdir()}
    for unit in ("opened", "unit0", "unit1", "unit2"):
        assert (folder / f"{unit}.safetensors").read_bytes() == (here / f"{unit}.safetensors").read_bytes()
