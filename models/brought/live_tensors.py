"""Tensors to a safetensors file and back, bit for bit: shared storage stays shared, strides and all dtypes are kept."""

import os
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from bakeoff.models.brought.live_format import Layout
from bakeoff.models.errors import BakeoffError

_NAMED = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)
"""Dtypes that every release of safetensors knows; tensors of others are written as bytes."""
_ALIGNMENT = 16
"""Bytes of the widest dtype, complex128."""


def why_unwritable(tensor: Tensor) -> str:
    """Why a tensor's values cannot be written, as the end of a sentence; "" where they can."""
    if torch.nn.parameter.is_lazy(tensor):
        return "has no values yet; call the module once"
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        return f"is a {type(tensor).__module__}.{type(tensor).__qualname__}, a class of tensors of its own"
    return f"is of {tensor.dtype}, a quantised dtype" if tensor.is_quantized else ""


def pack(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Layout]]:
    """What to write to a file, on the CPU, and where each tensor lies in it.

    A tensor that shares its storage with none of another form is written under its name and with its shape; of others
    the bytes of their storage are, under the name of the first.
    """
    content: dict[str, Tensor] = {}
    layouts: dict[str, Layout] = {}
    tensors = {name: tensor.detach().resolve_conj().resolve_neg() for name, tensor in tensors.items()}
    for group in _groups(tensors):
        first = tensors[group[0]]
        key = "metadata" if group[0] == "__metadata__" else group[0]  # the one name that the format keeps to itself
        while key in content:
            key += "'"
        forms = {_form(tensors[name]) for name in group}
        stride = first.stride()
        if len(forms) == 1 and first.dtype in _NAMED and _is_dense(first):
            content[key] = first.cpu().contiguous()
            layout = Layout(key, tuple(first.shape), None if first.is_contiguous() else tuple(stride))
            layouts |= dict.fromkeys(group, layout)
            continue
        low = min(_span(tensors[name])[0] for name in group) // _ALIGNMENT * _ALIGNMENT
        high = max(_span(tensors[name])[1] for name in group)
        storage = max((tensors[name].untyped_storage() for name in group), key=lambda found: found.nbytes())
        whole = torch.empty(0, dtype=torch.uint8, device=first.device).set_(storage)
        content[key] = whole[low:high].cpu()
        for name in group:
            tensor = tensors[name]
            offset = int(tensor.storage_offset()) - low // tensor.element_size()
            dtype = str(tensor.dtype).removeprefix("torch.")
            layouts[name] = Layout(key, tuple(tensor.shape), tuple(tensor.stride()), dtype, offset)
    return content, {name: layouts[name] for name in tensors}


def save(path: Path, content: Mapping[str, Tensor]) -> None:
    """Write what `pack` returned. Raises BakeoffError where the disk is full or the folder cannot be written."""
    seen: set[int] = set()
    separate: dict[str, Tensor] = {}
    for key, tensor in content.items():
        at = tensor.untyped_storage().data_ptr()  # save_file refuses shared memory, as two numpy arrays may have
        separate[key] = tensor.clone() if at in seen else tensor
        seen.add(at)
    try:
        save_file(separate, path)
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise BakeoffError(
            f"{path.name} cannot be written to {path.parent}: {error}; make room or choose another folder",
            code="not-writable",
        ) from error


def load(path: Path, layouts: Mapping[str, Layout]) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU, in memory of torch's allocator. Raises BakeoffError where it is damaged."""
    found: dict[str, Tensor] = {}
    by_key: dict[str, list[str]] = defaultdict(list)
    for name, layout in layouts.items():
        by_key[layout.key].append(name)
    try:
        with safe_open(path, framework="pt") as file:
            for key, names in by_key.items():
                stored = file.get_tensor(key)
                made: dict[Layout, Tensor] = {}
                plain = not layouts[names[0]].dtype
                base = _placed(stored, layouts[names[0]]) if plain else torch.empty_like(stored).copy_(stored)
                for name in names:
                    layout = layouts[name]
                    if layout not in made:
                        made[layout] = base if plain else _view(base, layout)
                    found[name] = made[layout].detach()
    except (OSError, SafetensorError, RuntimeError, TypeError) as error:
        text = f"{path} cannot be read: {' '.join(str(error).split())}; bring the module anew"
        raise BakeoffError(text, code="not-readable") from error
    return found


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have one dtype, shape and strides, and the same bits."""
    one, other = (tensor.detach().resolve_conj().resolve_neg().cpu() for tensor in (one, other))
    return _form(one)[:3] == _form(other)[:3] and torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _groups(tensors: Mapping[str, Tensor]) -> list[list[str]]:
    """Names of tensors that share a storage, in order."""
    groups: dict[object, list[str]] = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr() if tensor.numel() else 0
        groups.setdefault((str(tensor.device), storage) if storage else name, []).append(name)
    return list(groups.values())


def _form(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()


def _is_dense(tensor: Tensor) -> bool:
    """Whether its elements fill a range of memory, each once: the values and the strides then say all of it."""
    expected = 1
    for step, count in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if count > 1 and step != expected:
            return tensor.numel() == 0
        expected *= count
    return True


def _span(tensor: Tensor) -> tuple[int, int]:
    """First byte and end of its elements in the storage."""
    size = tensor.element_size()
    start = int(tensor.storage_offset()) * size
    if tensor.numel() == 0:
        return start, start
    last = sum(int(count - 1) * int(step) for count, step in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * size


def _placed(stored: Tensor, layout: Layout) -> Tensor:
    return torch.empty_strided(layout.shape, layout.stride or stored.stride(), dtype=stored.dtype).copy_(stored)


def _view(base: Tensor, layout: Layout) -> Tensor:
    dtype = getattr(torch, layout.dtype)
    return torch.empty(0, dtype=dtype).set_(base.untyped_storage(), layout.offset, layout.shape, layout.stride or ())
