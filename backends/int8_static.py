"""Static int8 by PT2E: the exported graph with quantise/dequantise pairs where x86 has int8 kernels, scales calibrated.

Prepares a graph that inductor with freezing turns into int8 convolutions and products (torchao's X86InductorQuantizer;
without freezing the pairs stay and only cost time). A module in which the quantizer finds nothing comes back unchanged,
so the pairs are counted.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Capability,
    DefaultOptions,
    Evidence,
    Footprint,
    Prepared,
    Unsupported,
)
from bakeoff.backends.exported import TORCH, export
from bakeoff.backends.quantization import TORCHAO, quiet
from bakeoff.backends.torch_internals import fold_constants
from bakeoff.models.component import Quantisation

if TYPE_CHECKING:
    from torch import Tensor, nn

_PAIR = ("quantize_per_tensor", "quantize_per_channel")
_QUANTISABLE = ("conv1d", "conv2d", "conv3d", "linear", "matmul")


@dataclass(frozen=True, slots=True)
class Options:
    seeds: int = 4
    """Sets of inputs that the scales are calibrated on, drawn with seeds of their own."""


def _prepare(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Prepared:
    with quiet():
        from torchao.quantization.pt2e import allow_exported_model_train_eval, move_exported_model_to_eval
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    graph = export(module, inputs).module()
    _make_plain(graph)
    observed = prepare_pt2e(graph, quantizer)
    for seed in range(options.seeds):
        observed(*context.draw(f"calibration {seed}").values())
    converted = convert_pt2e(observed)
    move_exported_model_to_eval(converted)
    allow_exported_model_train_eval(converted)
    quantised, skipped = _pairs(converted)
    if not quantised:
        kinds = Counter(reason.partition(":")[0] for reason in skipped.values())
        found = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no convolution and no product"
        raise Unsupported(f"the X86 quantizer has no pattern for anything in it: {found}; for linear layers take int8")
    facts = {
        "quantise_nodes": sum(_quantises_node(node) for node in converted.graph.nodes),
        "dequantise_nodes": sum("dequantize_per" in str(node.target) for node in converted.graph.nodes),
        "calibration_sets": options.seeds,
    }
    return Prepared(converted, quantised, skipped, facts)


def _make_plain(graph: "nn.Module") -> None:
    """Let the quantizer see the functional forms too.

    It looks for `nn.Conv2d` and `nn.Linear` by the module that a node came from, and packs weights that are constants:
    `functional.conv2d` on a reshaped weight is neither. So constants are folded, and each call is marked as a module's.
    """
    from torch import nn

    fold_constants(graph)
    sources = {"aten.conv2d.default": nn.Conv2d, "aten.linear.default": nn.Linear}
    for node in graph.graph.nodes:  # type: ignore[union-attr]
        if str(node.target) in sources:
            node.meta["source_fn_stack"] = [(node.name, sources[str(node.target)])]


def _quantises_node(node: object) -> bool:
    target = str(getattr(node, "target", ""))
    return "dequantize" not in target and any(name in target for name in _PAIR)


def _pairs(graph: "nn.Module") -> tuple[dict[str, str], dict[str, str]]:
    """Convolutions and products that take a dequantised activation, and those that do not."""
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
            skipped[node.name] = f"{kind}: the X86 quantizer has no pattern for it"
    return quantised, skipped


def _unsupported(options: Options, _device: str, _dtype: str) -> str | None:
    return None if options.seeds >= 1 else f"seeds={options.seeds} leaves nothing to calibrate on; give 1 or more"


def _quantises(_options: Options) -> Quantisation:
    return "static"


BACKEND = Backend(
    name="int8-static",
    summary="PT2E static int8 for x86 of convolutions and products, calibrated; prepares for inductor with freezing",
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
    capability=Capability(requires=(TORCH, TORCHAO), devices=("cpu",), dtypes=("fp32",), unsupported=_unsupported),
    evidence=Evidence(
        checks="at least one convolution or product reads a dequantised activation in the graph that is compiled",
        quantises=_quantises,
    ),
    footprint=Footprint(weight_copies=2.0),
)
