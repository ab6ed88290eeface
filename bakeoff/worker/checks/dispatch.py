"""Detects engines that run a graph operator by operator, from the ATen operators that a call dispatches."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch

from bakeoff.backends.torch_internals import INDUCTOR_CALL, profile_every_thread, watch_dispatch

_NAMESPACE = "aten::"
_LIBRARY = re.compile(r"aten::|aoti_torch_(?:cpu_|cuda_)?")
"""Prefixes of calls of torch's own kernels; an AOTInductor package calls many of them without the dispatcher."""
_OVERLOAD = re.compile("_[A-Z].*")
"""Suffix that names one overload of an operator, such as `_Tensor` in `mul_Tensor`."""
_PRODUCTS = re.compile(r"conv|scaled_dot_product|(^|_)([a-z]*mm|q?linear|matmul)(_|$)")
"""Names of matrix products and convolutions, which compilers leave to libraries because libraries are faster."""
_NOTABLE = 0.05
"""Smallest share of a call's time for which a kernel is reported."""
_MOVES = ("clone",)
"""Operators that torch tags as pointwise although they only copy memory, as compiled code does too."""


@dataclass(frozen=True, slots=True)
class CallOperators:
    """Operators that one call dispatches from the host, on all of its threads."""

    operators: dict[str, int] = field(default_factory=dict)
    """Count of each ATen operator, including operators that another one called."""
    outermost: dict[str, int] = field(default_factory=dict)
    """Count of each ATen operator that no other ATen operator called."""
    mean_us: dict[str, float] = field(default_factory=dict)
    """Mean time of each operator in microseconds, including the operators that it calls."""
    inductor_calls: int = 0
    """Number of calls of graphs that inductor compiled."""
    kernels_us: dict[str, float] = field(default_factory=dict)
    """Microseconds in each of torch's own kernels during the call; views, products and convolutions are left out."""
    complex: dict[str, int] = field(default_factory=dict)
    """Count of each elementwise operator that reads or returns complex numbers; filled for eager only."""
    composite: tuple[str, ...] = ()
    """Outermost operators that are composed of others, such as `linear` and `lstm`; filled for eager only."""

    @property
    def elementwise(self) -> int:
        """Number of outermost operators that torch tags as pointwise, without copies."""
        return sum(count for name, count in self.outermost.items() if _is_elementwise(name))


def dispatched(call: Callable[[], object]) -> CallOperators:
    """Run a call once under the profiler and count and time its operators."""
    with profile_every_thread() as recorded:
        call()
    operators: Counter[str] = Counter()
    outermost: Counter[str] = Counter()
    spent_us: Counter[str] = Counter()
    kernels_us: Counter[str] = Counter()
    inductor_calls = 0
    for event in recorded.function_events:
        inductor_calls += event.name.startswith(INDUCTOR_CALL)
        library = _LIBRARY.match(event.name)
        if library is None:
            continue
        within = _callers(event)
        name, us = event.name[library.end() :], event.time_range.elapsed_us()
        if not any(map(_LIBRARY.match, within)) and not _PRODUCTS.search(name) and not _is_view(name):
            kernels_us[_OVERLOAD.sub("", name)] += us
        if event.name.startswith(_NAMESPACE):
            operators[name] += 1
            spent_us[name] += us
            outermost[name] += not any(caller.startswith(_NAMESPACE) for caller in within)
    mean_us = {name: spent_us[name] / count for name, count in operators.items()}
    return CallOperators(dict(operators), dict(+outermost), mean_us, inductor_calls, dict(kernels_us))


