"""torchao int8 for linear layers: weights with a scale per output channel, activations at run time or not at all.

Prepares a module that another backend compiles; without a compiler it runs slower than the original module.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bakeoff.backends.backend import Backend, BuildContext, Capability, DefaultOptions, Evidence, Footprint, Prepared
from bakeoff.backends.graphs import TORCH
from bakeoff.backends.quantization import LEAST_ELEMENTS, TORCHAO, negative_least, quantise_linear, quiet
from bakeoff.models.component import Quantisation

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Options:
    kind: Literal["dynamic", "weight-only"] = "dynamic"
    """`dynamic` also quantises activations, at run time."""
    layers: str = ""
    """Text that a layer's name must contain; empty: every layer."""
    least: int = LEAST_ELEMENTS
    """Weights with fewer elements are not quantised."""


def _prepare(
    module: "nn.Module", _inputs: "Mapping[str, Tensor]", options: Options, _context: BuildContext
) -> Prepared:
    with quiet():
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig

    config = Int8WeightOnlyConfig() if options.kind == "weight-only" else Int8DynamicActivationInt8WeightConfig()
    prepared = quantise_linear(module, config, f"int8 {options.kind}", options.layers, options.least)
    if options.kind == "weight-only":
        for name in prepared.quantised:
            module.get_submodule(name).register_forward_pre_hook(_make_contiguous)
    return prepared


def _make_contiguous(_layer: "nn.Module", inputs: "tuple[Tensor, ...]") -> "tuple[Tensor, ...]":
    """Copy transposed inputs: the int8 product on a CPU (aten::_weight_int8pack_mm) raises for them."""
    return tuple(tensor.contiguous() for tensor in inputs)


def _unsupported(options: Options, _device: str, _dtype: str) -> str | None:
    return negative_least(options.least)


def _quantises(options: Options) -> Quantisation:
    return options.kind


BACKEND = Backend(
    name="int8",
    summary="torchao int8 for linear layers, dynamic or weights only; another backend compiles",
    prepare=_prepare,
    options=Options,
    defaults=(
        DefaultOptions(Options(), dtypes=("bf16",), then="inductor"),
        DefaultOptions(Options(), dtypes=("bf16",), then="aoti", suite="full"),
        DefaultOptions(Options(kind="weight-only"), dtypes=("bf16",), then="inductor", suite="full"),
    ),
    capability=Capability(requires=(TORCH, TORCHAO), dtypes=("fp32", "bf16"), unsupported=_unsupported),
    evidence=Evidence(
        checks="torchao replaced the weights of at least one layer, and the weights take fewer bytes than before",
        quantises=_quantises,
    ),
    footprint=Footprint(weight_copies=2.0),
)
