"""What a traced build adds to a measurement: the trace, what it lacks, and operators that ran elsewhere."""

from dataclasses import replace

import pytest
from records import measurement

from bakeoff.process.jobs import TraceResult
from bakeoff.record.schema import KernelTime, Measurement, ProofRecord, TraceRecord
from bakeoff.record.short_calls import short_call
from bakeoff.sweeps.wave import with_trace

PROOF = ProofRecord(graphs=1, operators_inside={"conv2d": 3}, operators_outside={"mm": 2}, graph_hash="aaaa")
MEASURED = measurement([1.0, 1.1], proof=PROOF)
TRACE = TraceRecord((KernelTime("cpp_fused_add", 1.0, 9_000_000, True),), 1, 10_000_000, 9_000_000, 9_000_000, "aaaa")
TRACED = TraceResult(TRACE, {}, {})


def codes(made: Measurement) -> list[str]:
    return [finding.code for finding in made.findings]


def lacking(traced: TraceResult) -> str:
    """What the proof lacks; the row's status and numbers stay, and a finding says the same."""
    made = with_trace(MEASURED, traced, device="cpu")
    assert made.proof is not None
    assert (made.status, made.reason, made.latency) == (MEASURED.status, MEASURED.reason, MEASURED.latency)
    assert made.proof.fell_back == ""
    (finding,) = made.findings
    assert finding.code == "proof.incomplete"
    assert made.proof.incomplete in finding.text
    return made.proof.incomplete


def test_a_complete_trace() -> None:
    made = with_trace(MEASURED, TRACED, device="cpu")
    assert made.proof == replace(PROOF, trace=TRACE)
    assert made.proof.incomplete == ""
    assert (made.status, made.findings) == ("ok", ())


@pytest.mark.parametrize(("named_ns", "says"), [(0, "0%"), (5_000_000, "50%"), (7_900_000, "79%"), (7_999_000, "79%")])
def test_too_little_of_the_time_is_named(named_ns: int, says: str) -> None:
    trace = replace(TRACE, named_ns=named_ns)
    assert {says, "80%"} <= set(lacking(replace(TRACED, trace=trace)).split())


class TestShortCalls:
    """Of a call of 0.15 ms, whose host takes longer than its kernels."""

    SHORT = replace(TRACED, trace=replace(TRACE, total_ns=200_000, named_ns=50_000))

    def test_one_finding_stands_for_all_that_follows(self) -> None:
        made = with_trace(MEASURED, self.SHORT, device="cpu")
        assert codes(made) == ["short-call"]
        assert made.proof is not None
        assert "25%" in made.proof.incomplete, "the proof still says what it lacks"
        of_clocks = replace(MEASURED, findings=(short_call(),))
        assert codes(with_trace(of_clocks, self.SHORT, device="cpu")) == ["short-call"]


@pytest.mark.parametrize(
    ("traced", "measured", "says"),
    [("bbbb", "aaaa", ("bbbb", "aaaa")), ("", "aaaa", ("none", "aaaa"))],
)
def test_the_traced_graph_differs(traced: str, measured: str, says: tuple[str, ...]) -> None:
    assert measured == PROOF.graph_hash
    trace = replace(TRACE, graph_hash=traced)
    found = lacking(replace(TRACED, trace=trace))
    assert all(name in found for name in says)


def test_operators_on_another_provider_are_falling_back() -> None:
    split = replace(TRACED, outside={"Conv": 2, "Add": 1}, inside={"MatMul": 7})
    made = with_trace(MEASURED, split, device="cpu")
    assert made.status == "fell_back"
    assert made.proof is not None
    for text in (made.reason, made.proof.fell_back):
        assert "2 Conv" in text
        assert "1 Add" in text
    assert made.proof.operators_outside == {"Conv": 2, "Add": 1}
    assert made.proof.operators_inside == {"MatMul": 7}
    assert made.latency == MEASURED.latency, "its numbers are kept"


@pytest.mark.parametrize("status", ["parity_failed", "unstable"])
def test_falling_back_comes_before_what_else_is_wrong(status: str) -> None:
    wrong = measurement([1.0], status, "something else", proof=PROOF)
    assert with_trace(wrong, replace(TRACED, outside={"Conv": 1}), device="cpu").status == "fell_back"


@pytest.mark.parametrize("name", ["aten::slow_conv_dilated3d", "void at::native::vol2col_kernel<c10::BFloat16>"])
def test_a_convolution_that_no_library_took_is_told(name: str) -> None:
    trace = replace(TRACE, kernels=(KernelTime(name, 1.0, 900, False), *TRACE.kernels))
    made = with_trace(MEASURED, replace(TRACED, trace=trace), device="cpu")
    assert [finding.code for finding in made.findings] == ["known-issue"]
    assert name in made.findings[0].text
    assert made.status == "ok"
