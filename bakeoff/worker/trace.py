"""Traces the kernels of a call and times a warm build, after the timing, in the same process or in another.

Some compilers can be profiled only if that is requested at build time: then a traced build, which is never timed, is
made in a fresh process. If the caches were cold, a fresh process builds again to time a warm build. If a build or trace
fails, the measurement stays as it is.
"""

import gc
import re
from dataclasses import replace

from bakeoff.backends import resolve_backend
from bakeoff.backends.tracing import Trace
from bakeoff.process.jobs import NOTHING_TRACED, MeasureJob, TraceJob, TraceResult
from bakeoff.record.schema import BuildCost, KernelTime, TraceRecord
from bakeoff.worker.build import BuiltEngine, build_engine
from bakeoff.worker.checked_variant import ran_instead
from bakeoff.worker.failures import StageError, call_stage
from bakeoff.worker.reporter import Report, Turn, at_once
from bakeoff.worker.subject import cast_subject, load_subject
from bakeoff.worker.torch_flags import flags, one_thread

_FP8 = re.compile("e4m3|e5m2|f8f8|fp8|float8|scaled_mm", re.IGNORECASE)
"""Names of kernels with float8 operands in cuBLAS (`e4m3`), CUTLASS (`f8f8bf16`) and TensorRT (`fp8`)."""
_STORED = 10
"""Number of kernels that a record lists, the longest first."""


def trace_measured(job: MeasureJob, built: BuiltEngine, report: Report) -> TraceResult | None:
    """Trace the engine that was timed; return None if no trace is requested, or if tracing needs a build of its own."""
    if not job.policy.trace or not _same_when_traced(job):
        return None
    report("trace")
    try:
        return _traced(built)
    except StageError as stage:
        return _failed(stage)


def trace_build(job: TraceJob, report: Report, turn: Turn = at_once) -> TraceResult:
    """Build again to time a warm build if requested, then trace a call if requested, in a build that can be traced.

    Waits for `turn` before the trace. A failure of the variant's own code, or a build without caches, is the result's
    `problem`. Raises BakeoffError only if the request itself is wrong (a bad checkpoint).
    """
    measured = job.measure
    warm, gone = BuildCost("none", None), ""
    built: BuiltEngine | None = None
    with flags(measured.dtype, measured.subject.threads, search=measured.subject.device == "cuda"):
        try:
            if job.rebuild:
                built = _build(measured, report, trace=False)
                if built.cost.cache == "cold":
                    gone = "the caches that the first build left were gone"
                else:
                    warm = built.cost
            if measured.policy.trace:
                if built is None or not _same_when_traced(measured):
                    built = None
                    gc.collect()
                    built = _build(measured, report, trace=True)
                turn()
                report("trace")
                found = _traced(built)
                call_stage(built.engine.close)
            else:
                found = NOTHING_TRACED
        except StageError as stage:
            found = _failed(stage)
    return replace(found, warm_s=warm.build_s, warm_cpu_s=warm.cpu_s, problem=found.problem or gone)


def _traced(built: BuiltEngine) -> TraceResult:
    """Trace a call of the built engine. Raises StageError if the call or the profiler fails."""
    trace = call_stage(lambda: built.engine.trace(built.calls[0]))
    graph_hash = call_stage(built.engine.prove).graph_hash
    instead = ran_instead(built.prepared, (kernel.name for kernel in trace.kernels), bool(trace.kernels))
    record = _trace_record(trace, graph_hash)
    return TraceResult(None, record, dict(trace.operators_outside), dict(trace.operators_inside), instead=instead)


def _failed(stage: StageError) -> TraceResult:
    return replace(NOTHING_TRACED, problem=f"{stage.status}: {stage.reason}")


def _same_when_traced(job: MeasureJob) -> bool:
    """Return whether builds of the last backend can be traced on this device without being built for tracing."""
    return job.subject.device in resolve_backend(job.steps[-1].backend).evidence.same_when_traced


def _build(job: MeasureJob, report: Report, trace: bool) -> BuiltEngine:
    report("weights")
    with one_thread(job.overlapped):
        loaded = load_subject(job.subject)
        sets = cast_subject(loaded, job.dtype, job.subject.device)[:1]
    report("build")
    return build_engine(job, loaded, sets, trace)


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
