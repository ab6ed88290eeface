"""Traces the kernels of a call, after the timing.

Some compilers can be profiled only if that is requested at build time: then a second engine, which is never timed, is
built for it in the same process. If that build or the trace fails, the measurement stays as it is.
"""

import re
from dataclasses import replace

from bakeoff.backends import resolve_backend
from bakeoff.backends.tracing import Trace
from bakeoff.process.jobs import NOTHING_TRACED, MeasureJob, TraceJob, TraceResult
from bakeoff.record.schema import KernelTime, TraceRecord
from bakeoff.worker.build import BuiltEngine, build_engine
from bakeoff.worker.checked_variant import ran_instead
from bakeoff.worker.failures import StageError, call_stage
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import cast_subject, load_subject
from bakeoff.worker.torch_flags import flags, one_thread

_FP8 = re.compile("e4m3|e5m2|f8f8|fp8|float8|scaled_mm", re.IGNORECASE)
"""Names of kernels with float8 operands in cuBLAS (`e4m3`), CUTLASS (`f8f8bf16`) and TensorRT (`fp8`)."""
_STORED = 10
"""Number of kernels that a record lists, the longest first."""


def trace_measured(job: MeasureJob, built: BuiltEngine, report: Report) -> TraceResult | None:
    """Trace the engine that was timed; return None if no trace is requested, or if tracing needs a build of its own."""
    same_when_traced = resolve_backend(job.steps[-1].backend).same_when_traced
    if not job.policy.trace or job.subject.device not in same_when_traced:
        return None
    report("trace")
    try:
        return _traced(built)
    except StageError as stage:
        return _failed(stage)


def trace_build(job: TraceJob, report: Report) -> TraceResult:
    """Build the variant, and trace a call of it if the policy asks for a trace.

    A failure, as for want of memory, is the result's `problem`: the variant may have been measured.
    """
    measured = job.measure
    with flags(measured.dtype, measured.subject.threads, search=measured.subject.device == "cuda"):
        try:
            report("traced build")
            with one_thread(measured.overlapped):
                loaded = call_stage(lambda: load_subject(measured.subject))
                sets = call_stage(lambda: cast_subject(loaded, measured.dtype, measured.subject.device))[:1]
            built = build_engine(measured, loaded, sets, measured.policy.trace, report)
            if not measured.policy.trace:
                return NOTHING_TRACED
            report("trace")
            found = _traced(built)
            call_stage(built.engine.close)
            return found
        except StageError as stage:
            return _failed(stage)


def _traced(built: BuiltEngine) -> TraceResult:
    """Trace a call of the built engine. Raises StageError if the call or the profiler fails."""
    trace = call_stage(lambda: built.engine.trace(built.calls[0]))
    graph_hash = call_stage(built.engine.prove).graph_hash
    instead = ran_instead(built.prepared, (kernel.name for kernel in trace.kernels), bool(trace.kernels))
    record = _trace_record(trace, graph_hash)
    return TraceResult(record, dict(trace.operators_outside), dict(trace.operators_inside), instead=instead)


def _failed(stage: StageError) -> TraceResult:
    return replace(NOTHING_TRACED, problem=f"{stage.status}: {stage.reason}")


def _trace_record(trace: Trace, graph_hash: str) -> TraceRecord:
    device = trace.device
    return TraceRecord(
        kernels=tuple(
            KernelTime(kernel.name, kernel.calls, kernel.ns, kernel.own) for kernel in trace.kernels[:_STORED]
        ),
        kernel_count=len(trace.kernels),
        total_ns=trace.total_ns,
        named_ns=device.named_ns if device else sum(kernel.ns for kernel in trace.kernels),
        own_ns=sum(kernel.ns for kernel in trace.kernels if kernel.own),
        graph_hash=graph_hash,
        fp8_ns=sum(kernel.ns for kernel in trace.kernels if _FP8.search(kernel.name)),
        span_ns=device.span_ns if device else 0,
        busy_ns=device.busy_ns if device else 0,
    )
