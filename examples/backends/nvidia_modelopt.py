"""NVIDIA's modelopt: fp8 or NVFP4 for linear layers and convolutions, calibrated, for TensorRT.

Prepares a module: quantises the inputs and weights of layers with scales from a few calls, then exports the module, so
that the graph contains `tensorrt.quantize_op` and `tensorrt.dynamic_block_quantize_op`. torch_tensorrt converts each of
them to a pair of TensorRT's quantise and dequantise layers, which TensorRT's builder fuses with the layer between them
(2.13: dynamo/conversion/impl/quantize.py and dynamic_block_quantize.py). PyTorch only emulates them, so no other
backend builds the module. fp8 has one scale for a layer's weight and one for its input.
"""

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Prepared,
    Requirement,
    Unsupported,
)
from bakeoff.backends.graphs import TORCH, export
from bakeoff.backends.install import modelopt_command
from bakeoff.backends.mx import check_capability
from bakeoff.backends.quantization import LEAST_ELEMENTS, negative_least
from bakeoff.models.component import Layer, Quantisation
from bakeoff.models.words import counted

if TYPE_CHECKING:
    from torch import Tensor, nn

Kind = Literal["fp8", "nvfp4", "mxfp8"]

MODELOPT = Requirement("modelopt", modelopt_command())
_FORMATS: Mapping[Kind, Mapping[str, Any]] = {
    "fp8": {"num_bits": (4, 3), "axis": None},
    "nvfp4": {"num_bits": (2, 1), "block_sizes": {-1: 16, "type": "dynamic", "scale_bits": (4, 3)}},
}
"""modelopt's number formats (0.47: modelopt_recipes/configs/numerics). Its presets also skip layers by name
(`*proj_out.*`, `*visual*`), which suits only modelopt's own list of models."""
_LEAST_CAPABILITY: Mapping[Kind, tuple[int, int]] = {"fp8": (8, 9), "nvfp4": (10, 0)}
_NVFP4_BLOCK = 16
_OPERATORS: Mapping[str, str] = {"fp8": "tensorrt.quantize_op", "nvfp4": "tensorrt.dynamic_block_quantize_op"}
_EMULATED = re.compile(r"(torch\.ops\.)?tensorrt(\.|::)(dynamic_block_)?quantize_op(\.default)?")


@dataclass(frozen=True, slots=True)
class Options:
    kind: Kind = "fp8"
    """`nvfp4` quantises linear layers only, and needs Blackwell."""
    seeds: int = 4
    """Number of input sets for calibrating the scales; each is drawn with a seed of its own."""
    layers: str = ""
    """Text that a layer's name must contain; empty: every layer."""
    least: int = LEAST_ELEMENTS
    """Weights with fewer elements are not quantised."""


