"""The product's selftest passes, its result is stored in records, and rows are compared with what is expected."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from lab import MARKER, processes_with
from records import measurement, record, started_bakeoff
from selftest_backends.expected import MORE

from bakeoff.backends import backend
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import ClockResult
from bakeoff.record import kept
from bakeoff.record.finding import Finding
from bakeoff.record.schema import SelftestStamp
from bakeoff.record.source import code_hash
from bakeoff.report.notes import selftest_text
from bakeoff.report.pages import doctor
from bakeoff.report.render import terminal
from bakeoff.selftest import __main__ as lanes_command
from bakeoff.selftest.expected import LANES, Expectation, lanes
from bakeoff.selftest.run import Selftest, check_row, clock_checks, noise_reason
from bakeoff.sweeps.run import SweepResult

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("_same_path")]

WHOLE = "selftest_backends.expected:MORE"
OWN = [entry for lane in LANES for entry in lane.expectations]
ALL = [*OWN, *(entry for entries in MORE.values() for entry in entries)]
QUIET = ClockResult(0.01, 1.001, 200, 0.99, 400, 60, 1)


@pytest.fixture
def _same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder, in which more backends are looked for, is left out again."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.alone
def test_the_products_own_passes_and_its_result_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = f"selftest of {tmp_path}"
    monkeypatch.setenv(MARKER, marker)
    ran = started_bakeoff("selftest", "--device", "cpu", "--json", cwd=tmp_path, timeout=1200)
    found = json.loads(ran.out)
    assert [check for check in found["checks"] if not check["passed"]] == []
    assert ran.code == 0
    assert len(found["checks"]) == len(OWN) + 1 + 4
    assert processes_with(marker) == []
    stamp = kept.read_stamp()
    assert stamp is not None
    assert (stamp.passed, stamp.quick, stamp.code) == (True, True, code_hash())


def test_a_lane_ends_with_the_first_sweep_that_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the parent, which has passed Ctrl-C on, waits for sweeps that begin after it."""
    lane = next(lane for lane in lanes(WHOLE, "cpu") if len(lane.subjects) > 1)
    swept: list[object] = []

    def interrupted(plan: object, *_: object, **__: object) -> SweepResult:
        swept.append(plan)
        return SweepResult("sweep", (), ("a row",))

    monkeypatch.setattr(lanes_command, "run_sweep", interrupted)
    monkeypatch.setattr(lanes_command.guard, "prctl", lambda *_: None)
    monkeypatch.setattr(lanes_command.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["bakeoff.selftest", WHOLE, lane.name, "cpu"])
    with pytest.raises(SystemExit) as ended:
        lanes_command.main()
    assert (len(swept), ended.value.code) == (1, 130)


def test_more_backends_join_the_lanes_of_the_products() -> None:
    assert lanes("", "cpu") == LANES
    assert MORE.keys() == {lane.name for lane in LANES}, "what is in no lane is not swept"
    for own, cpu, cuda in zip(LANES, lanes(WHOLE, "cpu"), lanes(WHOLE, "cuda"), strict=True):
        assert cpu == replace(own, expectations=(*own.expectations, *MORE[own.name]))
        assert cuda.expectations == cpu.expectations
        assert cuda.policy.build_deadline_s >= 30, "it holds the start of CUDA"
        assert cuda.policy.large_build_deadline_s == cuda.policy.build_deadline_s
    with pytest.raises(BakeoffError) as refused:
        lanes("no_such_module:MORE", "cpu")
    assert refused.value.code == "bad-user-code"


def test_each_kind_of_finding_and_failure_has_a_backend_in_the_product() -> None:
    """But those of an exception, of a long log, of what is left to PyTorch, of helpers, and of rewritten limits."""
    statuses, findings = ({getattr(entry, kind) for entry in OWN} for kind in ("status", "finding"))
    assert {entry.status for entry in ALL} - statuses == {"build_failed", "call_failed", "unavailable"}
    assert {entry.finding for entry in ALL} - findings == {"helpers", "left-to-aten", "log", "tampered"}


