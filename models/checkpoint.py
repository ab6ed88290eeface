"""Published or training checkpoints into a component's module: tensors only, fitted strictly, refused in one line.

Nothing in a file is executed: `.safetensors`, or `.pt` and `.pth` through torch's weights-only unpickler. The tolerant
part is what wraps the weights (owl.md 4): an `ema` or `model` entry, and the prefixes that EMA, data-parallel and
training wrappers put before a key.
"""

import pickle
import re
import stat
import struct
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError

_TORCH_SUFFIXES = (".pt", ".pth")
_FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_NAMED_KEYS = 3
_ZIP_MAGIC = b"PK\x03\x04"

# What torch and safetensors were seen to raise for damaged and hostile files (thousands of random edits of good ones).
_UNREADABLE = (
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    AssertionError,
    OverflowError,
    MemoryError,
    RuntimeError,
    pickle.UnpicklingError,
    struct.error,
    zipfile.BadZipFile,
    SafetensorError,
)


def load_checkpoint(path: Path, module: nn.Module, component: Component) -> None:
    """Copy the checkpoint's tensors into `module`, each converted to the dtype and device it has there.

    Raises BakeoffError, with nothing copied, when the file is not a checkpoint, when its keys or shapes are not exactly
    the module's, or when a value is not finite in the module's dtype; and when a module's load hook raises it.
    """
    found = _read(path, component)
    wanted: dict[str, Tensor] = module.state_dict()
    if any(tensor.is_meta for tensor in wanted.values()):
        raise BakeoffError(
            f"{_asked(path)}: the module is on the meta device; call to_empty(device=...) first", code="bad-checkpoint"
        )
    _compare(path, component, found, wanted)
    for key, tensor in found.items():
        _check_values(path, key, tensor, wanted[key])
    try:
        module.load_state_dict(found)
    except BakeoffError as error:  # a module's own check of its tables
        raise BakeoffError(f"{_asked(path)}: {error}", code="bad-checkpoint") from error


def keys_of(path: Path, component: Component) -> dict[str, tuple[int, ...]]:
    """Keys and shapes as `load_checkpoint` would compare them: unwrapped, stripped, this component's only.

    Raises BakeoffError when the file is not a checkpoint.
    """
    return {key: tuple(tensor.shape) for key, tensor in _read(path, component).items()}


def adapt_config(config: Any, component: Component, path: Path) -> Any:
    """The config that the checkpoint was made for, as far as its keys tell.

    Asks `adapt_config(config, keys)` of the component's network module where it has one. Raises BakeoffError when the
    file is not a checkpoint.
    """
    adapt = getattr(component.network_module(), "adapt_config", None)
    return config if adapt is None else adapt(config, keys_of(path, component))


def _read(path: Path, component: Component) -> dict[str, Tensor]:
    content = _load(path)
    if not isinstance(content, Mapping):
        raise BakeoffError(
            f"{_asked(path)}: it holds a {type(content).__name__}; save a dict of tensors", code="bad-checkpoint"
        )
    for entry in ("ema", "model"):
        if isinstance(content.get(entry), Mapping):
            content = content[entry]
            break
    content = {str(key): value for key, value in content.items()}
    for prefix in component.checkpoint_strip:
        if any(key.startswith(prefix) for key in content):
            content = {key[len(prefix) :]: value for key, value in content.items() if key.startswith(prefix)}
    if component.checkpoint_prefixes:
        content = {key: value for key, value in content.items() if key.startswith(component.checkpoint_prefixes)}
    if not content:
        kind = f" under {' or '.join(component.checkpoint_prefixes)}" if component.checkpoint_prefixes else ""
        raise BakeoffError(
            f"{_asked(path)}: it holds nothing{kind}; give a checkpoint of {component.name}", code="bad-checkpoint"
        )
    for key, value in content.items():
        if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_meta or value.is_quantized:
            what = "a tensor without plain values" if isinstance(value, Tensor) else f"a {type(value).__name__}"
            raise BakeoffError(
                f"{_asked(path)}: its entry '{_line(key)}' is {what}; save a dict of plain tensors",
                code="bad-checkpoint",
            )
    return {key: tensor.detach() for key, tensor in content.items()}


