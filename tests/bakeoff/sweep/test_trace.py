"""What a traced twin adds to a measurement: a complete certificate, what one lacks, work that was done elsewhere."""

from dataclasses import replace

import pytest
from records import measurement

from bakeoff.process.jobs import TraceResult
from bakeoff.record.schema import Finding, KernelTime, Measurement, ProofRecord, TraceRecord
from bakeoff.sweep.trace import with_trace

PROOF = ProofRecord(graphs=1, operators_inside={"conv2d": 3}, operators_outside={"mm": 2}, graph_hash="aaaa")
MEASURED = measurement([1.0, 1.1], proof=PROOF)
TRACE = TraceRecord((KernelTime("cpp_fused_add", 1.0, 900, True),), 1, 1000, 900, 900, "aaaa")
TWIN = TraceResult(1.5, TRACE, {}, {})


def codes(made: Measurement) -> list[str]:
    return [finding.code for finding in made.findings]


def lacking(twin: TraceResult) -> str:
    """What the certificate lacks; the row's status and numbers are as they were, and a finding says the same."""
    made = with_trace(MEASURED, twin, traced=True)
    assert made.proof is not None
    assert (made.status, made.reason, made.latency) == (MEASURED.status, MEASURED.reason, MEASURED.latency)
    assert made.proof.fell_back == ""
    told = f"incomplete certificate: {made.proof.incomplete}"
    assert made.findings == (Finding("proof.incomplete", told),)
    return made.proof.incomplete


def test_a_complete_certificate() -> None:
    made = with_trace(MEASURED, TWIN, traced=True)
    assert made.proof == replace(PROOF, trace=TRACE)
    assert made.proof.incomplete == ""
    assert (made.status, made.findings) == ("ok", ())
    assert made.build is not None
    assert made.build.warm_s == 1.5


def test_no_twin() -> None:
    died = TraceResult(None, None, {}, {}, "killed by SIGSEGV in phase trace")
    assert lacking(died) == "no traced twin: killed by SIGSEGV in phase trace"
    made = with_trace(MEASURED, died, traced=True)
    assert made.build == MEASURED.build, "a warm build that was not made changes nothing"
    assert made.proof is not None
    assert made.proof.trace is None


@pytest.mark.parametrize(("named_ns", "says"), [(0, "0%"), (500, "50%"), (790, "79%")])
def test_too_little_of_the_time_is_named(named_ns: int, says: str) -> None:
    trace = replace(TRACE, named_ns=named_ns)
    assert lacking(replace(TWIN, trace=trace)) == f"the trace names {says} of the time, 80% are due"


def test_four_fifths_are_enough() -> None:
    made = with_trace(MEASURED, replace(TWIN, trace=replace(TRACE, named_ns=800)), traced=True)
    assert made.findings == ()


def test_a_trace_of_nothing_names_nothing() -> None:
    trace = replace(TRACE, kernels=(), total_ns=0, named_ns=0, own_ns=0)
    assert lacking(replace(TWIN, trace=trace)) == "the trace names 0% of the time, 80% are due"


@pytest.mark.parametrize(
    ("traced", "measured", "says"),
    [("bbbb", "aaaa", "(bbbb, measured aaaa)"), ("", "aaaa", "(none, measured aaaa)")],
)
def test_the_twin_is_another_graph(traced: str, measured: str, says: str) -> None:
    assert measured == PROOF.graph_hash
    trace = replace(TRACE, graph_hash=traced)
    assert lacking(replace(TWIN, trace=trace)) == f"the traced twin is another graph {says}"


def test_only_the_twin_knows_a_graph() -> None:
    unknown = measurement([1.0], proof=replace(PROOF, graph_hash=""))
    made = with_trace(unknown, TWIN, traced=True)
    assert made.proof is not None
    assert made.proof.incomplete == "the traced twin is another graph (aaaa, measured none)"


def test_operators_on_another_provider_are_falling_back() -> None:
    split = replace(TWIN, outside={"Conv": 2, "Add": 1}, inside={"MatMul": 7})
    made = with_trace(MEASURED, split, traced=True)
    assert made.status == "fell_back"
    assert made.reason == "what ran is partly another compiler or provider: 2 Conv, 1 Add"
    assert made.proof is not None
    assert made.proof.fell_back == "partly another compiler or provider: 2 Conv, 1 Add"
    assert made.proof.operators_outside == {"Conv": 2, "Add": 1}
    assert made.proof.operators_inside == {"MatMul": 7}
    assert made.latency == MEASURED.latency, "its numbers are kept"


@pytest.mark.parametrize("status", ["parity_failed", "unstable"])
def test_falling_back_comes_before_what_else_is_wrong(status: str) -> None:
    wrong = measurement([1.0], status, "something else", proof=PROOF)
    assert with_trace(wrong, replace(TWIN, outside={"Conv": 1}), traced=True).status == "fell_back"


def test_a_row_that_fell_back_keeps_its_reason() -> None:
    fallen = measurement([1.0], "fell_back", "what ran is eager", proof=replace(PROOF, fell_back="eager"))
    made = with_trace(fallen, replace(TWIN, outside={"Conv": 1}), traced=True)
    assert made.proof is not None
    assert (made.status, made.reason, made.proof.fell_back) == ("fell_back", "what ran is eager", "eager")
    assert made.proof.operators_outside == {"Conv": 1}


def test_findings_are_added_to_those_that_are_there() -> None:
    noted = replace(MEASURED, findings=(Finding("cold", "why"),))
    assert codes(with_trace(noted, replace(TWIN, trace=None, problem="timeout"), traced=True)) == [
        "cold",
        "proof.incomplete",
    ]


def test_where_no_trace_was_asked_for_nothing_is_lacking() -> None:
    made = with_trace(MEASURED, TraceResult(2.5, None, {}, {}), traced=False)
    assert made.build is not None
    assert made.build.warm_s == 2.5
    assert (made.proof, made.findings) == (PROOF, ())


def test_a_row_without_a_proof_stays_as_it_is() -> None:
    unproved = replace(MEASURED, proof=None)
    assert with_trace(unproved, replace(TWIN, warm_s=None), traced=True) == unproved


@pytest.mark.parametrize("name", ["aten::slow_conv_dilated3d", "void at::native::vol2col_kernel<c10::BFloat16>"])
def test_a_convolution_that_no_library_took_is_told(name: str) -> None:
    trace = replace(TRACE, kernels=(KernelTime(name, 1.0, 900, False), *TRACE.kernels))
    made = with_trace(MEASURED, replace(TWIN, trace=trace), traced=True)
    assert [finding.code for finding in made.findings] == ["slow-conv"]
    assert made.findings[0].text.startswith(f"{name} is ATen's own slow convolution")
    assert made.status == "ok"
