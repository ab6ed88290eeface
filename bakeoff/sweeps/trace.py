"""What a traced build adds to a measurement: the warm build, kernels, and whether the proof is complete."""

import re
from dataclasses import replace

from bakeoff.process.jobs import TraceResult
from bakeoff.record.schema import Finding, Measurement, ProofRecord, TraceRecord, new_finding
from bakeoff.record.short_calls import UNNAMED_NS, short_call

LEAST_NAMED = 0.8
"""Share of a traced call that must be in named kernels."""
_SLOW_CONV = re.compile("slow_conv_dilated|vol2col")
"""Kernels that run where no library takes a convolution (aten/src/ATen/native/NaiveDilatedConvolution.cpp)."""


def with_trace(measurement: Measurement, traced: TraceResult, wanted: bool, device: str) -> Measurement:
    """The measurement with the cost of a warm build and, where a trace is `wanted`, its kernels.

    Its status becomes `fell_back` where operators ran elsewhere than in the requested compiler or provider, or where
    something ran instead of what was prepared. On a CPU, a trace that names too little only because the call is short
    gives the finding `short-call`, once for all that follows from it.
    """
    made = measurement
    if made.build is not None and traced.rebuilt:
        made = replace(made, build=replace(made.build, warm_s=traced.warm_s, warm_cpu_s=traced.warm_cpu_s))
    if not wanted or made.proof is None:
        return made
    incomplete = _incomplete(made.proof, traced)
    proof = replace(
        made.proof,
        trace=traced.trace,
        incomplete=incomplete,
        operators_inside=traced.inside or made.proof.operators_inside,
        operators_outside=traced.outside or made.proof.operators_outside,
    )
    instead = traced.instead
    if traced.outside:
        elsewhere = ", ".join(f"{count} {name}" for name, count in traced.outside.items())
        instead = f"another compiler or provider for some operators: {elsewhere}"
    if instead and made.status != "fell_back":
        proof = replace(proof, fell_back=instead)
        made = replace(made, status="fell_back", reason=f"ran {proof.fell_back}")
    short = bool(incomplete) and device == "cpu" and _is_short(proof, traced.trace)
    findings = [*made.findings, *_findings(traced, "" if short else incomplete)]
    if short and short_call() not in findings:
        findings.append(short_call())
    return replace(made, proof=proof, findings=tuple(findings))


def _findings(traced: TraceResult, incomplete: str) -> list[Finding]:
    found = []
    if incomplete:
        found.append(new_finding("proof.incomplete", f"the proof is incomplete: {incomplete}"))
    slow = [kernel.name for kernel in traced.trace.kernels if _SLOW_CONV.search(kernel.name)] if traced.trace else []
    if slow:
        text = f"{slow[0]} is ATen's own slow convolution: cuDNN or oneDNN refused its shape, dtype or layout"
        found.append(new_finding("slow-conv", text))
    return found


def _is_short(proof: ProofRecord, trace: TraceRecord | None) -> bool:
    """Whether the proof lacks nothing but named kernels, and that because the call is short."""
    if trace is None or proof.graph_hash != trace.graph_hash:
        return False
    return trace.named_ns > 0 and trace.total_ns - trace.named_ns <= UNNAMED_NS


def _incomplete(proof: ProofRecord, traced: TraceResult) -> str:
    """Why the proof is incomplete; "" if it is complete."""
    trace = traced.trace
    if trace is None:
        return f"no traced build: {traced.problem}"
    if proof.graph_hash != trace.graph_hash:
        hashes = f"{trace.graph_hash or 'none'}, measured {proof.graph_hash or 'none'}"
        return f"the traced build has another graph ({hashes})"
    named = trace.named_ns / trace.total_ns if trace.total_ns else 0.0
    if named < LEAST_NAMED:
        percent = trace.named_ns * 100 // max(trace.total_ns, 1)  # rounded down: 79.9 % must not read as enough
        return f"{percent}% of the traced time is in named kernels, at least {LEAST_NAMED:.0%} are required"
    return ""