def _load(path: Path) -> Any:
    suffix = path.suffix.lower()
    if suffix not in (".safetensors", *_TORCH_SUFFIXES):
        raise BakeoffError(
            f"{_asked(path)}: '{path.suffix}' is not accepted; convert it to .safetensors, .pt or .pth",
            code="bad-checkpoint",
        )
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise BakeoffError(f"{_asked(path)}: it is {what}; give the checkpoint file itself", code="bad-checkpoint")
        if status.st_size == 0:
            raise BakeoffError(f"{_asked(path)}: the file is empty; fetch it again", code="bad-checkpoint")
        if suffix == ".safetensors":
            return load_file(path, device="cpu")
        return _load_torch(path)
    except OSError as error:
        raise BakeoffError(
            f"{_asked(path)}: {_reason(error)}; check the path and its permissions", code="bad-checkpoint"
        ) from error
    except _UNREADABLE as error:
        foreign = re.search(r"GLOBAL ([\w.]+)", str(error)) if isinstance(error, pickle.UnpicklingError) else None
        if foreign:
            found = f"it asks to run {foreign[1]}, which is refused; save a dict of plain tensors"
        else:
            found = f"truncated, damaged or no checkpoint ({_reason(error)}); fetch it or save it again"
        raise BakeoffError(f"{_asked(path)}: {found}", code="bad-checkpoint") from error


def _load_torch(path: Path) -> Any:
    with path.open("rb") as file:
        zipped = file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC
    if zipped:
        _check_archive(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the pickle protocol of files that then load or raise
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)


def _check_archive(path: Path) -> None:
    """Refuse archives that would grow when read: torch stores its records as they are, each once."""
    with zipfile.ZipFile(path) as archive:
        records = archive.infolist()
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):
        raise BakeoffError(f"{_asked(path)}: a compressed archive; save it with torch.save", code="bad-checkpoint")
    claimed, size = sum(record.file_size for record in records), path.stat().st_size
    if claimed > size:
        raise BakeoffError(
            f"{_asked(path)}: its records claim {claimed} bytes in a file of {size}; fetch it again",
            code="bad-checkpoint",
        )


def _compare(path: Path, component: Component, found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    missing = [key for key in wanted if key not in found]
    unexpected = [key for key in found if key not in wanted]
    reshaped = [
        f"{key} is {list(found[key].shape)}, not {list(tensor.shape)}"
        for key, tensor in wanted.items()
        if key in found and found[key].shape != tensor.shape
    ]
    parts = [
        f"{len(names)} {what} ({_several(names)})"
        for what, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", reshaped))
        if names
    ]
    if parts:
        raise BakeoffError(
            f"{_asked(path)}: keys do not fit {component.name}: {', '.join(parts)}; choose its own preset",
            code="bad-checkpoint",
        )


def _check_values(path: Path, key: str, tensor: Tensor, target: Tensor) -> None:
    if not target.is_floating_point():
        if tensor.dtype != target.dtype:
            raise BakeoffError(
                f"{_asked(path)}: '{key}' is {tensor.dtype}, not {target.dtype}; save it in that type",
                code="bad-checkpoint",
            )
        return
    if tensor.dtype not in _FLOATING:
        raise BakeoffError(
            f"{_asked(path)}: '{key}' is {tensor.dtype}; save it as float32, bfloat16 or float16", code="bad-checkpoint"
        )
    if tensor.numel() == 0:
        return
    low, high = tensor.aminmax()
    limit = torch.finfo(target.dtype).max
    if not -limit <= float(low) <= float(high) <= limit:
        raise BakeoffError(
            f"{_asked(path)}: '{key}' has values that are not finite in {target.dtype}; save it again",
            code="bad-checkpoint",
        )


def _asked(path: Path) -> str:
    return f"checkpoint {_line(str(path))} cannot be loaded"


def _several(names: list[str]) -> str:
    shown = ", ".join(_line(name) for name in names[:_NAMED_KEYS])
    return shown if len(names) <= _NAMED_KEYS else f"{shown} and {len(names) - _NAMED_KEYS} more"


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    sentence = re.split(r"[.;]\s", str(error), maxsplit=1)[0]
    return _line(f"{type(error).__name__}: {sentence}")


def _line(text: str) -> str:
    """One printable line of at most 160 characters; keys and messages come from the file."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    clean = " ".join(clean.split())
    return clean if len(clean) <= 160 else f"{clean[:157]}..."
