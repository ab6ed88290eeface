"""After a variant is measured, in a process of its own: how long a warm build takes, and where a call's time goes.

The twin is built with `trace` set, which some compilers must be told when they build; nothing of it is timed for a
table. A twin that dies takes no measurement with it.
"""

import gc
import re

from bakeoff.backends.tracing import Trace
from bakeoff.process.jobs import MeasureJob, TraceJob, TraceResult
from bakeoff.record.schema import KernelTime, TraceRecord
from bakeoff.worker.build import BuiltEngine, StageError, build, call_stage
from bakeoff.worker.measure import cast_subject
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import load_subject
from bakeoff.worker.torch_flags import flags

_FP8 = re.compile("e4m3|e5m2|f8f8|fp8|float8|scaled_mm", re.IGNORECASE)
"""How kernels with float8 operands are named by cuBLAS (`e4m3`), CUTLASS (`f8f8bf16`) and TensorRT (`fp8`)."""
_SHOWN = 10


def trace_build(job: TraceJob, report: Report) -> TraceResult:
    """Raises BakeoffError only where the request itself is wrong (a bad checkpoint)."""
    measured = job.measure
    warm_s: float | None = None
    with flags(measured.dtype, measured.subject.threads):
        try:
            if job.rebuild:
                warm_s = _build(measured, report, trace=False).cost.build_s
                gc.collect()
            if not measured.policy.trace:
                return TraceResult(warm_s, None, {}, {})
            report("trace")
            built = _build(measured, report, trace=True)
            trace = call_stage(lambda: built.engine.trace(built.calls[0]))
            hashed = call_stage(built.engine.prove).graph_hash
            call_stage(built.engine.close)
        except StageError as stage:
            return TraceResult(warm_s, None, {}, {}, f"{stage.status}: {stage.reason}")
    return TraceResult(warm_s, _kept(trace, hashed), dict(trace.operators_outside), dict(trace.operators_inside))


def _build(job: MeasureJob, report: Report, trace: bool) -> BuiltEngine:
    report("weights")
    loaded = load_subject(job.subject)
    sets = cast_subject(loaded, job)[:1]
    report("build")
    return build(job, loaded, sets, trace)


def _kept(trace: Trace, graph_hash: str) -> TraceRecord:
    return TraceRecord(
        kernels=tuple(KernelTime(one.name, one.calls, one.ns, one.own) for one in trace.kernels[:_SHOWN]),
        kernel_count=len(trace.kernels),
        total_ns=trace.total_ns,
        named_ns=sum(one.ns for one in trace.kernels),
        own_ns=sum(one.ns for one in trace.kernels if one.own),
        graph_hash=graph_hash,
        fp8_ns=sum(one.ns for one in trace.kernels if _FP8.search(one.name)),
    )
