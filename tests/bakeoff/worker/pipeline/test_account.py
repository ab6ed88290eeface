"""The account of a unit on a real clock: phases of known length, and what a stamp itself costs."""

from statistics import median

import pytest
from eager_loops import eager_runner
from mixes import loop_of

from bakeoff.worker.pipeline.units import stamp_ns

pytestmark = pytest.mark.alone

UNITS = 200
SHARES = {"a": 45.5, "b": 27.3, "c": 18.2, "glue": 9.1}
"""Of 5, 3 and 2 ms, and 1 ms between, in per cent."""


def test_phases_of_known_length_have_their_shares() -> None:
    runner = eager_runner("toy", loop_of("toy", "spin"))
    runner.open()
    samples = [runner.unit() for _ in range(UNITS)]
    assert all(sum(sample.segments.values()) == sample.wall_ns for sample in samples)
    found = {
        segment.line: median(sample.segments[segment] for sample in samples)
        for segment in samples[0].segments
        if segment.line in SHARES
    }
    whole = median(sample.wall_ns for sample in samples)
    assert found.keys() == SHARES.keys()
    for line, share in SHARES.items():
        assert 100 * found[line] / whole == pytest.approx(share, abs=0.5), line


def test_a_stamp_costs_less_than_20_us() -> None:
    """Two of them surround a call."""
    assert 0 < 2 * stamp_ns("cpu") < 20_000
