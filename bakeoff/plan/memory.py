"""Estimates a row's memory before anything is built, from the number of parameters and the shapes of a call."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bakeoff.backends.backend import Backend, by_options
from bakeoff.models.component import Preset, TensorSpec, Workload
from bakeoff.plan.suites import Step

LARGE_WEIGHTS_BYTES = 1 << 30
"""Weights of at least this size give a build the longer deadline."""
_DTYPE_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "given": 4}
_PROCESS_BYTES = 1 << 30
"""Host memory of torch and a compiler without weights; the CUDA context with its libraries takes about as much on the
GPU."""
_DRAWN_BYTES = 4
"""Bytes of a weight or input element as drawn, in fp32."""


@dataclass(frozen=True, slots=True)
class Need:
    """Estimated memory of a worker, in bytes."""

    device: int
    """Memory of the measured device."""
    host: int = 0
    """Host memory, for a row on a GPU; 0 for a row on a CPU, whose device is the host."""


def element_bytes(dtype: str) -> int:
    """Return the bytes of one weight, and of one element of an input or output in the variant's dtype."""
    return _DTYPE_BYTES[dtype]


def weights_bytes(preset: Preset, dtype: str) -> int:
    return preset.parameters * element_bytes(dtype)


def total(needs: Sequence[Need]) -> Need:
    """Add up the memory of processes that live at the same time."""
    return Need(sum(need.device for need in needs), sum(need.host for need in needs))


def memory_of(preset: Preset, workload: Workload, steps: Sequence[Step], dtype: str, device: str) -> Need:
    """Estimate a worker's memory until it has timed a variant: weights, inputs, outputs and the process itself.

    An engine for another GPU is only built, with one set of inputs.
    """
    needed = programs_memory(preset, [workload], [s.backend for s in steps], dtype, device)
    if by_options(steps[-1].backend.builds_for, steps[-1].options):
        usual = element_bytes(dtype)
        unused = _sets_bytes(workload, usual) - _bytes(workload.inputs, usual)
        needed = replace(needed, device=needed.device - round(unused))
    return with_process([needed])


def with_process(needs: Sequence[Need]) -> Need:
    """Estimate a worker's memory from that of its programs, which are built one after the other; adds the process
    itself."""
    host = max(need.host for need in needs)
    return Need(sum(need.device for need in needs) + _PROCESS_BYTES, host + _PROCESS_BYTES if host else 0)


def programs_memory(
    preset: Preset, workloads: Sequence[Workload], backends: Sequence[Backend], dtype: str, device: str
) -> Need:
    """Estimate the memory of several programs of one component in a process, without the process itself.

    The programs are built one after the other and share the module's weights; an engine that does not read the module's
    own weights keeps copies. On CUDA, weights and inputs are drawn in host memory. The drawn weights are gone from
    there when an engine is built, but the build may make copies there.
    """
    weights = weights_bytes(preset, dtype)
    copies = max(_copies(backend, device) for backend in backends)
    kept = kept_copies(backends, device) * (len(workloads) - 1)
    own = weights * (copies + kept) + sum(_sets_bytes(workload, element_bytes(dtype)) for workload in workloads)
    drawn = preset.parameters * _DRAWN_BYTES
    inputs = sum(_bytes(one.inputs, _DRAWN_BYTES) * one.set_count for one in workloads)
    if device == "cuda":
        built = weights * max(backend.host_weight_copies for backend in backends)
        return Need(round(own), round(max(drawn, built) + inputs))
    return Need(round(own + (0 if element_bytes(dtype) == _DRAWN_BYTES else drawn + inputs)))


def kept_copies(backends: Sequence[Backend], device: str) -> float:
    """Return how many copies of the weights each further program of a component keeps; the module's own are shared by
    engines that read them."""
    copies = max(_copies(backend, device) for backend in backends)
    return copies - 1 if all(backend.keeps_module_weights for backend in backends) else copies


def _copies(backend: Backend, device: str) -> float:
    of_gpu = backend.gpu_weight_copies
    return of_gpu if device == "cuda" and of_gpu is not None else backend.weight_copies


def _sets_bytes(workload: Workload, usual: int) -> float:
    """Return the bytes of the inputs and outputs of all sets, of changed inputs, and of the inputs that these replace.

    With several sizes, the largest counts.
    """
    found = []
    for one in (workload, *map(workload.at, workload.sizes)):
        inputs, outputs = _bytes(one.inputs, usual), _bytes(one.outputs, usual)
        found.append((inputs + outputs) * one.set_count + inputs * (one.changed_set_count + 1))
    return max(found)


def _bytes(specs: Sequence[TensorSpec], usual: int) -> float:
    return sum(spec.elements * spec.element_bytes(usual) for spec in specs)