def test_a_row_needs_the_expected_status_and_finding(tmp_path: Path) -> None:
    faulty = Expectation("eager", "unstable", "leak")
    correct = Expectation("eager", "ok")
    noted = Expectation("eager", "ok", "log")
    leaks, other = (Finding(code, "why") for code in ("leak", "drift"))

    def passes(entry: Expectation, status: str, *findings: Finding) -> bool:
        made = record("eager", made=measurement([1.0], status, "why" if status != "ok" else "", findings=findings))
        return check_row(entry, made, tmp_path, "cpu").passed

    assert passes(faulty, "unstable", leaks)
    assert passes(faulty, "unstable", other, leaks)
    assert not passes(faulty, "unstable", other)
    assert not passes(faulty, "ok", leaks)
    assert not passes(faulty, "parity_failed", leaks)
    assert passes(correct, "ok")
    assert not passes(correct, "ok", other)
    assert passes(noted, "ok", Finding("log", "why"))
    assert not passes(noted, "ok")
    assert not check_row(correct, None, tmp_path, "cpu").passed


def test_a_backend_that_cannot_run_here_is_shown_as_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = next(entry for entry in ALL if entry.backend.endswith(":LOST_PROVIDER"))
    missing = record("eager", made=measurement((), "unavailable", "onnxruntime is not installed"))
    assert not check_row(lost, record("eager", [1.0]), tmp_path, "cpu").passed, "it is installed here"
    monkeypatch.setattr(backend, "find_spec", lambda name: None if name == "onnxruntime" else object())
    check = check_row(lost, missing, tmp_path, "cpu")
    assert check.passed
    assert (check.expected, check.found) == ("unavailable", "unavailable")
    assert "onnxruntime" in check.not_run
    assert not check_row(lost, record("eager", [1.0]), tmp_path, "cpu").passed
    assert check_row(lost, None, tmp_path, "cuda").found == "no record"

    stamp = SelftestStamp(True, False, "now", "abc")
    checks = (check, replace(check, not_run="", found="x"), replace(check, not_run="", found="y", passed=False))
    verdict, table = terminal.render(doctor.page_of_selftest(Selftest(stamp, checks, "", 1.0))).split("\n\n")
    assert verdict.startswith("selftest of code abc: 1 of 3 checks FAILED, 1 NOT RUN because this machine lacks")
    assert [line.split()[1] for line in table.splitlines()[2:]] == ["FAIL", "not", "pass"]
    assert re.search("FAIL +y instead of unavailable +unavailable", table)
    assert re.search(r"lost-provider +not run +unavailable +unavailable +.*onnxruntime", table)
    whole = terminal.render(doctor.page_of_selftest(Selftest(stamp, checks[:2], "noisy", 1.0)))
    assert "all 1 check passed, 1 NOT RUN" in whole
    assert whole.split("\n\n")[1] == "noisy"


def test_clocks_are_checked_on_a_quiet_host_only() -> None:
    assert all(check.passed for check in clock_checks(QUIET))
    assert not noise_reason(QUIET)
    for changes in (
        {"wait_ratio": 1.03},
        {"wait_ratio": 0.97},
        {"timer_ratio": 1.04},
        {"latency_overhead_ns": 20_001},
        {"throughput_overhead_ns": 5_001},
    ):
        assert sum(not check.passed for check in clock_checks(replace(QUIET, **changes))) == 1  # type: ignore[arg-type]
    noisy = replace(QUIET, probe_spread=0.2, wait_ratio=1.5, timer_ratio=2.0)
    assert "20.0%" in noise_reason(noisy)
    assert all(check.passed for check in clock_checks(noisy)), "ratios from a noisy host prove nothing"
    assert [check.not_run for check in clock_checks(noisy)] == ["a quiet host", "a quiet host", "", ""]
    assert not any(check.not_run for check in clock_checks(replace(noisy, wait_ratio=1.0, timer_ratio=1.0)))


def test_a_record_says_whether_this_code_passed_the_selftest() -> None:
    stamp = SelftestStamp(True, False, "2026-01-02T03:04:05.000000Z", "abc")
    tested = record("eager", [1.0], code="abc", selftest=stamp)
    assert selftest_text(tested) == "selftest passed 2026-01-02 03:04 UTC"
    assert selftest_text(replace(tested, code="def")).endswith("STALE: bakeoff's code has changed since")
    assert selftest_text(replace(tested, selftest=replace(stamp, passed=False, quick=True))).startswith(
        "quick selftest FAILED"
    )
    assert selftest_text(replace(tested, selftest=None)).startswith("no selftest on this machine")
