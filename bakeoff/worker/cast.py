"""Casts modules: decides the dtype of each parameter and buffer in a variant, a reference or an artifact.

`torch.nn.Module.to(dtype)` casts complex tensors to a real dtype, which drops their imaginary parts with no more than a
warning (pytorch#46374, pytorch#95337), and rounds tensors that their author keeps in fp32. Here complex tensors stay
complex, and pinned tensors become no narrower than they were loaded, and no narrower than fp32.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bakeoff.worker.torch_flags import TORCH_DTYPES

_STORED_BYTES = 1
"""Bytes of storage-only dtypes (float8), which are not cast: code that computes with them casts them itself."""


@dataclass(frozen=True, slots=True)
class GivenDtypes:
    """Original dtypes of a module's floating and complex tensors, and the names of tensors that stay fp32 or wider."""

    tensors: Mapping[str, torch.dtype]
    """Dtypes by name of the parameter or buffer."""
    pinned: frozenset[str]
    """Names of parameters and buffers that no cast makes narrower than originally, or than fp32."""

    def rounds(self, dtype: str) -> bool:
        """Return whether a cast to `dtype` loses precision, so that the original values need another load."""
        return any(
            dtype_of(own, dtype, name in self.pinned).itemsize < own.itemsize for name, own in self.tensors.items()
        )


def named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield all parameters and buffers with their names; a shared tensor comes once under each of its names."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def given_dtypes(module: nn.Module, keep_fp32: Collection[str] = ()) -> GivenDtypes:
    """Record the dtypes of a module as it was loaded.

    Pinned are tensors that are wider than the dtype of most of the module's elements, and tensors in a part named in
    `keep_fp32`: the name or path of a module or tensor anywhere in the tree, such as `norm` or `blocks.0.table`.
    """
    tensors = {name: one.dtype for name, one in named_tensors(module) if one.is_floating_point() or one.is_complex()}
    usual = usual_dtype(one for _, one in named_tensors(module))
    wider = {name for name, own in tensors.items() if usual is not None and is_wider(own, usual)}
    return GivenDtypes(tensors, frozenset(wider | {name for name in tensors if is_part(name, keep_fp32)}))


def is_part(name: str, parts: Collection[str]) -> bool:
    """Return whether the tensor of this name is one of these parts, or lies inside one."""
    return any(re.search(rf"(^|\.){re.escape(part)}(\.|$)", name) for part in parts)


def usual_dtype(tensors: Iterator[Tensor]) -> torch.dtype | None:
    """Return the floating dtype that most elements have; None if no tensor is floating."""
    elements: Counter[torch.dtype] = Counter()
    for one in tensors:
        if one.is_floating_point():
            elements[one.dtype] += one.numel()
    return elements.most_common(1)[0][0] if elements else None


def is_wider(own: torch.dtype, usual: torch.dtype) -> bool:
    """Return whether `own` is a floating dtype with more bytes an element than `usual`."""
    return own.is_floating_point and own.itemsize > usual.itemsize


def dtype_of(own: torch.dtype, dtype: str, pinned: bool = False) -> torch.dtype:
    """Return the dtype that a variant of `dtype` (one of models.types.DTYPES, or fp64) gives a tensor loaded as `own`.

    A pinned tensor becomes no narrower than `own`, and no narrower than fp32.
    """
    if dtype == "given" or not (own.is_floating_point or own.is_complex) or own.itemsize == _STORED_BYTES:
        return own
    if own.is_complex:
        return torch.complex128 if dtype == "fp64" else torch.complex64
    target = TORCH_DTYPES[dtype]
    return torch.promote_types(torch.promote_types(target, own), torch.float32) if pinned else target


def cast_module(module: nn.Module, given: GivenDtypes, dtype: str, device: str) -> nn.Module:
    """Cast and move all tensors of the module in place, and return it. A cast to half precision cannot be undone."""
    names = {
        id(one): (name, one) for name, one in named_tensors(module)
    }  # with the tensor, so that its id stays its own

    def cast(tensor: Tensor) -> Tensor:
        name = names[id(tensor)][0] if id(tensor) in names else ""
        own = given.tensors.get(name, tensor.dtype)
        return tensor.to(device=device, dtype=dtype_of(own, dtype, name in given.pinned))

    return module._apply(cast)
