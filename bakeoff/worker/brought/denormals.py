"""Denormal numbers in the weights and activations of a model: a cause of slow calls and of outputs that differ.

Below 1.2e-38 fp32 and bf16 keep fewer and fewer digits. Many CPUs compute with such numbers several to a hundred times
as slowly (pytorch#21734), and some engines set them to zero, which eager does not.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from bakeoff.models.component import Component
from bakeoff.models.weights import plain_tensors, why_unusable
from bakeoff.models.words import counted
from bakeoff.record.schema import Finding, Status, new_finding
from bakeoff.worker.cast import named_tensors

_SMALLEST = torch.finfo(torch.float32).tiny
_LEAST_SHARE = 0.01
"""Of a tensor's values, below which nothing is said: the tail of a softmax may have a few."""
_NAMED = 3


def denormals_text(module: nn.Module, call: Callable[[], object]) -> str:
    """Which weights, and which outputs of layers within `call`, hold denormal numbers; "" where none does.

    `call` calls the module once.
    """
    found = [f"{share:.0%} of {name}" for name, tensor in _weights(module) if (share := _share(tensor))]
    found += _of_activations(module, call)
    more = f" and {counted(len(found) - _NAMED, 'other')}" if len(found) > _NAMED else ""
    return f"values below {_SMALLEST:.1e} (denormal numbers): {', '.join(found[:_NAMED])}{more}" if found else ""


def denormals_note(text: str) -> str:
    """What the model's user is told of them when it is described."""
    return f"{text}; many CPUs are much slower with these, and some engines set them to zero: do so in your own code"


def denormals_findings(component: Component, status: Status) -> Iterator[Finding]:
    """A finding on a row of a brought model that failed parity, where denormal numbers may be the cause."""
    if status == "parity_failed" and component.folder:
        text = component.network_module().about.denormals
        if text:
            yield new_finding("denormals", f"the engine may have set to zero what eager does not: {text}")


def _weights(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return (part for name, tensor in named_tensors(module) for part in plain_tensors(name, tensor))


def _of_activations(module: nn.Module, call: Callable[[], object]) -> list[str]:
    """Of the layers without parts; where none gave denormal numbers, of the whole module."""
    names = {id(each): name for name, each in module.named_modules() if each is module or not list(each.children())}
    shares: dict[str, float] = {}

    def look(each: nn.Module, _inputs: object, made: object) -> None:
        name = names.get(id(each))
        for one in made if isinstance(made, tuple | list) else (made,):
            if name is not None and isinstance(one, Tensor) and not why_unusable(one):
                shares[name] = max(shares.get(name, 0.0), _share(one))

    hook = register_module_forward_hook(look)  # of all modules: a TorchScript module takes none of its own
    try:
        with torch.no_grad():
            call()
    finally:
        hook.remove()
    whole = shares.pop("", 0.0)
    found = [f"{share:.0%} of what {name} returns" for name, share in shares.items() if share]
    return found or ([f"{whole:.0%} of what the model returns"] if whole else [])


def _share(tensor: Tensor) -> float:
    """Share of denormal values; 0.0 where it is small, and for dtypes that hold no such value or compute with none."""
    values = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    if not values.is_floating_point() or values.dtype.itemsize == 1 or not values.numel():
        return 0.0
    size = values.detach().abs()
    share = float(((size > 0) & (size < _SMALLEST)).sum()) / values.numel()
    return share if share >= _LEAST_SHARE else 0.0
