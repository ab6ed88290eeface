"""Findings that the parent adds to a record from what the worker reported."""

from dataclasses import replace

import pytest
from ceilings import CEILINGS
from records import measurement, record

from bakeoff.machine.host import Load
from bakeoff.process.supervisor import Outcome
from bakeoff.record.finding import Finding
from bakeoff.record.schema import OutputParity, Parity
from bakeoff.sweeps.assemble import against_floor, host_findings, insensitive, issue_findings


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
    said = Finding("known-issue", "why")
    assert issue_findings(["why"], "ok") == (said,)
    assert issue_findings(["why"], "crashed") == (said,)
    assert issue_findings(["why"], "unavailable") == ()
    assert issue_findings(["why"], "unsupported") == ()


def test_a_row_that_is_faster_than_its_floor_allows_is_unstable() -> None:
    """1.5 GFLOP at 150 GFLOP/s are 10 ms, of which a row may take 0.7."""
    facts = {"minimum_bytes": 1 << 20}
    assert against_floor(record("inductor", [8.0] * 20, **facts), CEILINGS).status == "ok"
    found = against_floor(record("inductor", [6.0] * 20, **facts), CEILINGS)
    assert (found.status, [finding.code for finding in found.measurement.findings]) == ("unstable", ["below_floor"])
    assert found.measurement.reason.startswith("below_floor: ")
    wrong = record("inductor", [6.0] * 20, "parity_failed", "why", **facts)
    assert against_floor(wrong, CEILINGS) == replace(wrong, ceilings=CEILINGS), "what is worse stays"


def test_a_host_is_busy_with_more_than_half_as_many_processes_as_threads() -> None:
    def codes(load: float) -> list[str]:
        return [finding.code for finding in host_findings(Load(load, load), 4, "the sweep", Outcome("result"))]

    assert (codes(2.0), codes(2.1)) == ([], ["busy-host"])
