"""Findings that the parent adds to a record from what the worker reported."""

import pytest
from records import measurement

from bakeoff.record.schema import Finding, OutputParity, Parity
from bakeoff.sweeps.assemble import insensitive, issue_findings


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


def test_known_problems_are_findings_of_rows_that_ran() -> None:
    said = Finding("cpu-bf16-conv2d", "why")
    assert issue_findings([("cpu-bf16-conv2d", "why")], "ok") == (said,)
    assert issue_findings([("cpu-bf16-conv2d", "why")], "crashed") == (said,)
    assert issue_findings([("cpu-bf16-conv2d", "why")], "unavailable") == ()
    assert issue_findings([("cpu-bf16-conv2d", "why")], "unsupported") == ()
