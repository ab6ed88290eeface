"""Golden files: reference tensors of a component, in a .safetensors with a .json beside it; and published keys."""

import json
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from bakeoff.models.component import TensorSpec
from bakeoff.models.errors import BakeoffError

GOLDEN = Path(__file__).parents[1] / "golden"
Tensors = dict[str, Tensor]
Golden = tuple[dict[str, Any], Tensors, Tensors, Tensors]
"""The description of a golden file, its weights, inputs and outputs."""


def read_golden(name: str) -> Golden:
    """A golden file of tests/golden."""
    return read_file(GOLDEN / f"{name}.safetensors")


def read_file(path: Path) -> Golden:
    """Read any golden file. Raises BakeoffError where it or the .json beside it is not of the format."""
    if path.suffix != ".safetensors":
        raise BakeoffError(f"{path.name} is not a golden file: name a .safetensors file with a .json file beside it")
    beside = path.with_suffix(".json")
    for file in (path, beside):
        if not file.is_file():
            raise BakeoffError(f"{file.name}: no such file in {file.parent}")
    try:
        about = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BakeoffError(f"{beside.name} cannot be read: {str(error).splitlines()[0]}") from error
    try:
        tensors = load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise BakeoffError(f"{path.name} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(about, dict) or not isinstance(about.get("config"), dict):
        raise BakeoffError(f"{beside.name} has no config")
    groups: dict[str, Tensors] = {"weights": {}, "inputs": {}, "outputs": {}}
    for key, tensor in tensors.items():
        group, _, inner = key.partition(".")
        if group not in groups or tensor.dtype != torch.float32:
            raise BakeoffError(
                f"{path.name}: {key} is {tensor.dtype}; it must be weights.*, inputs.* or outputs.* in fp32"
            )
        groups[group][inner] = tensor
    if not groups["outputs"]:
        raise BakeoffError(f"{path.name} has no outputs.* to compare with")
    return about, groups["weights"], groups["inputs"], groups["outputs"]


def config_from(config_type: type, values: Mapping[str, Any], component: str) -> Any:
    """Build a config from a JSON object; lists become tuples.

    Raises BakeoffError for a field that is unknown, missing or has a value that the config does not take.
    """
    known = {field.name for field in fields(config_type)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise BakeoffError(
            f"{component} config: unknown field {', '.join(unknown)}; it has {', '.join(sorted(known))}",
            code="bad-config",
        )
    clean = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    try:
        return config_type(**clean)
    except TypeError as error:
        raise BakeoffError(f"{component} config: {error}", code="bad-config") from error


def require_inputs(component: str, stated: tuple[TensorSpec, ...], given: Mapping[str, Tensor]) -> None:
    """Check the inputs of a file. Raises BakeoffError naming one that is missing, unknown or of another shape."""
    _require(component, "input", {spec.name: spec.shape for spec in stated}, given)


def load_weights(component: str, module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load a file's weights strictly. Raises BakeoffError naming what is missing, unknown or of another shape."""
    state = {key: tuple(tensor.shape) for key, tensor in module.state_dict().items()}
    _require(component, "weight", state, weights)
    module.load_state_dict(weights)


def capture_outputs(modules: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """A dictionary that each call of these modules fills with its output; of a tuple, the first tensor."""
    captured: dict[str, Tensor] = {}
    for key, module in modules.items():
        module.register_forward_hook(partial(_store, captured, key))
    return captured


def _store(captured: dict[str, Tensor], key: str, _module: nn.Module, _args: Any, result: Any) -> None:
    captured[key] = result[0] if isinstance(result, tuple) else result


def _require(component: str, what: str, expected: Mapping[str, tuple[int, ...]], given: Mapping[str, Tensor]) -> None:
    for name, shape in expected.items():
        if name not in given:
            raise BakeoffError(f"{component} golden: {what} {name} of shape {list(shape)} is missing", code="bad-input")
        if tuple(given[name].shape) != shape:
            found = list(given[name].shape)
            raise BakeoffError(
                f"{component} golden: {what} {name} has shape {found}; the config needs {list(shape)}",
                code="bad-input",
            )
    unknown = sorted(given.keys() - expected.keys())
    if unknown:
        raise BakeoffError(
            f"{component} golden: {len(unknown)} {what}s do not belong to this config, the first is {unknown[0]}",
            code="bad-input",
        )
