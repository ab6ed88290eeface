"""What keeps the times of two mixes, or of a row and a program of a mix, from being compared."""

from dataclasses import replace
from typing import Any

import pytest
from pipeline_records import BEST, MACHINE, measured, pipeline_record
from records import record

from bakeoff.record.comparable import computation_in, computation_of, differences, same_code
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.schema import BackendSource, Source

BACKEND = BackendSource("inductor", "inductor", "inductor.py", "b1")


def mix(component: str = "c1", backend: str = "b1", **changes: Any) -> PipelineRecord:
    """A mix whose first program states its source."""
    made = measured(BEST)
    source = Source(component, (replace(BACKEND, hash=backend),), "1257")
    first, *others = made.programs
    return pipeline_record(BEST, "best", replace(made, programs=(replace(first, source=source), *others)), **changes)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (mix(), ""),
        (mix(versions={"bakeoff": "0.2.0", "torch": "2.13.0"}), ""),
        (mix(component="c2"), "measured with another source of wm"),
        (mix(backend="b2"), "measured with another source of backend inductor"),
        (mix(loop_hash="other", backend="b2", component="c2"),
         "measured with another source of the pipeline, with another source of backend inductor, wm"),
        (mix(machine=replace(MACHINE, id="another")), "measured on another host of this class"),
    ],
)  # fmt: skip
def test_mixes_differ_by_what_they_run_and_where(other: PipelineRecord, why: str) -> None:
    assert differences(other, mix()) == why
    assert same_code(other, mix()) is (not why or "host" in why)


def test_a_source_that_one_record_lacks_tells_nothing() -> None:
    assert differences(pipeline_record(BEST, "best", measured(BEST)), mix()) == ""


def test_a_row_computes_what_a_program_of_a_mix_does_if_all_but_its_backend_is_alike() -> None:
    here = mix()
    program = here.measurement.programs[0]
    row = record("aoti", variant=program.variant, source=Source("c1", (), "1257"))
    assert computation_of(row) == computation_in(here, program)
    for changes in (
        {"threads": 2},
        {"batch": 2},
        {"weight_seed": 1},
        {"checkpoint": "w.safetensors, sha256 0123"},
        {"source": Source("c2", (), "1257")},
        {"source": Source("c1", (), "other")},
        {"versions": {"torch": "2.12.0"}},
    ):
        assert computation_of(replace(row, **changes)) != computation_in(here, program), changes
    trained = replace(here, checkpoints={"wm": "w.safetensors, sha256 0123", "image": ""})
    copied = replace(row, checkpoint="copy.safetensors, sha256 0123", weight_seed=1)
    assert computation_of(copied) == computation_in(trained, program)
    assert computation_in(here, replace(program, source=None)) is None
