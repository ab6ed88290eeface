"""Findings that the parent adds to a record from what the worker reported."""

import pytest
from records import measurement

from bakeoff.record.schema import OutputParity, Parity
from bakeoff.sweeps.assemble import insensitive


def parity(*outputs: OutputParity) -> Parity:
    return Parity("reference", "fp64", 4, outputs)


@pytest.mark.parametrize(
    ("sensitivity", "limit", "found"),
    [(1.2, 0.056, 0), (1.2, 0.12, 0), (1.2, 0.178, 1), (6e-7, 1e-4, 1), (None, 1.0, 0)],
)
def test_a_limit_above_a_tenth_of_the_sensitivity_is_a_finding(
    sensitivity: float | None, limit: float, found: int
) -> None:
    output = OutputParity("y", 1e-8, limit, True, sensitivity=sensitivity)
    codes = [finding.code for finding in insensitive(measurement(parity=parity(output, output)))]
    assert codes == ["insensitive"] * found
