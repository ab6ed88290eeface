"""Which ATen operators a call dispatches, by torch's profiler: detects a graph that is run operator by operator."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

from bakeoff.backends.torch_internals import INDUCTOR_CALL, profile_every_thread

_NAMESPACE = "aten::"
_MOVES = ("clone",)
"""Tagged as pointwise, but only copy memory, which compiled code does too."""
_FEW = 8


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What one call dispatches from the host, on all of its threads."""

    operators: dict[str, int]
    """Each ATen operator with its count, nested ones included."""
    outermost: int
    """Count of ATen operators that were not called by another one."""
    elementwise: int
    """Count of the outermost operators that torch tags as pointwise, copies excepted."""
    inductor_calls: int = 0
    """Count of calls of graphs that inductor compiled."""


def dispatched(call: Callable[[], object]) -> Dispatched:
    """Run a call once under the profiler and count its operators."""
    with profile_every_thread() as recorded:
        call()
    operators: Counter[str] = Counter()
    outermost: Counter[str] = Counter()
    inductor_calls = 0
    for event in recorded.function_events:
        inductor_calls += event.name.startswith(INDUCTOR_CALL)
        if not event.name.startswith(_NAMESPACE):
            continue
        name = event.name.removeprefix(_NAMESPACE)
        operators[name] += 1
        parent = event.cpu_parent
        while parent is not None and not parent.name.startswith(_NAMESPACE):
            parent = parent.cpu_parent
        outermost[name] += parent is None
    elementwise = sum(count for name, count in outermost.items() if _is_elementwise(name))
    return Dispatched(dict(operators), outermost.total(), elementwise, inductor_calls)


@cache
def _is_elementwise(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or name in _MOVES:
        return False
    return any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())


def uncompiled(ran: Dispatched, eager: Dispatched) -> str | None:
    """What ran if no compiler worked on the call, as a noun phrase; None if one may have.

    Plain eager: the call dispatches each operator that eager does, nested ones included, at least as often. Composite
    operators such as `linear` and `conv2d` do not come out of a compiler.

    A graph run operator by operator, decomposed or not: the call dispatches at least half as many elementwise operators
    as eager. Fusing these is what a compiler does first: inductor and AOTInductor leave none of them, quantised or not,
    and runtimes with kernels of their own (ONNX Runtime, OpenVINO, TensorRT) dispatch nothing at all, while a
    decomposition adds some (`silu` becomes two). Half, because common subexpressions may have been removed. Only
    outermost operators count: those that a library's kernel dispatches itself (cuDNN's convolution adds its bias so)
    say nothing about the caller. Copies do not count: captured graphs copy inputs.

    Where eager has fewer than eight, a single one beside a compiled graph could be half: then all of them are required,
    and half as many operators of any kind. Where eager has none, nothing could be fused and the result is None. A CUDA
    graph that replays eager's kernels dispatches nothing: only a traced build names those.
    """
    if eager.operators and all(ran.operators.get(name, 0) >= count for name, count in eager.operators.items()):
        return f"eager: all {sum(eager.operators.values())} eager ATen operators were dispatched"
    if eager.elementwise < _FEW:
        unfused = ran.elementwise >= eager.elementwise > 0 and 2 * ran.outermost >= eager.outermost
    else:
        unfused = 2 * ran.elementwise >= eager.elementwise
    if not unfused:
        return None
    return (
        f"a graph run operator by operator: {ran.elementwise} elementwise ATen operators were dispatched "
        f"({eager.elementwise} by eager), which a compiler would have fused"
    )
