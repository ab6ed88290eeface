"""What a record keeps of a trace, and how many builds that takes."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="workers need it")

from bakeoff.backends.backend import Prepared, Proof
from bakeoff.backends.tracing import DeviceTime, Kernel, Trace
from bakeoff.record.schema import BuildCost
from bakeoff.worker import trace
from bakeoff.worker.trace import _trace_record, trace_build

KERNELS = (Kernel("triton_poi_fused_add_0", 2.0, 700, True), Kernel("sm90_xmma_gemm_e4m3", 1.0, 200, False))


def test_on_a_cpu_the_named_time_is_that_of_all_kernels() -> None:
    kept = _trace_record(Trace(KERNELS, 1000), "hash")
    assert (kept.total_ns, kept.named_ns, kept.own_ns, kept.fp8_ns) == (1000, 900, 700, 200)
    assert (kept.span_ns, kept.busy_ns, kept.kernel_count, kept.graph_hash) == (0, 0, 2, "hash")


def test_on_a_gpu_kernels_that_overlap_are_named_once() -> None:
    kept = _trace_record(Trace(KERNELS, 1000, device=DeviceTime(span_ns=3000, busy_ns=720, named_ns=750)), "hash")
    assert (kept.total_ns, kept.named_ns, kept.span_ns, kept.busy_ns) == (1000, 750, 3000, 720)
    assert kept.own_ns == 700


@pytest.mark.parametrize("build_s", [1.5, None])
@pytest.mark.parametrize(
    ("backend", "device", "rebuild", "traced", "builds"),
    [
        ("tensorrt", "cuda", True, True, [False]),
        ("tensorrt-aot", "cuda", True, True, [False]),
        ("inductor", "cuda", True, True, [False]),
        ("aoti", "cuda", True, True, [False]),
        ("inductor", "cpu", True, True, [False]),
        ("eager", "cpu", True, True, [False]),
        ("openvino", "cpu", True, True, [False, True]),
        ("onnxruntime", "cuda", True, True, [False, True]),
        ("tensorrt", "cuda", False, True, [True]),
        ("tensorrt", "cuda", True, False, [False]),
    ],
)
def test_the_warm_build_is_traced_where_a_traced_one_is_the_same(
    backend: str,
    device: str,
    rebuild: bool,
    traced: bool,
    builds: list[bool],
    build_s: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[bool] = []
    module: Any = None

    def build(_job: Any, _report: Any, trace: bool) -> Any:
        made.append(trace)
        engine = SimpleNamespace(
            trace=lambda _call: Trace(KERNELS, 1000), prove=lambda: Proof(graph_hash="aa"), close=lambda: None
        )
        return SimpleNamespace(
            engine=engine, calls=[None], cost=BuildCost("warm", build_s, cpu_s=2.5), prepared=Prepared(module)
        )

    monkeypatch.setattr(trace, "_build", build)
    measured = SimpleNamespace(
        dtype="bf16",
        subject=SimpleNamespace(device=device, threads=1),
        policy=SimpleNamespace(trace=traced),
        steps=[SimpleNamespace(backend="fp8"), SimpleNamespace(backend=backend)],
    )
    job: Any = SimpleNamespace(measure=measured, rebuild=rebuild)
    result = trace_build(job, lambda *_stage: None)
    assert made == builds
    assert (result.warm_s, result.warm_cpu_s) == ((build_s, 2.5) if rebuild else (None, None))
    assert result.rebuilt is rebuild
    assert (result.trace is not None) is traced


def test_a_second_build_without_the_first_ones_caches_is_no_warm_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may have been cleared while a sweep was interrupted."""
    cold = SimpleNamespace(cost=BuildCost("cold", 4.4, cpu_s=4.0))
    monkeypatch.setattr(trace, "_build", lambda *_given, **_settings: cold)
    measured = SimpleNamespace(
        dtype="fp32", subject=SimpleNamespace(device="cpu", threads=1), policy=SimpleNamespace(trace=False)
    )
    job: Any = SimpleNamespace(measure=measured, rebuild=True)
    found = trace_build(job, lambda *_stage: None)
    assert (found.warm_s, found.rebuilt) == (None, False)
    assert found.problem == "the caches that the first build left were gone"
