"""The status of a mix by what its worker reported and what the parent saw."""

from pipeline_records import measured

from bakeoff.pipeline.assemble import with_status
from bakeoff.process.phases import Block
from bakeoff.record.pipeline import PipelineMeasurement

MADE = measured()
UNITS = MADE.units
assert UNITS is not None
BLOCKS = [Block((ns,), 0.0) for ns in UNITS.wall_ns]
SPAN_S = sum(UNITS.wall_ns) / 1e9


def codes(made: PipelineMeasurement) -> list[str]:
    return [finding.code for finding in made.findings]


def test_units_may_fill_the_time_that_the_parent_saw() -> None:
    assert with_status(MADE, BLOCKS, SPAN_S, 2) == MADE


def test_units_that_took_longer_than_the_parent_saw_are_not_ranked() -> None:
    made = with_status(MADE, BLOCKS, 0.99 * SPAN_S, 2)
    assert (made.status, codes(made)) == ("unstable", ["clock-span"])


def test_units_other_than_those_that_were_announced_are_not_ranked() -> None:
    assert UNITS is not None
    other = [*BLOCKS[:-1], Block((UNITS.wall_ns[-1] - 1,), 0.0)]
    made = with_status(MADE, other, 2 * SPAN_S, 2)
    assert (made.status, codes(made)) == ("unstable", ["clock-span"])
