"""What a record keeps of a trace."""

import pytest

pytest.importorskip("torch", reason="workers need it")

from bakeoff.backends.tracing import DeviceTime, Kernel, Trace
from bakeoff.worker.trace import _trace_record

KERNELS = (Kernel("triton_poi_fused_add_0", 2.0, 700, True), Kernel("sm90_xmma_gemm_e4m3", 1.0, 200, False))


def test_on_a_cpu_the_named_time_is_that_of_all_kernels() -> None:
    kept = _trace_record(Trace(KERNELS, 1000), "hash")
    assert (kept.total_ns, kept.named_ns, kept.own_ns, kept.fp8_ns) == (1000, 900, 700, 200)
    assert (kept.span_ns, kept.busy_ns, kept.kernel_count, kept.graph_hash) == (0, 0, 2, "hash")


def test_on_a_gpu_kernels_that_overlap_are_named_once() -> None:
    kept = _trace_record(Trace(KERNELS, 1000, device=DeviceTime(span_ns=3000, busy_ns=720, named_ns=750)), "hash")
    assert (kept.total_ns, kept.named_ns, kept.span_ns, kept.busy_ns) == (1000, 750, 3000, 720)
    assert kept.own_ns == 700
