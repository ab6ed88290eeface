"""Load published or training checkpoints into a component's module.

Nothing in a file is executed: `.safetensors`, or `.pt` and `.pth` by torch's weights-only unpickler. Wrappers of
training are removed first: entries such as `ema` or `state_dict` that contain the weights, and the prefixes of EMA,
data-parallel, compiled and training wrappers (`ema_model.`, `module.`, `_orig_mod.`, `core.`), as in owl-wms and
owl-vaes of Wayfarer Labs. After that keys and shapes must be exactly the module's. An error message is one line.
"""

import re
import stat
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from bakeoff.models.component import Component
from bakeoff.models.errors import BakeoffError, a_type
from bakeoff.models.words import some_of

_TORCH_SUFFIXES = (".pt", ".pth")
_FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_KEYS_SHOWN = 3
_ENTRIES = ("ema", "model", "state_dict", "model_state_dict")
_COMPILED = "_orig_mod."
_ZIP_MAGIC = b"PK\x03\x04"


def load_checkpoint(path: Path, module: nn.Module, component: Component) -> None:
    """Copy the checkpoint's tensors into `module`, each converted to the dtype and device of its parameter.

    Raises BakeoffError before anything is copied if the file is not a checkpoint, if its keys or shapes are not
    exactly the module's, or if a value is not finite in the module's dtype. The module's load hooks may raise it too.
    """
    found = _read(path, component)
    wanted: dict[str, Tensor] = module.state_dict()
    _compare(path, component, found, wanted)
    for key, tensor in found.items():
        _check_values(path, key, tensor, wanted[key])
    try:
        module.load_state_dict(found)
    except BakeoffError as error:  # from a load hook, such as a module's check of its tables
        raise _refusal(path, str(error)) from error


def keys_of(path: Path, component: Component) -> dict[str, tuple[int, ...]]:
    """Return the keys and shapes of the weights that belong to this component, without wrappers and prefixes.

    Raises BakeoffError if the file is not a checkpoint.
    """
    return {key: tuple(tensor.shape) for key, tensor in _read(path, component).items()}


def adapt_config(config: Any, component: Component, path: Path) -> Any:
    """Return `config` adapted to the checkpoint's keys; unchanged for most components.

    Calls `adapt_config(config, keys)` of the component's network module if it has one. Raises BakeoffError if the
    file is not a checkpoint.
    """
    adapt = getattr(component.network_module(), "adapt_config", None)
    return config if adapt is None else adapt(config, keys_of(path, component))


def _read(path: Path, component: Component) -> dict[str, Tensor]:
    content = _load(path)
    if not isinstance(content, Mapping):
        raise _refusal(path, f"it contains {a_type(type(content))}; save a dict of tensors")
    content = {str(key): value for key, value in _unwrapped(content).items()}
    try:
        names = _own_names(content, component)
    except BakeoffError as error:
        raise _refusal(path, str(error)) from error
    content = {own: content[name] for name, own in names.items()}
    for key, value in content.items():
        if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_meta or value.is_quantized:
            what = "a tensor without plain values" if isinstance(value, Tensor) else a_type(type(value))
            raise _refusal(path, f"its entry '{_one_line(key)}' is {what}; save a dict of plain tensors")
    return {key: tensor.detach() for key, tensor in content.items()}


