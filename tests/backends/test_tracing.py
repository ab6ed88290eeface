"""Traces: kernels by name with their time in a call, without events that only enclose others.

The events of a GPU are torch's own objects, with the fields that its parser sets (torch/autograd/profiler.py,
_parse_kineto_results, 2.13): a kernel, copy or fill is an event of device type CUDA whose thread is its stream; the
operator that launched it, found by its correlation id, has it in `kernels`; a `record_function` range appears a second
time, on the device, as a user annotation; a graph's kernels are those of the operator that launched the graph.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the profiler is torch's")

import torch
from torch.autograd.profiler_util import EventList, FunctionEvent
from torch.profiler import DeviceType

from bakeoff.backends import tracing
from bakeoff.backends.tracing import TRACED_CALLS, DeviceTime, Kernel, Trace, gpu_trace, trace_operators

LEFT, RIGHT = torch.ones(400, 400), torch.ones(400, 400)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return trace_operators(lambda: (torch.relu(LEFT @ RIGHT) @ RIGHT,))


def named(trace: Trace, name: str) -> Kernel:
    (found,) = (kernel for kernel in trace.kernels if kernel.name == name)
    return found


def test_counts_calls_of_one_call(trace: Trace) -> None:
    assert named(trace, "aten::mm").calls == 2
    assert named(trace, "aten::relu").calls == 1


def test_the_longest_comes_first_and_all_fit_into_the_call(trace: Trace) -> None:
    assert trace.kernels[0].name == "aten::mm"
    times = [kernel.ns for kernel in trace.kernels]
    assert times == sorted(times, reverse=True)
    assert 0 < sum(times) <= trace.total_ns


def test_the_compilers_own_are_told_by_how_their_names_begin() -> None:
    def call() -> tuple[torch.Tensor]:
        with torch.autograd.profiler.record_function("cpp_fused_add_0"):
            return (LEFT + RIGHT,)

    own = {kernel.name: kernel.own for kernel in trace_operators(call, ("cpp_",)).kernels}
    assert own["cpp_fused_add_0"] is True
    assert own["aten::add"] is False


@pytest.mark.parametrize("wrapper", ["## Call CompiledFxGraph x ##", "inductor_wrapper_call", "forward"])
def test_what_only_wraps_other_work_is_no_kernel(wrapper: str) -> None:
    def call() -> tuple[torch.Tensor]:
        with torch.autograd.profiler.record_function(wrapper):
            return (LEFT @ RIGHT,)

    assert all(kernel.name != wrapper for kernel in trace_operators(call).kernels)


class Timeline:
    """Events of TRACED_CALLS equal calls on a GPU, 5 ms apart, each after a kernel that keeps the GPU busy."""

    def __init__(self) -> None:
        self.events = EventList(use_device="cuda")
        for call in range(TRACED_CALLS):
            self._add("void at::cuda::(anonymous namespace)::spin_kernel(long)", call * 5000 - 900, 800)

    def _add(self, name: str, start_us: float, us: float, **more: Any) -> FunctionEvent:
        made = FunctionEvent(
            id=len(self.events) + 1,
            name=name,
            thread=more.pop("stream", 7),
            start_us=start_us,
            end_us=start_us + us,
            use_device="cuda",
            device_type=more.pop("device_type", DeviceType.CUDA),
            **more,
        )
        self.events.append(made)
        return made

    def kernel(self, name: str, start_us: float, us: float, stream: int = 7, operators: tuple[str, ...] = ()) -> None:
        """A kernel of each call, launched by the innermost of `operators`, if by any."""
        for call in range(TRACED_CALLS):
            self._add(name, call * 5000 + start_us, us, stream=stream)
            for depth, operator in enumerate(operators):
                launch = call * 5000 - 500 + start_us / 10 + depth / 1000
                made = self._add(operator, launch, 0.1 - depth / 500, stream=1, device_type=DeviceType.CPU)
                if depth == len(operators) - 1:
                    made.append_kernel(name, 0, us)

    def launched(self, name: str, start_us: float, us: float, launch_us: float) -> None:
        """A kernel of each call whose launch, which has the kernel's correlation id, returned at `launch_us`."""
        for call in range(TRACED_CALLS):
            kernel = self._add(name, call * 5000 + start_us, us)
            launch = self._add("cudaLaunchKernel", call * 5000 + launch_us - 5, 5, stream=1, device_type=DeviceType.CPU)
            launch.id = kernel.id

    def annotation(self, name: str, start_us: float, us: float) -> None:
        for call in range(TRACED_CALLS):
            self._add(name, call * 5000 + start_us, us, is_user_annotation=True)

    def trace(self, span_us: float, total_us: float, **asked: Any) -> Trace:
        self.events._build_tree()
        return gpu_trace(self.events, round(span_us * 1000), [total_us * 1000] * TRACED_CALLS, **asked)


