"""The account of a unit on a real clock: phases of known length, and what a stamp itself costs."""

import pytest
from eager_loops import eager_runner
from mixes import loop_of

from bakeoff.worker.pipeline.units import stamp_ns

pytestmark = pytest.mark.alone

UNITS = 200
LENGTHS_MS = {"a": 5, "b": 3, "c": 2, "glue": 1}
"""What the preset's busy waits last, and the wait between two phases."""


def test_phases_of_known_length_have_their_time() -> None:
    """By the fastest of many units: whatever else the machine does makes a wait longer, never shorter.

    Glue also holds what the loop does between its phases, some 30 us here and several times that on a busy machine.
    """
    runner = eager_runner("toy_loops:Toy", loop_of("toy_loops:Toy", "spin"))
    runner.open()
    samples = [runner.unit() for _ in range(UNITS)]
    assert all(sum(sample.segments.values()) == sample.wall_ns for sample in samples)
    fastest_ms = {
        segment.line: min(sample.segments[segment] for sample in samples) / 1e6
        for segment in samples[0].segments
        if segment.line in LENGTHS_MS
    }
    assert fastest_ms.keys() == LENGTHS_MS.keys()
    for line, length in LENGTHS_MS.items():
        most = 1.5 if line == "glue" else 1.02
        assert length <= fastest_ms[line] < most * length, line


def test_a_stamp_costs_less_than_20_us() -> None:
    """Two of them surround a call."""
    assert 0 < 2 * stamp_ns("cpu") < 20_000
