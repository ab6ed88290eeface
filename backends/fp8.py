"""torchao float8 for linear layers: only the weights, or also the activations, scaled per row or per tensor (CUDA).

Prepares a module that another backend compiles. `weight-only` stores e4m3 weights and multiplies in the variant's
dtype.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Prepared,
    Suite,
    Unsupported,
)
from bakeoff.backends.graphs import TORCH
from bakeoff.backends.quantization import LEAST_ELEMENTS, TORCHAO, negative_least, quantise_linear, quiet

if TYPE_CHECKING:
    from torch import Tensor, nn

_UNSUPPORTED_TEXTS = (
    "dynamic quantization requires",
    "dynamic activation quantization is only",
    "only works for bfloat16",
)
"""Parts of torchao's errors for an unsupported device or dtype (0.18: float8/inference.py, quantization/quant_api.py).
"""


@dataclass(frozen=True, slots=True)
class Options:
    kind: Literal["weight-only", "per-row", "per-tensor"] = "weight-only"
    """`per-row` and `per-tensor` also quantise activations at run time, with one scale per row or per tensor."""
    layers: str = ""
    """Text that a layer's name must contain; empty: every layer."""
    least: int = LEAST_ELEMENTS
    """Weights with fewer elements are not quantised."""


def _prepare(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", options: Options, _context: BuildContext
) -> Prepared:
    with quiet():
        from torchao.quantization import (
            Float8DynamicActivationFloat8WeightConfig,
            Float8WeightOnlyConfig,
            PerRow,
            PerTensor,
        )

    if options.kind == "weight-only":
        config = Float8WeightOnlyConfig()
    else:
        config = Float8DynamicActivationFloat8WeightConfig(
            granularity=PerRow() if options.kind == "per-row" else PerTensor()
        )
    try:
        return quantise_linear(module, config, f"float8 {options.kind}", options.layers, options.least)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        if not any(text in str(error) for text in _UNSUPPORTED_TEXTS):
            raise
        raise Unsupported(f"torchao cannot quantise for this device or dtype: {error}") from error


def _unsupported(options: Options, _device: str, _dtype: str) -> str | None:
    return negative_least(options.least)


_KINDS = (Options(kind="per-row"), Options(kind="per-tensor"), Options())
_ON_CUDA: Mapping[str, Mapping[Options, Suite]] = {
    "inductor": dict.fromkeys(_KINDS, "full"),
    "inductor[mode=reduce-overhead]": dict.fromkeys(_KINDS, "full"),
    "inductor[mode=max-autotune]": {_KINDS[0]: "default", _KINDS[1]: "full", _KINDS[2]: "full"},
    "inductor[mode=max-autotune-no-cudagraphs,graph]": {_KINDS[0]: "full"},
}
"""Backends with options that build on CUDA, with the suite of each kind. A call of one or two milliseconds takes longer
to launch than to compute, so the default suite has a mode that replays CUDA graphs: that of a bf16 row beside it. So
do those who publish Flux on an H100 (huggingface/flux-fast: torchao's dynamic float8, max-autotune)."""

BACKEND = Backend(
    name="fp8",
    summary="torchao float8 for linear layers, weights only or dynamic; another backend compiles",
    prepare=_prepare,
    options=Options,
    defaults=(
        *(
            DefaultOptions(options, devices=("cuda",), dtypes=("bf16",), then=then, suite=suite, layers=("linear",))
            for then, kinds in _ON_CUDA.items()
            for options, suite in kinds.items()
        ),
        *(
            DefaultOptions(
                options, devices=("cpu",), dtypes=("bf16",), then="inductor", suite="full", layers=("linear",)
            )
            for options in _KINDS
        ),
    ),
    requires=(TORCH, TORCHAO),
    dtypes=("fp32", "bf16"),
    unsupported_options=_unsupported,
    unsupported_sizes=None,
    checks="torchao replaced the weights of at least one layer, and the weights take fewer bytes than before",
    quantises="fp8",
    weight_copies=2.0,
    overlaps=True,
)
