"""Counts the work of one call of a module (FLOPs, weights read) by watching the operators that it dispatches.

A component's network is built on the meta device, where tensors have shapes but no memory; the largest takes a second.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import conv_flop_count, sdpa_flop_count

from bakeoff.backends.torch_internals import flop_counter, storage_id, watch_dispatch
from bakeoff.models import resolve_component
from bakeoff.models.component import Component, TensorSpec, Work, Workload
from bakeoff.models.errors import BakeoffError
from bakeoff.models.tables import FixedTable
from bakeoff.models.weights import plain_tensors, why_unusable
from bakeoff.process.jobs import CountJob, CountResult
from bakeoff.worker.failures import first_line
from bakeoff.worker.reference.error import expected_dtype
from bakeoff.worker.reporter import Report

_aten = torch.ops.aten
_GATHERS = {_aten.embedding, _aten.index, _aten.index_select, _aten.gather}
"""Operators that read as many elements of a parameter as they return."""
_UNCOUNTED = ("rnn", "lstm", "gru", "fft_", "linalg_")
"""Parts of the names of expensive ATen operators for which torch's counter has no formula."""
_DRAWS = re.compile(r"aten::(rand|uniform|normal|bernoulli|exponential|multinomial)")
_CALLING = {"cond", "while_loop", "scan", "map_impl", "associative_scan"}
"""Higher-order operators that do nothing but call the functions among their arguments, whose operators are counted."""


@dataclass(frozen=True, slots=True)
class WorkCounts:
    """Work of one call of a module, as it was counted."""

    flops: int
    convolution_flops: int
    """FLOPs of convolutions whose kernel has more than one element."""
    weight_elements: int
    """Elements of parameters that are read at least once."""
    attends: bool
    """True if the call uses torch's attention function."""
    notes: tuple[str, ...]
    draws: bool = False
    """True if the call draws random floating numbers, which are others in fp64 for the same seed."""

    def work(self, tensors: Sequence[TensorSpec]) -> Work:
        """Return the counts as Work; `tensors` are the inputs and outputs of the call."""
        elements = sum(spec.elements for spec in tensors)
        return Work(self.flops, self.weight_elements, elements, self.convolution_flops)


def count_works(job: CountJob, report: Report) -> CountResult:
    """Count the work of each of the job's calls. A call whose network raises gets None and a problem.

    Raises BakeoffError if a preset states another number of parameters than its network has.
    """
    component = resolve_component(job.component)
    found: list[Work | None] = []
    problems: list[str] = []
    for preset, name, batch in job.calls:
        report("weights", f"counting the work of {component.name}:{preset}.{name}")
        config = component.preset(preset).config
        try:
            module, counted = _count_in(component, config, component.workload(config, name, batch), batch)
        except Exception as error:  # noqa: BLE001  # whatever a user's network raises
            found.append(None)
            problems.append(f"{component.name}:{preset}.{name}: {first_line(error)}")
            continue
        built, stated = sum(one.numel() for one in module.parameters()), component.preset(preset).parameters
        if built != stated:
            text = f"{component.name}: preset {preset} states {stated:,} parameters, and its network has {built:,}"
            raise BakeoffError(f"{text}; correct one of them", "bad-config")
        found.append(counted)
    return CountResult(tuple(found), tuple(problems))


def count_work(component: Component, config: Any, workload: Workload, batch: int) -> Work:
    """Return the work of one call of a component's network. Raises whatever the network raises."""
    return _count_in(component, config, workload, batch)[1]


def _count_in(component: Component, config: Any, workload: Workload, batch: int) -> tuple[nn.Module, Work]:
    """Return the component's network, on the meta device or else on the CPU, and the work of one call."""
    try:
        return _counted("meta", component, config, workload, batch)
    except Exception:  # noqa: BLE001  # a network may read values, as an index or in its constructor
        return _counted("cpu", component, config, workload, batch)


def _counted(device: str, component: Component, config: Any, workload: Workload, batch: int) -> tuple[nn.Module, Work]:
    with torch.device(device), torch.no_grad():
        module = component.network_module().build(config, workload.name, batch)
        inputs = tuple(torch.zeros(spec.shape, dtype=expected_dtype(spec, "fp32")) for spec in workload.inputs)
        counted = _count(module, inputs).work((*workload.inputs, *workload.outputs))
    more = component.correction(config, workload.name, batch)
    flops, convolutions = counted.flops + more.flops, counted.convolution_flops + more.convolution_flops
    return module, replace(counted, flops=flops, convolution_flops=convolutions)


