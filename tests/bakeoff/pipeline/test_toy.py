"""The toy pipeline from the request to its records, with real workers."""

from collections.abc import Mapping

import pytest
from lab import FAST, Recorder, marked_folder, processes_with

from bakeoff.machine import paths
from bakeoff.pipeline.plan import make_pipeline_plan
from bakeoff.pipeline.request import PipelineRequest
from bakeoff.pipeline.run import run_pipeline
from bakeoff.record.pipeline import PipelineRecord

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, PipelineRecord]:
    """By the mix's role; `other` is one in half precision."""
    folder = tmp_path_factory.mktemp("toy")
    request = PipelineRequest("toy", mixes=("eager", "world=eager/bf16"), device="cpu", units=3, threads=1, policy=FAST)
    with marked_folder(folder) as marker:
        plan = make_pipeline_plan(request, paths.runs_folder())
        done = run_pipeline(plan, paths.runs_folder(), "", False, Recorder())
        assert list(processes_with(marker)) == []
    return {entry.record.role or "other": entry.record for entry in done.stored}


def test_both_mixes_are_right_and_took_turns(records: Mapping[str, PipelineRecord]) -> None:
    for record in records.values():
        measured = record.measurement
        assert (record.status, measured.reason) == ("ok", "")
        assert record.how == "interleaved"
        assert measured.parity is not None
        assert measured.parity.passed
        assert len(measured.parity.units) > 1
        assert all(program.parity is not None and program.parity.passed for program in measured.programs)
        assert all(len(program.alone_ns) > 0 for program in measured.programs)


def test_every_unit_adds_up_to_the_nanosecond(records: Mapping[str, PipelineRecord]) -> None:
    for record in records.values():
        units = record.measurement.units
        assert units is not None
        assert units.kinds.count("steady") >= 3
        sums = tuple(sum(line.ns[index] for line in units.lines) for index in range(len(units.wall_ns)))
        assert sums == units.wall_ns
        called = {(time.slot, time.program): time.calls[-1] for time in units.programs}
        assert {f"{slot}.{program}": count for (slot, program), count in called.items()} == record.calls
