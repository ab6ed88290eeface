"""torchao's block-scaled formats for linear layers on Blackwell: MXFP8, and NVFP4 with 4-bit weights and activations.

Prepares a module that another backend compiles. Both quantise activations at run time: `mxfp8` has one power-of-two
scale for 32 values of e4m3, `nvfp4` one e4m3 scale for 16 values of e2m1 and one fp32 scale for the whole tensor. Only
tensor cores of compute capability 10 and above multiply them, so nothing is quantised on another device. Never run on
such a device yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Prepared,
    Unsupported,
)
from bakeoff.backends.graphs import TORCH
from bakeoff.backends.quantization import LEAST_ELEMENTS, TORCHAO, negative_least, quantise_linear, quiet
from bakeoff.models.component import Quantisation

if TYPE_CHECKING:
    from torch import Tensor, nn

Kind = Literal["mxfp8", "nvfp4"]

_LEAST_CAPABILITY = (10, 0)
"""Blackwell's compute capability, the first with block-scaled tensor cores."""
_DIVISORS: Mapping[Kind, tuple[int, int]] = {"mxfp8": (1, 32), "nvfp4": (16, 16)}
"""Numbers that must divide a layer's output and input features (torchao 0.18:
prototype/mx_formats/inference_workflow.py and mx_tensor.py)."""


@dataclass(frozen=True, slots=True)
class Options:
    kind: Kind = "mxfp8"
    layers: str = ""
    """Text that a layer's name must contain; empty: every layer."""
    least: int = LEAST_ELEMENTS
    """Weights with fewer elements are not quantised."""


def check_capability(kind: str, least: tuple[int, int], instead: str) -> None:
    """Raise Unsupported if the CUDA device's compute capability is below `least`; `instead` names what to use on that
    device."""
    import torch

    found = torch.cuda.get_device_capability()
    if found < least:
        raise Unsupported(
            f"{kind} needs compute capability {_version(least)}, and {torch.cuda.get_device_name()} has "
            f"{_version(found)}; use {instead}"
        )


def _version(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def _prepare(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", options: Options, _context: BuildContext
) -> Prepared:
    check_capability(options.kind, _LEAST_CAPABILITY, "fp8")
    with quiet():
        from torchao.prototype.mx_formats.inference_workflow import (
            MXDynamicActivationMXWeightConfig,
            NVFP4DynamicActivationNVFP4WeightConfig,
        )

    if options.kind == "mxfp8":
        config = MXDynamicActivationMXWeightConfig()
    else:
        # torchao's fused kernel needs a package (MSLK) that it does not install.
        config = NVFP4DynamicActivationNVFP4WeightConfig(use_triton_kernel=False)
    refused = _not_divisible(module, options.kind)
    return quantise_linear(module, config, f"{options.kind} dynamic", options.layers, options.least, refused)


def _not_divisible(module: "nn.Module", kind: Kind) -> dict[str, str]:
    from torch import nn

    outputs, inputs = _DIVISORS[kind]
    return {
        name: f"{part.in_features} to {part.out_features} features are not multiples of {inputs} and {outputs}"
        for name, part in module.named_modules()
        if isinstance(part, nn.Linear) and (part.in_features % inputs or part.out_features % outputs)
    }


def _unsupported(options: Options, _device: str, _dtype: str) -> str | None:
    return negative_least(options.least)


def _quantises(options: Options) -> Quantisation:
    return options.kind


BACKEND = Backend(
    name="mx",
    summary="torchao MXFP8 or NVFP4 for linear layers, dynamic, on Blackwell; another backend compiles",
    prepare=_prepare,
    options=Options,
    defaults=tuple(
        DefaultOptions(
            Options(kind),
            devices=("cuda",),
            dtypes=("bf16",),
            then="inductor[mode=max-autotune]",
            layers=("linear",),
            least_capability=_LEAST_CAPABILITY,
        )
        for kind in ("mxfp8", "nvfp4")
    ),
    requires=(TORCH, TORCHAO),
    devices=("cuda",),
    dtypes=("bf16",),
    unsupported_options=_unsupported,
    checks="torchao replaced the weights of at least one layer, and the weights take fewer bytes than before",
    quantises=_quantises,
    weight_copies=2.0,
)
