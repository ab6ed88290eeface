"""What a call dispatches from the host, by torch's own profiler; a graph run operator by operator is found by it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.autograd.profiler import profile

_NAMESPACE = "aten::"
_INDUCTOR = "## Call CompiledFxGraph"
"""How the name begins that inductor gives each call of a graph it compiled (torch/_inductor/output_code.py)."""
_MOVES = ("clone",)
"""Tagged as elementwise, and only move memory, which compilers do too."""
_FEW = 8


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What one call dispatches from the host, on whichever of its threads."""

    operators: dict[str, int]
    """ATen operators with their number, nested ones too."""
    outermost: int
    """ATen operators that no other one called."""
    elementwise: int
    """Those of the outermost that torch itself tags as elementwise, but for copies."""
    inductor_calls: int = 0
    """Graphs that inductor compiled."""


def dispatched(call: Callable[[], object]) -> Dispatched:
    """Run a call once and count."""
    every_thread = _ExperimentalConfig(profile_all_threads=True)
    with profile(experimental_config=every_thread) as recorded:  # torch.profiler's would import inductor: a second
        call()
    operators: Counter[str] = Counter()
    outermost: Counter[str] = Counter()
    inductor_calls = 0
    for event in recorded.function_events:
        inductor_calls += event.name.startswith(_INDUCTOR)
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


def uncompiled(ran: Dispatched, eager: Dispatched) -> str:
    """What a call is that no compiler worked on, or "".

    Plain eager: it runs each operator that eager runs, nested ones too, as often at least. Composite operators such as
    `linear` and `conv2d` come out of no compiler.

    A graph run operator by operator, decomposed or not: it dispatches half as many elementwise operators as eager or
    more. Fusing these is what a compiler does first: inductor and AOTInductor leave not one of them, quantised or not,
    and runtimes with kernels of their own (ONNX Runtime, OpenVINO, TensorRT) dispatch nothing at all, while a
    decomposition only makes more of them (`silu` becomes two). Half, because whoever runs a graph may have removed
    common ones before. Only outermost operators count: what a library's kernel dispatches within itself (cuDNN's
    convolution adds its bias so) says nothing about who called it. Copies do not count: captured graphs copy inputs.

    Where eager has few of them, a stray one beside the compiled graph could be half: then it takes them all, and half
    as many operators of any kind. Where eager has none, nothing could be fused and nothing is said. A graph of eager's
    kernels that is replayed by the device (CUDA graphs) dispatches nothing: only a traced twin names those.
    """
    if eager.operators and all(ran.operators.get(name, 0) >= count for name, count in eager.operators.items()):
        return f"eager: all {sum(eager.operators.values())} operators of plain eager, one by one"
    if eager.elementwise < _FEW:
        unfused = ran.elementwise >= eager.elementwise > 0 and 2 * ran.outermost >= eager.outermost
    else:
        unfused = 2 * ran.elementwise >= eager.elementwise
    if not unfused:
        return ""
    return (
        f"a graph operator by operator: it dispatches {ran.elementwise} elementwise operators, "
        f"plain eager {eager.elementwise}; a compiler fuses them"
    )
