"""What a record keeps of a trace, and how many builds that takes."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="workers need it")

from bakeoff.backends.backend import Prepared, Proof
from bakeoff.backends.tracing import DeviceTime, Kernel, Trace
from bakeoff.worker import trace
from bakeoff.worker.trace import _trace_record, trace_build, trace_measured

KERNELS = (Kernel("triton_poi_fused_add_0", 2.0, 700, True), Kernel("sm90_xmma_gemm_e4m3", 1.0, 200, False))


def test_on_a_cpu_the_named_time_is_that_of_all_kernels() -> None:
    kept = _trace_record(Trace(KERNELS, 1000), "hash")
    assert (kept.total_ns, kept.named_ns, kept.own_ns, kept.fp8_ns) == (1000, 900, 700, 200)
    assert (kept.span_ns, kept.busy_ns, kept.kernel_count, kept.graph_hash) == (0, 0, 2, "hash")


def test_on_a_gpu_kernels_that_overlap_are_named_once() -> None:
    kept = _trace_record(Trace(KERNELS, 1000, device=DeviceTime(span_ns=3000, busy_ns=720, named_ns=750)), "hash")
    assert (kept.total_ns, kept.named_ns, kept.span_ns, kept.busy_ns) == (1000, 750, 3000, 720)
    assert kept.own_ns == 700


@pytest.mark.parametrize("traced", [True, False])
def test_an_engine_that_is_built_apart_is_traced_if_asked_for(traced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    module: Any = None

    def build(_job: Any, _loaded: Any, _sets: Any, trace: bool, _report: Any) -> Any:
        made.append(trace)
        engine = SimpleNamespace(
            trace=lambda _call: Trace(KERNELS, 1000), prove=lambda: Proof(graph_hash="aa"), close=lambda: None
        )
        return SimpleNamespace(engine=engine, calls=[None], prepared=Prepared(module))

    monkeypatch.setattr(trace, "load_subject", lambda _subject: None)
    monkeypatch.setattr(trace, "cast_subject", lambda _loaded, _dtype, _device: [{}])
    monkeypatch.setattr(trace, "build_engine", build)
    measured = SimpleNamespace(
        dtype="bf16",
        overlapped=False,
        subject=SimpleNamespace(device="cpu", threads=1),
        policy=SimpleNamespace(trace=traced),
    )
    job: Any = SimpleNamespace(measure=measured)
    result = trace_build(job, lambda *_stage: None)
    assert made == [traced]
    assert (result.trace is not None) is traced


@pytest.mark.parametrize(
    ("backend", "device", "as_timed"),
    [
        ("tensorrt", "cuda", True),
        ("tensorrt-aot", "cuda", True),
        ("inductor", "cuda", True),
        ("aoti", "cuda", True),
        ("inductor", "cpu", True),
        ("eager", "cpu", True),
        ("openvino", "cpu", False),
        ("onnxruntime", "cuda", False),
    ],
)
def test_the_engine_that_was_timed_is_traced_where_a_traced_one_is_the_same(
    backend: str, device: str, as_timed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "_traced", lambda built: built)
    steps = [SimpleNamespace(backend="fp8"), SimpleNamespace(backend=backend)]
    policy = SimpleNamespace(trace=True)
    job: Any = SimpleNamespace(subject=SimpleNamespace(device=device), steps=steps, policy=policy)
    built: Any = "the engine"
    assert trace_measured(job, built, lambda _phase, _detail="": None) == (built if as_timed else None)


def test_what_was_measured_is_kept_where_memory_runs_out_as_the_traced_engine_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load(_subject: Any) -> Any:
        raise MemoryError

    phases: list[str] = []
    monkeypatch.setattr(trace, "load_subject", load)
    subject = SimpleNamespace(device="cpu", threads=1)
    measured = SimpleNamespace(
        dtype="fp32", subject=subject, policy=SimpleNamespace(trace=True), overlapped=False, steps=[]
    )
    job: Any = SimpleNamespace(measure=measured)
    found = trace_build(job, lambda phase, _detail="": phases.append(phase))
    assert (found.trace, found.problem.partition(":")[0]) == (None, "oom")
    assert phases == ["traced build"], "a worker that is killed here is run again without a trace"
