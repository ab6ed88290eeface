"""Memory of a row, estimated from its component's formulas before anything is built."""

from collections.abc import Sequence
from typing import Any

from bakeoff.backends.backend import Backend
from bakeoff.models.component import Component, Workload
from bakeoff.plan.suites import Step

LARGE_WEIGHTS_BYTES = 1 << 30
"""From here on a build gets the longer deadline."""
_DTYPE_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "given": 4}
PROCESS_BYTES = 1 << 30
"""Of torch and a compiler, without any weights."""
_DRAWN_BYTES = 4
"""Weights are drawn as fp32."""
_SETS = 4
"""Sets of inputs and outputs that a worker holds."""


def element_bytes(dtype: str) -> int:
    """Bytes of one weight, and of one element of an input or output that follows the dtype."""
    return _DTYPE_BYTES[dtype]


def weights_bytes(component: Component, config: Any, dtype: str) -> int:
    return component.parameters(config) * element_bytes(dtype)


def memory_bytes(component: Component, config: Any, workload: Workload, steps: Sequence[Step], dtype: str) -> int:
    """Weights as drawn (fp32) and as built, inputs and outputs of all sets, and the process itself."""
    return programs_bytes(component, config, [workload], [step.backend for step in steps], dtype) + PROCESS_BYTES


def programs_bytes(
    component: Component, config: Any, workloads: Sequence[Workload], backends: Sequence[Backend], dtype: str
) -> int:
    """The same without the process, of several programs of a component in one process.

    They are built one after the other and share the module's weights; an engine that does not read the module's own
    keeps its copies.
    """
    weights = weights_bytes(component, config, dtype)
    copies = max(backend.footprint.weight_copies for backend in backends)
    shared = all(backend.footprint.keeps_module_weights for backend in backends)
    kept = (copies - 1 if shared else copies) * (len(workloads) - 1)
    drawn = 0 if element_bytes(dtype) == _DRAWN_BYTES else component.parameters(config) * _DRAWN_BYTES
    io_elements = sum(max([one.work.io_elements, *(size.work.io_elements for size in one.sizes)]) for one in workloads)
    return round(drawn + weights * (copies + kept) + io_elements * 4 * _SETS)