def share_named(trace: Trace) -> float:
    assert trace.device
    return trace.device.named_ns / trace.total_ns


class TestOfAGpu:
    def test_kernels_by_name_without_what_only_encloses_them(self) -> None:
        timeline = Timeline()
        timeline.kernel("triton_poi_fused_add_0", 0, 100)
        timeline.kernel("sm90_xmma_gemm_bf16bf16", 102, 50, operators=("aten::mm",))
        timeline.kernel("Memcpy DtoD (Device -> Device)", 154, 10, operators=("aten::copy_",))
        timeline.annotation("## Call CompiledFxGraph x ##", 0, 164)
        timeline.annotation("my range", 0, 164)
        trace = timeline.trace(200, 165, own=("triton_",))
        assert trace.kernels == (
            Kernel("triton_poi_fused_add_0", 1, 100_000, own=True),
            Kernel("sm90_xmma_gemm_bf16bf16", 1, 50_000, own=False),
            Kernel("Memcpy DtoD (Device -> Device)", 1, 10_000, own=False),
        )
        assert trace.total_ns == 165_000
        assert trace.device == DeviceTime(span_ns=200_000, busy_ns=160_000, named_ns=164_000)

    def test_a_wait_for_a_late_launch_is_no_time_of_the_call(self) -> None:
        """As on an H200: the queue holds some thousand kernels, and each later one waits for the host's launch."""
        timeline = Timeline()
        timeline.launched("queued", 0, 10, launch_us=-500)
        timeline.launched("late", 62, 10, launch_us=60)
        timeline.launched("queued", 74, 10, launch_us=70)
        timeline.launched("unexplained", 134, 10, launch_us=71)
        trace = timeline.trace(300, 146)
        assert trace.total_ns == 96_000, "146 us less the 50 in which nothing was queued"
        assert trace.device == DeviceTime(span_ns=300_000, busy_ns=40_000, named_ns=44_000)

    def test_a_first_call_that_the_profiler_lengthens_is_no_part_of_the_figures(self) -> None:
        """With the mean of five calls more would be named than a call takes: 282.4 of 203 us."""
        timeline = Timeline()
        for call in range(TRACED_CALLS):
            us, pause = (300, 4) if call == 0 else (100, 2)
            timeline._add("one", call * 5000, us)
            timeline._add("two", call * 5000 + us + pause, us)
        timeline.events._build_tree()
        trace = gpu_trace(timeline.events, 210_000, [700_000.0, *[203_000.0] * (TRACED_CALLS - 1)])
        assert trace.total_ns == 203_000
        assert trace.device == DeviceTime(span_ns=210_000, busy_ns=200_000, named_ns=202_000)
        assert [kernel.ns for kernel in trace.kernels] == [100_000, 100_000], "they add up to the busy time"

    def test_streams_that_overlap_count_once(self) -> None:
        timeline = Timeline()
        timeline.kernel("left", 0, 100)
        timeline.kernel("right", 20, 60, stream=13)
        timeline.kernel("last", 90, 30, stream=13)
        trace = timeline.trace(120, 120)
        assert trace.device == DeviceTime(span_ns=120_000, busy_ns=120_000, named_ns=120_000)
        assert sum(kernel.ns for kernel in trace.kernels) == 190_000

    def test_a_kernel_within_a_region_is_the_compilers_own_whatever_its_name(self) -> None:
        """Directly, and by an operator that an engine's operator calls; the same kernel of PyTorch is not."""
        timeline = Timeline()
        engine = "tensorrt::execute_engine"
        timeline.kernel("sm90_xmma_gemm_bf16bf16", 0, 100, operators=(engine,))
        timeline.kernel("sm90_xmma_gemm_bf16bf16", 100, 30, operators=("aten::mm",))
        timeline.kernel("Memcpy DtoD (Device -> Device)", 130, 20, operators=(engine, "aten::copy_"))
        timeline.kernel("__myl_Fc", 150, 10)
        trace = timeline.trace(160, 160, own=("__myl",), own_regions=(engine,))
        assert trace.kernels == (
            Kernel("sm90_xmma_gemm_bf16bf16", 1, 100_000, own=True),
            Kernel("sm90_xmma_gemm_bf16bf16", 1, 30_000, own=False),
            Kernel("Memcpy DtoD (Device -> Device)", 1, 20_000, own=True),
            Kernel("__myl_Fc", 1, 10_000, own=True),
        )