def _unwrapped(content: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the innermost entry that contains the weights, such as `ema`; the content itself if it has none."""
    for _ in _ENTRIES:
        inner = next((content[name] for name in _ENTRIES if isinstance(content.get(name), Mapping)), None)
        if inner is None:
            break
        content = inner
    return content


def _own_names(names: Iterable[str], component: Component) -> dict[str, str]:
    """Map the names of a file's weights that belong to the component to the component's own names.

    Raises BakeoffError if no name belongs to the component; the message lists beginnings of the file's names.
    """
    every = {name: name.replace(_COMPILED, "") for name in names}
    found = every
    for prefix in component.checkpoint_strip:
        if any(own.startswith(prefix) for own in found.values()):
            found = {name: own[len(prefix) :] for name, own in found.items() if own.startswith(prefix)}
    if component.checkpoint_prefixes:
        found = {name: own for name, own in found.items() if own.startswith(component.checkpoint_prefixes)}
    if not found:
        kind = f" that begin with {' or '.join(component.checkpoint_prefixes)}" if component.checkpoint_prefixes else ""
        first = list(dict.fromkeys(own.partition(".")[0] for own in every.values() if "." in own))[:_KEYS_SHOWN]
        begin = f"; its keys begin with {', '.join(f'{one[:40]!r}' for one in first)}" if first else ""
        text = f"it has no keys{kind}{begin}; give a checkpoint of {component.name}"
        raise BakeoffError(text, code="bad-checkpoint")
    return found


def _load(path: Path) -> Any:
    suffix = path.suffix.lower()
    if suffix not in (".safetensors", *_TORCH_SUFFIXES):
        raise _refusal(path, f"'{path.suffix}' is not accepted; convert it to .safetensors, .pt or .pth")
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
            raise _refusal(path, f"it is {what}; give the checkpoint file itself")
        if status.st_size == 0:
            raise _refusal(path, "the file is empty; download it again")
        if suffix == ".safetensors":
            return load_file(path, device="cpu")
        return _load_torch(path)
    except OSError as error:
        raise _refusal(path, f"{_reason(error)}; check the path and its permissions") from error
    except BakeoffError:
        raise
    except Exception as error:  # whatever torch and safetensors raise for damaged and hostile files
        foreign = re.search(r"GLOBAL ([\w.]+)", str(error))  # of torch.load, for what is no part of tensors
        if foreign:
            found = f"reading it would run {foreign[1]}; save a dict of plain tensors"
        elif "Unsupported operand" in str(error):
            found = "its pickle is damaged, or not one of torch.save; save a dict of plain tensors"
        else:
            found = f"it is truncated, damaged or not a checkpoint ({_reason(error)}); download or save it again"
        raise _refusal(path, found) from error


def _load_torch(path: Path) -> Any:
    with path.open("rb") as file:
        zipped = file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC
    if zipped:
        _check_archive(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on the pickle protocol; the file then loads or raises
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)


def _check_archive(path: Path) -> None:
    """Raise BakeoffError for a compressed archive, or one with records larger than the file; torch writes neither."""
    with zipfile.ZipFile(path) as archive:
        records = archive.infolist()
    if any(record.compress_type != zipfile.ZIP_STORED for record in records):
        raise _refusal(path, "the archive is compressed; save it with torch.save")
    claimed, size = sum(record.file_size for record in records), path.stat().st_size
    if claimed > size:
        raise _refusal(path, f"its records are {claimed} bytes long in a file of {size}; download it again")


def _compare(path: Path, component: Component, found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    missing = [key for key in wanted if key not in found]
    unexpected = [key for key in found if key not in wanted]
    reshaped = [
        f"{key} is {list(found[key].shape)}, not {list(tensor.shape)}"
        for key, tensor in wanted.items()
        if key in found and found[key].shape != tensor.shape
    ]
    parts = [
        f"{len(names)} {what} ({some_of([_one_line(name) for name in names], _KEYS_SHOWN)})"
        for what, names in (("missing", missing), ("unexpected", unexpected), ("of another shape", reshaped))
        if names
    ]
    if parts:
        raise _refusal(path, f"keys do not fit {component.name}: {', '.join(parts)}; choose the checkpoint's preset")


def _check_values(path: Path, key: str, tensor: Tensor, target: Tensor) -> None:
    if not target.is_floating_point():
        if tensor.dtype != target.dtype:
            raise _refusal(path, f"'{key}' is {tensor.dtype}, not {target.dtype}; save it in that type")
        return
    if tensor.dtype not in _FLOATING:
        raise _refusal(path, f"'{key}' is {tensor.dtype}; save it as float32, bfloat16 or float16")
    if tensor.numel() == 0:
        return
    low, high = tensor.aminmax()
    limit = torch.finfo(target.dtype).max
    if not -limit <= float(low) <= float(high) <= limit:
        raise _refusal(path, f"'{key}' has values that are not finite in {target.dtype}; check its values")


def _refusal(path: Path, problem: str) -> BakeoffError:
    return BakeoffError(f"checkpoint {_one_line(str(path))} cannot be loaded: {problem}", code="bad-checkpoint")


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    sentence = re.split(r"[.;]\s", str(error), maxsplit=1)[0]
    return _one_line(f"{type(error).__name__}: {sentence}")


def _one_line(text: str) -> str:
    """Return `text`, which may come from a file, as one printable line of at most 160 characters."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    clean = " ".join(clean.split())
    return clean if len(clean) <= 160 else f"{clean[:157]}..."
