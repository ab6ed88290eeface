"""ONNX Runtime: exports with torch.onnx, weights in a separate file, session inputs and outputs bound in place.

On CUDA the session uses the CUDA provider, or TensorRT's and then CUDA's. Inputs and outputs stay on the device, and a
call is queued on a separate stream, between the work that torch queued before and after it. A node that runs on the CPU
is a fallback, unless it computes shapes (`placement`). The CPU provider has no bf16 kernels, the CUDA provider lacks
some. `int8` quantises the weights of MatMul nodes, and their activations at run time
(dynamic); such a variant has the parity budget of dynamic quantisation. A model in the cache that cannot be opened is
exported again.
"""

from collections import Counter
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Engine,
    Proof,
    Requirement,
    Unsupported,
)
from bakeoff.backends.graphs import TORCH, input_layouts
from bakeoff.backends.onnxruntime.artifact import FORMAT
from bakeoff.backends.onnxruntime.export import ExportedModel, export_model, open_model
from bakeoff.backends.onnxruntime.options import INSTALL, PROVIDERS, Options, missing_library, provider_of
from bakeoff.backends.onnxruntime.placement import read_placement
from bakeoff.backends.onnxruntime.session import Session, outputs_of
from bakeoff.models.component import Quantisation

if TYPE_CHECKING:
    from torch import Tensor, nn

_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")


def _missing(options: Options, device: str) -> str | None:
    if provider_of(options, device) == PROVIDERS["cpu"]:
        return None
    try:
        version("onnxruntime-gpu")
    except PackageNotFoundError:
        return (
            f"the installed onnxruntime has no {provider_of(options, device)}; "
            "run pip uninstall onnxruntime, then pip install onnxruntime-gpu (both use the same folder)"
        )
    return _missing_library() if provider_of(options, device) == PROVIDERS["tensorrt"] else None


def _missing_library() -> str | None:
    """Return an error text that names the TensorRT library which the loader cannot find for the provider; None if it
    finds all.

    CUDA's libraries are not checked: they may come with torch, which only the worker imports.
    """
    found = find_spec("onnxruntime")
    for folder in (found.submodule_search_locations if found is not None else None) or ():
        missing = missing_library(PROVIDERS["tensorrt"], Path(folder, "capi"), "libnvinfer")
        if missing is not None:
            return (
                f"ONNX Runtime's {PROVIDERS['tensorrt']} cannot be loaded: {missing}; "
                "install that version of TensorRT and put the folder of its libraries into LD_LIBRARY_PATH"
            )
    return None


def _unsupported(options: Options, device: str, dtype: str) -> str | None:
    wanted = provider_of(options, device)
    if device == "cuda" and wanted == PROVIDERS["cpu"]:
        return "the CPU provider in a CUDA variant would time copies between host and device; use @cpu"
    if device == "cpu" and wanted != PROVIDERS["cpu"]:
        return f"{wanted} runs only on a GPU; use @cuda"
    if device == "cpu" and dtype == "bf16":
        return "ONNX Runtime's CPU provider has no bf16 kernels (NOT_IMPLEMENTED); use fp32"
    if options.int8 and dtype != "fp32":
        return f"int8 quantises only fp32 graphs, not {dtype}; use fp32"
    if options.cuda_graph and wanted != PROVIDERS["cuda"]:
        return "only the CUDA provider supports cuda_graph; use provider=cuda on @cuda"
    if wanted == PROVIDERS["tensorrt"] and dtype == "fp32":
        return "the TensorRT provider computes fp32 products in TF32 (onnxruntime#26029); use tf32"
    return None


def _one_size_only(options: Options) -> str | None:
    if options.cuda_graph:
        return "cuda_graph captures one size; leave it or --sizes out"
    if options.provider == "tensorrt":
        return "the TensorRT provider builds an engine for each size that it meets; use tensorrt or leave out --sizes"
    return None


def _quantises(options: Options) -> Quantisation:
    return "dynamic" if options.int8 else ""


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    return _engine(export_model(module, inputs, options, context), inputs, options, context)