class FakeEvent:
    """torch.cuda.Event on a device whose clock is in `now_ms`."""

    now_ms = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = 0.0

    def record(self) -> None:
        self.at = FakeEvent.now_ms

    def elapsed_time(self, end: "FakeEvent") -> float:
        return end.at - self.at


def test_a_gpu_is_timed_by_events_and_delayed_while_a_call_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary call takes 5 ms, of which the device waits 3 for the host; a delayed one takes 2."""
    delays: list[int] = []
    asked: list[dict[str, Any]] = []
    timeline = Timeline()
    timeline.kernel("triton_poi_fused_add_0", 0, 1500)

    def call() -> tuple[Any, ...]:
        FakeEvent.now_ms += 2 if delays else 5
        return (SimpleNamespace(is_cuda=True),)

    @contextmanager
    def profile(**given: Any) -> Iterator[Any]:
        asked.append(given)
        yield SimpleNamespace(function_events=timeline.events)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(tracing, "occupy_gpu", delays.append)
    monkeypatch.setattr(torch.autograd.profiler, "profile", profile)
    trace = trace_operators(call, ("triton_",))
    assert asked == [{"use_device": "cuda", "use_kineto": True}], "without kineto there are no kernels"
    assert len(delays) == TRACED_CALLS
    assert all(1_000_000 <= delay <= 500_000_000 for delay in delays)
    assert trace.total_ns == 2_000_000
    assert trace.device
    assert trace.device.span_ns == 5_000_000
    assert [(kernel.name, kernel.own) for kernel in trace.kernels] == [("triton_poi_fused_add_0", True)]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_real_gpu_names_its_time() -> None:
    left = torch.ones(2048, 2048, device="cuda")
    trace = trace_operators(lambda: (torch.relu(left @ left) @ left,), own_regions=("aten::relu",))
    assert sum(kernel.calls for kernel in trace.kernels) == 3
    assert [kernel.calls for kernel in trace.kernels if kernel.own] == [1]
    assert 0.8 <= share_named(trace) <= 1.1
    assert trace.device
    assert trace.device.busy_ns <= trace.device.named_ns


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_more_kernels_than_a_gpu_queues_are_named() -> None:
    value = torch.ones(64, 64, device="cuda")

    def call() -> tuple[torch.Tensor]:
        found = value
        for _ in range(2000):
            found = found * 1.0001
        return (found,)

    assert 0.8 <= share_named(trace_operators(call)) <= 1.1