def dispatched_by_eager(call: Callable[[], object]) -> CallOperators:
    """Count and time the operators of an eager call, and find which are complex or composite.

    The call runs twice: first under a dispatch mode, which shows dtypes and the parts of composite operators, then
    under the profiler. A first call may take much longer than later ones, so it is not the one that is profiled.
    """
    seen: set[str] = set()
    numbers: Counter[str] = Counter()

    def note(operator: Any, arguments: list[Any], result: Any) -> None:
        if not hasattr(operator, "overloadpacket"):  # a higher-order one, which is not ATen's
            return
        name = operator.overloadpacket.__name__
        seen.add(name)
        results = result if isinstance(result, tuple | list) else [result]
        tensors = [one for one in [*arguments, *results] if isinstance(one, torch.Tensor)]
        numbers[name] += _is_elementwise(name) and any(one.is_complex() for one in tensors)

    with watch_dispatch(note):
        call()
    ran = dispatched(call)
    return replace(ran, complex=dict(+numbers), composite=tuple(name for name in ran.outermost if name not in seen))


def _callers(event: Any) -> list[str]:
    names = []
    while (event := event.cpu_parent) is not None:
        names.append(event.name)
    return names


@cache
def _is_view(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    return packet is not None and all(getattr(packet, overload).is_view for overload in packet.overloads())


@cache
def _is_elementwise(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or name in _MOVES:
        return False
    return any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())


def uncompiled(ran: CallOperators, eager: CallOperators) -> str | None:
    """Return what ran, as a noun phrase, if no compiler worked on the call; None if one may have.

    A call is plain eager if it dispatches every operator that eager does, nested ones included, at least as often, and
    eager's include composite operators such as `linear`, which compiled code does not call. If eager has no composite
    operator (a lone sort), honestly compiled code may dispatch the same operators as eager.

    A call is a graph run operator by operator, decomposed or not, if ATen does at least half of the work that it does
    for eager, and at least half of eager's elementwise work. Compilers fuse elementwise work first: inductor and
    AOTInductor leave none of it to ATen, quantised or not, and runtimes with their own kernels (ONNX Runtime, OpenVINO,
    TensorRT) dispatch nothing, while a decomposition adds some (`silu` becomes two operators). The threshold is half
    because common subexpressions may have been removed. Work is weighted by the mean time of eager's operator of the
    same name.

    Elementwise work that compilers leave to ATen by design is not counted, up to eager's own counts: eager's operators
    on complex numbers, and those that a library's kernel dispatches itself (an LSTM and cuDNN's convolution add their
    biases). Copies are not counted, because captured graphs copy their inputs. If eager has no elementwise work,
    nothing could be fused and the result is None. A CUDA graph that replays eager's kernels dispatches nothing: only a
    traced build shows these kernels.
    """
    if eager.composite and all(ran.operators.get(name, 0) >= count for name, count in eager.operators.items()):
        return f"eager: all {sum(eager.operators.values())} eager ATen operators were dispatched"
    weights_us = ran.mean_us | eager.mean_us
    fusable = {
        name: max(0, count - eager.complex.get(name, 0))
        for name, count in eager.outermost.items()
        if _is_elementwise(name)
    }
    unfused = {name: _unfused(name, ran, eager) for name in ran.outermost if _is_elementwise(name)}
    parts = ((fusable, unfused), (eager.outermost, ran.outermost))
    if not any(fusable.values()) or any(2 * _work(own, weights_us) < _work(all_, weights_us) for all_, own in parts):
        return None
    return (
        f"a graph run operator by operator: {sum(unfused.values())} elementwise ATen operators were dispatched "
        f"({sum(fusable.values())} by eager), which a compiler would have fused"
    )


def _unfused(name: str, ran: CallOperators, eager: CallOperators) -> int:
    """Return how many of the call's operators named `name`, which are elementwise, a compiler would have fused."""
    within = eager.operators.get(name, 0) - eager.outermost.get(name, 0)
    return max(0, min(ran.outermost[name], ran.operators[name] - within - eager.complex.get(name, 0)))


def _work(counts: dict[str, int], weights_us: dict[str, float]) -> float:
    return sum(count * weights_us[name] for name, count in counts.items())


def left_to_aten(ran: CallOperators, call_us: float) -> dict[str, float]:
    """Return the share of `call_us` for each of torch's own kernels that takes at least 5 % of it, largest first."""
    shares = {name: min(1.0, us / call_us) for name, us in ran.kernels_us.items()}
    return {name: shares[name] for name in sorted(shares, key=lambda name: -shares[name]) if shares[name] >= _NOTABLE}
