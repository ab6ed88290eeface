"""What a backend can change within its own process is bounded by what the parent sees itself."""

from dataclasses import replace

import pytest
from lab import FAST, Swept, sweep

from bakeoff.plan.request import Request
from bakeoff.record.schema import Status

_PACKAGE = "bakeoff.selftest.tampering"
EXPECTED: dict[str, tuple[Status, str]] = {
    f"{_PACKAGE}:SLOWS_CLOCK": ("unstable", "clock-span"),
    f"{_PACKAGE}:EDITS_RESULT": ("crashed", ""),
    f"{_PACKAGE}:SEALS_ITSELF": ("crashed", ""),
    "eager": ("ok", ""),
}
POLICY = replace(FAST, min_s=1.0, full_s=1.0, throughput_s=1.0, cap_s=30.0, narrow_ratio=1e9)
"""Stops after the least times, and not at the cap before them, however busy the host is."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    request = Request("toy", backends=tuple(EXPECTED), dtypes=("fp32",), device="cpu", policy=POLICY)
    return sweep(request, tmp_path_factory.mktemp("tampering"))


@pytest.mark.parametrize("backend", EXPECTED)
def test_a_row_that_changes_what_it_is_checked_against_is_not_ranked(swept: Swept, backend: str) -> None:
    status, finding = EXPECTED[backend]
    record = swept.records()[backend]
    codes = [entry.code for entry in record.measurement.findings]
    assert record.status == status, record.measurement.reason
    assert ("clock-span" in codes) == (finding == "clock-span")


def test_a_record_states_how_long_each_phase_took(swept: Swept) -> None:
    record = swept.records()["eager"]
    assert list(record.phase_s)[:4] == ["start", "import", "weights", "build"]
    late_s = 0.5  # this process reads an event late on a busy host
    assert record.phase_s["latency"] >= POLICY.min_s - late_s
    assert record.phase_s["throughput"] >= POLICY.throughput_s - late_s
    assert sum(record.phase_s.values()) == pytest.approx(record.wall_s, abs=0.5)