def _open(kept: Mapping[str, Any], inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    made = open_model(context.cache_dir / kept["folder"], kept["graph"], options, context)
    return _engine(made, inputs, options, context)


def _engine(made: ExportedModel, inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    session = made.opened.session
    names = tuple(value.name for value in session.get_inputs())
    proof = _prove(made)
    if options.int8 and not proof.quantised:
        raise Unsupported("no MatMul of the graph has constant weights to quantise; for convolutions use int8-static")
    outputs, layouts = outputs_of(session), input_layouts(inputs, context.sizes)
    captured = options.cuda_graph
    return Session(
        made.opened, names, layouts, outputs, made.provider, proof, captured, sizes=context.sizes, shapes=made.shapes
    )


def _prove(made: ExportedModel) -> Proof:
    """Read the proof from the session and the model.

    Since onnxruntime 1.24 the session tells which provider runs a node; before, only a traced build does. A traced
    build also shows nodes that ONNX Runtime adds or moves after it partitioned the graph.
    """
    import onnx

    session = made.opened.session
    model = onnx.load(str(made.path), load_external_data=False)
    nodes = Counter(node.op_type for node in model.graph.node)
    integer = {node.name: "dynamic int8" for node in model.graph.node if node.op_type == "MatMulInteger"}
    stored = {tensor.name for tensor in model.graph.initializer}
    left = {node.name: _why_left(node, stored) for node in model.graph.node if integer and node.op_type in _PRODUCTS}
    placed = read_placement(session, model, made.provider)
    on_cpu = made.provider == PROVIDERS["cpu"]
    facts: dict[str, str | int | float | bool] = {
        "providers": ", ".join(session.get_providers()),
        "opset": next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")),
        "ir_version": model.ir_version,
        "export_from_cache": made.cached,
    }
    if not on_cpu:
        facts |= {f"nodes_on_{name}": count for name, count in placed.providers.items()}
        facts["shape_nodes_on_cpu"] = sum(placed.shapes.values())
        search = session.get_provider_options().get(PROVIDERS["cuda"], {}).get("cudnn_conv_algo_search")
        if search is not None:
            facts["cudnn_conv_algo_search"] = search
    return Proof(
        fell_back=placed.fell_back(made.provider),
        graphs=1,
        operators_inside=nodes if on_cpu or not placed.providers else placed.inside,
        operators_outside=placed.outside,
        quantised=integer,
        skipped=left,
        facts=facts,
        graph_hash=made.graph,
        artifact_bytes=sum(file.stat().st_size for file in made.path.parent.iterdir()),
    )


def _why_left(node: Any, stored: set[str]) -> str:
    if node.op_type != "MatMul":
        return f"{node.op_type}: only MatMul is quantised"
    return "the quantiser skipped it" if stored.intersection(node.input) else "a product of two activations"


BACKEND = Backend(
    name="onnxruntime",
    summary="ONNX Runtime: exported by torch.onnx, inputs and outputs bound in place",
    build=_build,
    open=_open,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cpu",), dtypes=("fp32",)),
        DefaultOptions(Options(int8=True), devices=("cpu",), suite="full", dtypes=("fp32",)),
        DefaultOptions(Options(cuda_graph=True), devices=("cuda",), dtypes=("fp16",)),
        DefaultOptions(Options(), devices=("cuda",), suite="full"),
        DefaultOptions(Options(provider="tensorrt"), devices=("cuda",), suite="full", dtypes=("bf16", "fp16")),
    ),
    requires=(TORCH, Requirement("onnxruntime", INSTALL), Requirement("onnxscript", INSTALL)),
    dtypes=("fp32", "tf32", "fp16", "bf16", "given"),
    missing=_missing,
    unsupported_options=_unsupported,
    unsupported_sizes=_one_size_only,
    own_attention=True,
    tracer="ONNX Runtime",
    checks="the session has the requested provider, and every node runs on it but those that compute shapes",
    quantises=_quantises,
    binds_memory=True,
    own_threads=True,
    keeps_module_weights=False,
    caches=True,
    weight_copies=3.0,
    gpu_weight_copies=2.0,
    host_weight_copies=2.0,  # the exported model, and the session's initializers
    overlaps=True,
    searches=lambda options: options.provider == "tensorrt",
    artifact=FORMAT,
)
