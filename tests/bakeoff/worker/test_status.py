"""Findings that follow from a clock's samples: two modes, clocks that disagree, wide intervals."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bakeoff.process.jobs import MeasureJob, Subject
from bakeoff.record.finding import new_finding
from bakeoff.record.policy import Policy
from bakeoff.record.schema import Clock, OutputParity, Parity, Samples
from bakeoff.worker.clocks.cpu_usage import CpuUsage
from bakeoff.worker.clocks.timing import Timing
from bakeoff.worker.status import decide_status, timing_alarms, timing_remarks

JOB = MeasureJob(Subject("toy", "tiny", "world", 1, 0, 0, "", "cpu", 1), "", (), "fp32", Policy(), "", "")
ON_CUDA = replace(JOB, subject=replace(JOB.subject, device="cuda"))
RANDOM = np.random.default_rng(0)


def around(center_ms: float, count: int, sd: float = 0.01) -> list[int]:
    return [int(value) for value in center_ms * 1e6 * np.exp(RANDOM.normal(0, sd, count))]


def timing(latency: Sequence[int], throughput: Sequence[int] = ()) -> Timing:
    return Timing(
        Clock(Samples(latency)),
        Clock(Samples(throughput or latency)),
        outputs=(),
        moved_counters=(),
        findings=(),
        cpu=CpuUsage(),
        held_bytes=(),
        calls=len(latency),
        host_slowdown=1.0,
    )


def alarms(measured: Timing, job: MeasureJob = JOB) -> list[tuple[str, str]]:
    return [(finding.code, finding.text) for finding in timing_alarms(measured, 1.0, 0, (), job)]


def remarks(measured: Timing, job: MeasureJob = JOB) -> list[tuple[str, str]]:
    return [(finding.code, finding.text) for finding in timing_remarks(measured, job)]


def test_steady_samples_give_no_finding() -> None:
    steady = timing(around(10, 200), around(10, 50))
    assert (alarms(steady), remarks(steady)) == ([], [])


@pytest.mark.parametrize("job", [JOB, ON_CUDA], ids=["cpu", "cuda"])
def test_two_modes_make_a_row_unstable_and_both_are_named(job: MeasureJob) -> None:
    flipping = timing(around(115, 60) + around(215, 40))
    ((code, text),) = alarms(flipping, job)
    assert code == "bimodal"
    assert all(figure in text for figure in ("60%", "40%"))
    status, reason = decide_status("", Parity("", "fp64", 4, ()), None, timing_alarms(flipping, 1.0, 0, (), job))
    assert (status, reason) == ("unstable", text)


def test_the_first_status_that_applies_is_the_rows() -> None:
    right, wrong = (OutputParity("y", 0.5, 0.1, passed, problem="" if passed else "y: off") for passed in (True, False))
    alarm = new_finding("drift", "calls took longer")
    for fallback, output, problem, alarms, expected in (
        ("eager", wrong, "stale", [alarm], ("fell_back", "ran eager")),
        ("", wrong, "stale", [alarm], ("parity_failed", "y: off")),
        ("", right, "stale", [alarm], ("parity_failed", "stale")),
        ("", right, None, [alarm], ("unstable", "calls took longer")),
        ("", right, None, [], ("ok", "")),
    ):
        assert decide_status(fallback, Parity("", "fp64", 4, (output,)), problem, alarms) == expected


def test_modes_may_lie_as_far_apart_as_the_policy_says() -> None:
    flipping = timing(around(100, 100, 0.002) + around(108, 100, 0.002))
    assert [code for code, _ in alarms(flipping)] == ["bimodal"]
    assert alarms(flipping, replace(JOB, policy=Policy(unsteady_ratio=0.1))) == []


@pytest.mark.parametrize("ratio", [0.9, 1.1])
def test_clocks_that_disagree_are_a_remark_on_a_cpu(ratio: float) -> None:
    apart = timing(around(10 * ratio, 200), around(10, 50))
    (found,) = remarks(apart)
    assert found[0] == "clocks-disagree"
    (shown,) = re.findall(r"latency is ([\d.]+)x", found[1])
    assert float(shown) == pytest.approx(ratio, rel=0.01)
    assert alarms(apart) == []
    assert remarks(apart, ON_CUDA) == [], "there the gap is the cost of launching and waiting"
    assert remarks(timing(around(10.3, 200), around(10, 50))) == []


def test_short_calls_take_a_fixed_time_longer_by_themselves() -> None:
    short = timing(around(0.067, 900), around(0.0485, 50))
    assert [code for code, _ in remarks(short)] == ["short-call"]
    assert remarks(short, ON_CUDA) == []
    assert [code for code, _ in remarks(timing(around(0.167, 900), around(0.08, 50)))] == ["clocks-disagree"]
    assert [code for code, _ in remarks(timing(around(0.0485, 900), around(0.067, 50)))] == ["clocks-disagree"], (
        "in blocks nothing makes a call longer"
    )


@pytest.mark.parametrize(
    ("latency_ms", "block_ms", "on_cpu", "on_cuda"),
    [(0.002, 1, 1, 1), (1, 0.002, 1, 0), (0.049, 0.002, 0, 0), (10, 25, 0, 0), (25, 10, 0, 0)],
)
def test_clocks_far_apart_make_a_row_unstable(latency_ms: float, block_ms: float, on_cpu: int, on_cuda: int) -> None:
    """Calls that compute for the next ones, or only if they stand alone; short or launched ones may do the latter."""
    apart = timing(around(latency_ms, 8), around(block_ms, 3))
    for job, count in ((JOB, on_cpu), (ON_CUDA, on_cuda)):
        assert [code for code, _ in alarms(apart, job)] == ["clocks-disagree"] * count
        assert not count or not remarks(apart, job)


def test_a_wide_interval_is_a_remark() -> None:
    ((code, text),) = remarks(timing(around(10, 12, 0.2)))
    assert code == "wide"
    assert "12 samples" in text
    assert remarks(timing(around(10, 2000, 0.2))) == []
