"""Static int8 by PT2E: adds quantise/dequantise pairs with calibrated scales to the exported graph, for x86 CPUs.

torchao's X86InductorQuantizer adds pairs around operators for which x86 has int8 kernels. Inductor with freezing turns
them into int8 convolutions and matrix products; without freezing the pairs stay in the graph and only cost time. The
quantizer returns a module unchanged if it finds nothing to quantise, so the pairs are counted.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Prepared,
    Unsupported,
)
from bakeoff.backends.graphs import TORCH, export
from bakeoff.backends.quantization import TORCHAO, quiet
from bakeoff.backends.torch_internals import fold_constants

if TYPE_CHECKING:
    from torch import Tensor, nn

_QUANTISE_OPERATORS = ("quantize_per_tensor", "quantize_per_channel")
_QUANTISABLE = ("conv1d", "conv2d", "conv3d", "linear", "matmul")


@dataclass(frozen=True, slots=True)
class Options:
    seeds: int = 4
    """Number of input sets for calibrating the scales; each is drawn with a seed of its own."""


def _prepare(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Prepared:
    with quiet():
        from torchao.quantization.pt2e import allow_exported_model_train_eval, move_exported_model_to_eval
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    graph = export(module, inputs).module()
    _mark_functional_calls(graph)
    observed = prepare_pt2e(graph, quantizer)
    for seed in range(options.seeds):
        observed(*context.draw(f"calibration {seed}").values())
    converted = convert_pt2e(observed)
    move_exported_model_to_eval(converted)
    allow_exported_model_train_eval(converted)
    quantised, skipped = _find_pairs(converted)
    if not quantised:
        kinds = Counter(reason.partition(":")[0] for reason in skipped.values())
        found = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no convolution or matrix product"
        raise Unsupported(f"the X86 quantizer cannot quantise any layer (found {found}); for linear layers use int8")
    facts = {
        "quantise_nodes": sum(_is_quantise_node(node) for node in converted.graph.nodes),
        "dequantise_nodes": sum("dequantize_per" in str(node.target) for node in converted.graph.nodes),
        "calibration_sets": options.seeds,
    }
    return Prepared(converted, quantised, skipped, facts, shrinks_weights=False)


def _mark_functional_calls(graph: "nn.Module") -> None:
    """Change the graph so that the quantizer also finds calls of `functional.conv2d` and `functional.linear`.

    The quantizer finds `nn.Conv2d` and `nn.Linear` by the module recorded with a node, and needs weights that are
    constants. A functional call on a reshaped weight has neither. So constants are folded, and each call is marked as
    if an `nn.Conv2d` or `nn.Linear` made it.
    """
    from torch import nn

    fold_constants(graph)
    sources = {"aten.conv2d.default": nn.Conv2d, "aten.linear.default": nn.Linear}
    for node in graph.graph.nodes:  # type: ignore[union-attr]
        if str(node.target) in sources:
            node.meta["source_fn_stack"] = [(node.name, sources[str(node.target)])]


def _is_quantise_node(node: object) -> bool:
    target = str(getattr(node, "target", ""))
    return "dequantize" not in target and any(name in target for name in _QUANTISE_OPERATORS)


def _find_pairs(graph: "nn.Module") -> tuple[dict[str, str], dict[str, str]]:
    """Return convolutions and products by node name: those with a dequantised input and how, and the others and why
    not."""
    quantised: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for node in graph.graph.nodes:  # type: ignore[union-attr]
        name = str(node.target)
        kind = next((known for known in _QUANTISABLE if f"aten.{known}." in name), "")
        if node.op != "call_function" or not kind:
            continue
        if any("dequantize" in str(source.target) for source in node.all_input_nodes):
            quantised[node.name] = f"{kind} int8 static"
        else:
            skipped[node.name] = f"{kind}: not supported by the X86 quantizer"
    return quantised, skipped


def _unsupported(options: Options, _device: str, _dtype: str) -> str | None:
    return None if options.seeds >= 1 else f"seeds={options.seeds} gives no input to calibrate with; give 1 or more"


BACKEND = Backend(
    name="int8-static",
    summary="PT2E static int8 for convolutions and matrix products on x86, calibrated; inductor[freezing] compiles",
    prepare=_prepare,
    options=Options,
    defaults=(
        DefaultOptions(
            Options(),
            devices=("cpu",),
            dtypes=("fp32",),
            then="inductor[freezing]",
            suite="full",
            layers=("conv2d",),
        ),
    ),
    requires=(TORCH, TORCHAO),
    devices=("cpu",),
    dtypes=("fp32",),
    unsupported_options=_unsupported,
    checks="in the compiled graph at least one convolution or matrix product reads a dequantised activation",
    quantises="static",
    weight_copies=2.0,
    overlaps=True,
)
