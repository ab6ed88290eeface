"""What all components need to run golden files: check that a file fits the module, and capture inner outputs."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from bakeoff.models.component import TensorSpec
from bakeoff.models.errors import BakeoffError


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
            raise BakeoffError(
                f"{component} golden: {what} {name} of shape {list(shape)} is missing", code="bad-golden"
            )
        if tuple(given[name].shape) != shape:
            found = list(given[name].shape)
            raise BakeoffError(
                f"{component} golden: {what} {name} has shape {found}; the config needs {list(shape)}",
                code="bad-golden",
            )
    unknown = sorted(given.keys() - expected.keys())
    if unknown:
        raise BakeoffError(
            f"{component} golden: {len(unknown)} {what}s do not belong to this config, the first is {unknown[0]}",
            code="bad-golden",
        )
