"""Backends whose compiler does not do what was requested, each in one way, and whose own proof does not show it.

They use real compilers; where one is not installed, its backend is not run.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends import openvino
from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    BuildFunction,
    Capability,
    Engine,
    Evidence,
    Footprint,
    ModuleEngine,
    NoOptions,
    Outputs,
    Prepared,
    PrepareFunction,
    Proof,
)
from bakeoff.backends.graphs import TORCH, export, operators
from bakeoff.backends.inductor import compiler_environment, missing_compiler
from bakeoff.backends.onnxruntime.backend import BACKEND as ONNXRUNTIME
from bakeoff.backends.onnxruntime.options import Options as OnnxruntimeOptions
from bakeoff.machine import host
from bakeoff.selftest.faulty import Inputs
from bakeoff.selftest.unusual import delegate

if TYPE_CHECKING:
    from torch import Tensor, fx, nn


# Fault: the compiler fails, and the decomposed graph runs operator by operator: neither `linear` nor `conv2d` appears.
# Seen in: partitioners that reject every node (torch-tensorrt and OpenVINO's torch.compile backend run the rest of the
# lowered graph through PyTorch), torch.compile(backend="aot_eager_decomp_partition").
def _run_decomposed(module: "nn.Module", inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    program = export(module, inputs).run_decompositions()
    run = program.module()
    proof = Proof(graphs=1, graph_breaks=0, operators_inside=operators(program.graph))
    return ModuleEngine(lambda *tensors: tuple(run(*tensors)), lambda: proof)


# Fault: the session asks for a provider that is missing, and gets the CPU's.
# Seen in: ONNX Runtime, which warns "Specified provider 'CUDAExecutionProvider' is not in available provider names" and
# makes a session on the CPU. The backend asks for the available providers first; here that list is wrong, as it is
# where a provider's library is listed but cannot be loaded.
def _lose_provider(module: "nn.Module", inputs: Inputs, _options: NoOptions, context: BuildContext) -> Engine:
    import onnxruntime

    known = onnxruntime.get_available_providers
    has_cuda = "CUDAExecutionProvider" in known()
    onnxruntime.get_available_providers = lambda: [*known(), "CUDAExecutionProvider", "TensorrtExecutionProvider"]
    try:
        options = OnnxruntimeOptions(provider="tensorrt" if has_cuda else "cuda")
        assert ONNXRUNTIME.build is not None
        return ONNXRUNTIME.build(module, inputs, options, context)
    finally:
        onnxruntime.get_available_providers = known


# Fault: the compiler catches its own exception and compiles with inductor, at the first call.
# Seen in: torch.compile(backend="openvino"): fx_openvino ends with `except Exception: ... return compile_fx(subgraph,
# example_inputs)` and a line in the debug log (openvino 2026.4, openvino/frontend/pytorch/torchdynamo/backend.py).
def _give_to_inductor(graph: "fx.GraphModule", inputs: "list[Tensor]") -> Any:
    from torch._inductor.compile_fx import compile_fx

    try:
        raise RuntimeError("no kernel for this operator")
    except RuntimeError:
        return compile_fx(graph, inputs)


def _fall_to_inductor(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    return ModuleEngine(torch.compile(module, backend=_give_to_inductor, fullgraph=True, dynamic=False))


# Fault: the same, and dynamo's counters are cleared.
# Seen in: benchmarks that call torch._dynamo.utils.counters.clear() between two models.
def _hide_inductor(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    compiled = torch.compile(module, backend=_give_to_inductor, fullgraph=True, dynamic=False)

    def call(*tensors: "Tensor") -> Outputs:
        from torch._dynamo.utils import counters

        outputs: Outputs = compiled(*tensors)
        counters.clear()
        return outputs

    return ModuleEngine(call)


# Fault: a bf16 engine for an fp32 variant; its proof is that of the bf16 engine.
# Seen in: OpenVINO on a CPU that multiplies bf16, without a hint or with this one. Elsewhere inductor with a bf16 copy.
def _compute_in_half(module: "nn.Module", inputs: Inputs, _options: NoOptions, context: BuildContext) -> Engine:
    import torch

    if context.device == "cpu" and find_spec("openvino") is not None and host.has_native_bf16():
        options = openvino.Options(hint="dtype")
        assert openvino.BACKEND.build is not None
        return openvino.BACKEND.build(module, inputs, options, replace(context, dtype="bf16"))
    half = torch.compile(module.bfloat16(), fullgraph=True, dynamic=False)

    def call(*tensors: "Tensor") -> Outputs:
        return tuple(output.float() for output in half(*(tensor.bfloat16() for tensor in tensors)))

    return ModuleEngine(call)


# Faults of quantisers: these quantise nothing. `world` is the only layer that the toy's workload of that name uses.


def _claim_nothing(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Prepared:
    return Prepared(module, skipped={"world": "too small"})


# Seen in: torchao's quantize_, which returns without a warning where its filter matches nothing or it does not know the
# modules; a count of the requested layers is then wrong.
def _claim_layers(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Prepared:
    return Prepared(module, {"world": "int8 dynamic"})


# Seen in: weights cast in place on layers that the model does not call: the size goes down, the work does not.
def _shrink_unused(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Prepared:
    module.get_submodule("picture").half()
    return Prepared(module, {"world": "int8 dynamic"})


# Seen in: quantised weights beside the original ones, which the forward still reads (a cached unpacked copy).
def _keep_full(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Prepared:
    layer = module.get_submodule("world")
    full = next(layer.parameters()).detach()

    def forward(x: "Tensor") -> "Tensor":
        import torch

        return torch.nn.functional.linear(x, full)

    layer.half()
    layer.forward = forward
    return Prepared(module, {"world": "int8 dynamic"})


def _quantiser(name: str, summary: str, prepare: PrepareFunction) -> Backend:
    return Backend(
        name,
        summary,
        prepare=prepare,
        capability=Capability(dtypes=("fp32",)),
        evidence=Evidence(quantises=lambda _options: "dynamic"),
    )


def _shared_cache(cache_dir: Path) -> Mapping[str, str]:
    """One compile cache for the whole sweep: later backends take the graph from it."""
    return compiler_environment(cache_dir.parent / "canaries")


def _compiling(name: str, summary: str, build: BuildFunction, uses_inductor: bool = False) -> Backend:
    """A backend that compiles with inductor."""
    return Backend(
        name,
        summary,
        build,
        capability=Capability(requires=(TORCH,), missing=missing_compiler),
        evidence=Evidence(uses_inductor=uses_inductor),
        footprint=Footprint(environment=_shared_cache),
    )


DECOMPOSED_EAGER = Backend("decomposed-eager", "runs a decomposed graph operator by operator", _run_decomposed)
# Fault: plain eager, in another thread.
# Seen in: runtimes with a thread per session whose fallback runs there; torch's profiler records only the calling
# thread by default.
THREADED_EAGER = Backend("threaded-eager", "runs eagerly in another thread", delegate)
LOST_PROVIDER = Backend(
    "lost-provider",
    "asks for a GPU's provider and gets the CPU's",
    _lose_provider,
    capability=Capability(requires=ONNXRUNTIME.capability.requires, devices=("cpu",)),
)
FALLS_TO_INDUCTOR = _compiling("falls-to-inductor", "catches its error and compiles with inductor", _fall_to_inductor)
FALLS_AGAIN = _compiling("falls-again", "the same, with the graph from inductor's cache", _fall_to_inductor)
HIDES_INDUCTOR = _compiling("hides-inductor", "the same, and clears dynamo's counters", _hide_inductor)
HALF_ENGINE = _compiling("half-engine", "computes in bf16 in an fp32 variant", _compute_in_half, True)
CLAIMS_NOTHING = _quantiser("claims-nothing", "quantises no layer", _claim_nothing)
CLAIMS_LAYERS = _quantiser("claims-layers", "lists layers that were not changed", _claim_layers)
SHRINKS_UNUSED = _quantiser("shrinks-unused", "quantises a layer that is not used", _shrink_unused)
KEEPS_FULL = _quantiser("keeps-full", "computes with the original weights", _keep_full)
