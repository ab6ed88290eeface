"""A subject made real: the module with its weights and the sets of inputs, the same in every worker of a sweep."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bakeoff.models import resolve_component
from bakeoff.models.checkpoint import adapt_config, load_checkpoint
from bakeoff.models.component import Component, TensorSpec, Workload
from bakeoff.models.weights import fingerprint, randomize
from bakeoff.process.jobs import Subject
from bakeoff.worker.torch_flags import TORCH_DTYPES

LARGE_STATE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class LoadedSubject:
    """Everything about a subject in fp32 on the CPU; `cast_inputs` and `nn.Module.to` make a variant of it."""

    component: Component
    config: Any
    workload: Workload
    module: nn.Module
    weights: str
    """Fingerprint of the fp32 weights."""
    sets: tuple[dict[str, Tensor], ...]


def set_count(workload: Workload) -> int:
    """Four sets of inputs, two where a set is over 256 MiB of fp32."""
    return 2 if sum(spec.elements for spec in workload.inputs) * 4 > LARGE_STATE_BYTES else 4


def load_subject(subject: Subject) -> LoadedSubject:
    """Build the subject's module and draw its inputs.

    Raises BakeoffError when the component, the workload or the checkpoint is not what was asked for.
    """
    component = resolve_component(subject.component)
    config = component.preset(subject.preset).config
    path = Path(subject.checkpoint) if subject.checkpoint else None
    if path is not None:
        config = adapt_config(config, component, path)
    workload = component.workload(config, subject.workload, subject.batch)
    network = component.network_module()
    with torch.device("meta"):
        module = network.build(config, subject.workload, subject.batch)
    module.to_empty(device="cpu")
    module.requires_grad_(False)
    if path is None:
        randomize(module, subject.weight_seed, getattr(network, "initial_std", None))
    else:
        load_checkpoint(path, module, component)
    sets = tuple(_draw_set(workload, subject.input_seed, index) for index in range(set_count(workload)))
    return LoadedSubject(component, config, workload, module, fingerprint(module), sets)


def _draw_set(workload: Workload, seed: int, index: int) -> dict[str, Tensor]:
    return {spec.name: draw(spec, f"{seed}:{index}:{spec.name}") for spec in workload.inputs}


def draw(spec: TensorSpec, key: str) -> Tensor:
    """A benchmark input in fp32, by its spec and a key alone."""
    generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(key.encode()).digest()[:7]))
    if spec.draw == "uniform":
        return torch.rand(spec.shape, generator=generator)
    if spec.draw == "binary":
        return torch.randint(0, 2, spec.shape, generator=generator).float()
    return torch.randn(spec.shape, generator=generator)


def drawn_inputs(loaded: LoadedSubject, seed: str, dtype: str, device: str) -> dict[str, Tensor]:
    """Inputs of the workload from a seed of their own, in a variant's dtype and on its device."""
    drawn = {spec.name: draw(spec, f"{seed}:{spec.name}") for spec in loaded.workload.inputs}
    return cast_inputs(loaded.workload, drawn, dtype, device)


def cast_inputs(workload: Workload, inputs: Mapping[str, Tensor], dtype: str, device: str) -> dict[str, Tensor]:
    """A set of inputs in a variant's dtype and on its device; what feeds a sine stays at least fp32."""
    return {spec.name: cast_input(spec, inputs[spec.name], dtype, device) for spec in workload.inputs}


def cast_input(spec: TensorSpec, value: Tensor, dtype: str, device: str) -> Tensor:
    """A copy of one input."""
    target = TORCH_DTYPES[dtype]
    kept = torch.promote_types(target, torch.float32) if spec.keep_fp32 else target
    return value.to(device=device, dtype=kept, copy=True)


def synchronise(device: str) -> None:
    """Wait for the device's queue; a CPU has none."""
    if device == "cuda":
        torch.cuda.synchronize()