def _prepare(module: "nn.Module", _inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Prepared:
    if context.device == "cuda":
        check_capability(options.kind, _LEAST_CAPABILITY[options.kind], "tensorrt-aot without it")
    chosen, skipped = _choose(module, options)
    if not chosen:
        reasons = "; ".join(dict.fromkeys(skipped.values())) or "the component has none"
        raise Unsupported(f"modelopt {options.kind} can quantise no layer: {reasons}")
    with _quiet():
        from modelopt.torch.quantization import quantize
        from modelopt.torch.quantization.utils import export_torch_mode

        def calibrate(quantised: "nn.Module") -> None:
            for seed in range(options.seeds):
                quantised(*context.draw(f"calibration {seed}").values())

        quantize(module, _config(chosen, options.kind), forward_loop=calibrate)
        called, never = _split_by_calibration(module, chosen)
        if not called:
            raise Unsupported(f"no layer that modelopt can quantise is called: {', '.join(never)}")
        with export_torch_mode():
            graph = export(module, context.draw("calibration 0")).module()
    inputs, weights = _quantised_in(graph)
    how = f"{options.kind} calibrated" if options.kind == "fp8" else f"{options.kind} dynamic"
    quantised = {name: how for name in called if name in inputs & weights}
    left = dict.fromkeys([name for name in called if name not in quantised], "only its weight is quantised")
    return Prepared(
        graph,
        quantised,
        {**skipped, **dict.fromkeys(never, "not called"), **left},
        {"quantise_nodes": sum(_is_quantise_node(node) for node in _nodes(graph)), "calibration_sets": options.seeds},
        shrinks_weights=False,
        ran_instead=(_ran_instead,),
    )


def _choose(module: "nn.Module", options: Options) -> tuple[list[str], dict[str, str]]:
    """Return the names of the layers to quantise, and the reason for each layer that is skipped."""
    from torch import nn

    chosen: list[str] = []
    skipped: dict[str, str] = {}
    for name, layer in module.named_modules():
        kind = next((kind for kind in (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d) if isinstance(layer, kind)), None)
        if kind is None:
            continue
        if type(layer).forward is not kind.forward:  # 0.47: opt/dynamic.py, _get_registered_nn_class
            skipped[name] = f"{type(layer).__name__} has a forward of its own, for which modelopt has no quantised one"
        elif options.layers not in name:
            skipped[name] = f"'{options.layers}' is not in its name"
        elif layer.weight.numel() < options.least:
            skipped[name] = f"{counted(layer.weight.numel(), 'element')}, fewer than {options.least}"
        elif options.kind == "nvfp4" and not isinstance(layer, nn.Linear):
            skipped[name] = "TensorRT has no convolution of NVFP4"
        elif options.kind == "nvfp4" and layer.weight.shape[1] % _NVFP4_BLOCK:
            skipped[name] = f"its {layer.weight.shape[1]} input features are no multiple of a block of {_NVFP4_BLOCK}"
        else:
            chosen.append(name)
    return chosen, skipped


def _config(chosen: list[str], kind: Kind) -> dict[str, Any]:
    """Return modelopt's configuration, which quantises only the inputs and weights of the chosen layers."""
    parts = [f"{name}.{part}_quantizer" for name in chosen for part in ("input", "weight")]
    enabled = [{"quantizer_name": part, "cfg": dict(_FORMATS[kind])} for part in parts]
    return {"quant_cfg": [{"quantizer_name": "*", "enable": False}, *enabled], "algorithm": "max"}


def _split_by_calibration(module: "nn.Module", chosen: list[str]) -> tuple[list[str], list[str]]:
    """Return the layers that calibration called, and the others, whose quantisers are disabled since they have no
    scale."""
    called: list[str] = []
    never: list[str] = []
    for name in chosen:
        quantizer: Any = module.get_submodule(f"{name}.input_quantizer")
        (called if quantizer.amax is not None else never).append(name)
        if quantizer.amax is None:
            quantizer.disable()
            module.get_submodule(f"{name}.weight_quantizer").disable()  # type: ignore[operator]
    return called, never


def _nodes(graph: "nn.Module") -> Iterator[Any]:
    return iter(graph.graph.nodes)  # type: ignore[union-attr,arg-type]


def _is_quantise_node(node: Any) -> bool:
    return str(node.target).removesuffix(".default") in _OPERATORS.values()


def _quantised_in(graph: "nn.Module") -> tuple[set[str], set[str]]:
    """Return the names of the layers whose input the graph quantises, and of those whose weight it quantises."""
    found: dict[str, set[str]] = {"input_quantizer": set(), "weight_quantizer": set()}
    for node in _nodes(graph):
        if _is_quantise_node(node):
            path = list(node.meta["nn_module_stack"].values())[-1][0]
            layer, _, part = path.rpartition(".")
            found[part].add(layer)
    return found["input_quantizer"], found["weight_quantizer"]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Send modelopt's printed lines to stderr and ignore warnings within the block.

    A worker's stdout is its log; the warnings are about optional libraries.
    """
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _ran_instead(names: frozenset[str], _complete: bool) -> str:
    emulated = sorted(name for name in names if _EMULATED.fullmatch(name))
    return f"PyTorch's emulation of the quantised layers: {', '.join(emulated)} is in no engine" if emulated else ""


def _unsupported(options: Options, _device: str, _dtype: str) -> str | None:
    if options.kind == "mxfp8":
        return (
            "torch_tensorrt makes every block-quantise operator NVFP4 with a global scale, which MXFP8 has not "
            "(2.13: dynamo/conversion/impl/dynamic_block_quantize.py); use kind=nvfp4, or mx+inductor for MXFP8"
        )
    if options.seeds < 1:
        return f"seeds={options.seeds} gives no input to calibrate with; give 1 or more"
    return negative_least(options.least)


def _unsupported_builder(options: Options, builder: Backend) -> str | None:
    if _OPERATORS.get(options.kind) not in builder.quantise_operators:
        return f"{builder.name} would emulate modelopt's {options.kind} in full precision; use tensorrt-aot"
    return None


def _quantises(options: Options) -> Quantisation:
    return options.kind


_LAYERS: tuple[Layer, ...] = ("linear", "conv1d", "conv2d", "conv3d")

BACKEND = Backend(
    name="modelopt",
    summary="modelopt fp8 or NVFP4 for linear layers and convolutions, calibrated; TensorRT builds",
    prepare=_prepare,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cuda",), dtypes=("bf16",), then="tensorrt-aot[cudagraphs]", layers=_LAYERS),
        DefaultOptions(
            Options(), devices=("cuda",), dtypes=("bf16",), then="tensorrt[cudagraphs]", suite="full", layers=_LAYERS
        ),
        DefaultOptions(
            Options(), devices=("cuda",), dtypes=("bf16",), then="tensorrt-aot", suite="full", layers=_LAYERS
        ),
        DefaultOptions(
            Options("nvfp4"),
            devices=("cuda",),
            dtypes=("bf16",),
            then="tensorrt-aot[cudagraphs]",
            layers=("linear",),
            least_capability=_LEAST_CAPABILITY["nvfp4"],
        ),
    ),
    requires=(TORCH, MODELOPT),
    devices=("cpu", "cuda"),
    dtypes=("fp32", "bf16", "fp16"),
    unsupported_options=_unsupported,
    unsupported_builder=_unsupported_builder,
    checks="modelopt's quantize operators are around at least one layer, and no call runs them in PyTorch",
    quantises=_quantises,
    weight_copies=2.0,
)
