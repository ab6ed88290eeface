"""Traces: kernels by name with their time in a call, without events that only enclose others."""

import pytest

pytest.importorskip("torch", reason="the profiler is torch's")

import torch

from bakeoff.backends.tracing import Kernel, Trace, trace_operators

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


def test_the_frameworks_operators_are_no_compilers_own(trace: Trace) -> None:
    assert not any(kernel.own for kernel in trace.kernels)


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


@pytest.mark.parametrize("wrappers", [(), ("mine::",)])
def test_a_backend_may_name_wrappers_of_its_own(wrappers: tuple[str, ...]) -> None:
    def call() -> tuple[torch.Tensor]:
        with torch.autograd.profiler.record_function("mine::run"):
            return (LEFT @ RIGHT,)

    names = {kernel.name for kernel in trace_operators(call, (), wrappers).kernels}
    assert "aten::mm" in names
    assert ("mine::run" in names) is not bool(wrappers)