def count(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], WorkCounts]:
    """Call the module, and return its outputs and the work of a call, which is counted in a second one.

    FLOPs are torch's own count (torch.utils.flop_counter): two for each multiply-add of matrix products, convolutions
    and attention. A product with a `FixedTable` does not count: it resizes, or sums weights, which needs no product.
    If the second call fails, because of what watches it, the work is 0 and a note says that it is unknown.
    """
    outputs = module(*inputs)
    try:
        return outputs, _count(module, inputs)
    except Exception as error:  # noqa: BLE001  # whatever torch or the module raises under a dispatch mode
        text = f"FLOPs cannot be counted ({first_line(error)}), so the floor is that of inputs and outputs alone"
        return outputs, WorkCounts(0, 0, 0, False, (text,))


def _count(module: nn.Module, inputs: tuple[Tensor, ...]) -> WorkCounts:
    wide: list[int] = []
    held = (part for parameter in module.parameters() for _, part in plain_tensors("", parameter))
    tables = (each for part in module.modules() if isinstance(part, FixedTable) for each in part.buffers())
    counter = flop_counter(formulas(wide))
    watch = _Watch(set(map(storage_id, held)), set(map(storage_id, tables)), counter)
    with counter, watch_dispatch(watch.note):
        module(*inputs)
    return WorkCounts(
        counter.get_total_flops() - watch.of_tables,
        sum(wide),
        sum(watch.read.values()),
        any("scaled_dot_product" in name or "flex_attention" in name for name in watch.operators),
        tuple(_notes(watch)),
        watch.draws,
    )


def formulas(wide: list[int]) -> dict[Any, Callable[..., int]]:
    """Return FLOP formulas by operator: those that torch's table lacks, and one for convolutions.

    The latter also appends the FLOPs of convolutions whose kernel has more than one element to `wide`.
    """

    def convolution(
        x: list[int],
        w: list[int],
        _bias: Any,
        _stride: Any,
        _padding: Any,
        _dilation: Any,
        transposed: bool,
        *_rest: Any,
        out_shape: list[int],
        **_named: Any,
    ) -> int:
        flops: int = conv_flop_count(x, w, out_shape, transposed=transposed)
        if prod(w[2:]) > 1:
            wide.append(flops)
        return flops

    def attention(q: list[int], k: list[int], v: list[int], *_rest: Any, **_named: Any) -> int:
        return sdpa_flop_count(q, k, v)

    return {
        _aten.convolution: convolution,
        _aten._scaled_dot_product_flash_attention_for_cpu: attention,
    }


@dataclass(slots=True)
class _Watch:
    """Records the operators of a call, the elements of each parameter that they read, and the FLOPs on fixed tables."""

    parameters: set[int]
    """Storage ids of the module's parameters."""
    tables: set[int]
    """Storage ids of the buffers of its FixedTables."""
    counter: Any
    of_tables: int = 0
    before: int = 0
    """FLOPs counted before the next operator."""
    read: dict[int, int] = field(default_factory=dict)
    """Storage id of a parameter to the most elements that one operator read."""
    operators: set[str] = field(default_factory=set)
    draws: bool = False

    def note(self, operator: Any, arguments: list[Any], result: Any) -> None:
        if not hasattr(operator, "overloadpacket"):  # a higher-order one
            self.operators |= {operator.name()} - _CALLING
            return
        self.operators.add(operator.name())
        self.draws |= bool(_DRAWS.match(operator.name())) and torch.is_floating_point(result)
        dense = [part for one in arguments if _is_dense(one) for _, part in plain_tensors("", one)]
        flops = self.counter.get_total_flops()
        self.of_tables += flops - self.before if any(storage_id(one) in self.tables for one in dense) else 0
        self.before = flops
        if any(one.alias_info is not None for one in operator._schema.returns):
            return  # a view, or a write in place, reads nothing of a parameter
        for tensor in dense:
            storage = storage_id(tensor)
            if storage in self.parameters:
                elements = tensor.numel()
                if operator.overloadpacket in _GATHERS and isinstance(result, Tensor):
                    elements = min(elements, result.numel())
                self.read[storage] = max(self.read.get(storage, 0), elements)


def _is_dense(value: Any) -> bool:
    """Return whether the value is a tensor with a storage of its own, unlike sparse ones, which a call may make."""
    return isinstance(value, Tensor) and (value.is_meta or not why_unusable(value))


def _notes(watch: _Watch) -> list[str]:
    own = sorted(name for name in watch.operators if not name.startswith(("aten::", "prim")))
    heavy = sorted(name for name in watch.operators if name.startswith("aten::") and any(p in name for p in _UNCOUNTED))
    found = [*own, *heavy]
    if not found:
        return []
    shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
    return [f"FLOPs leave out {shown}, for which torch has no formula: the floor of a call is lower than it could be"]
