"""Back ends whose compiler did not do what was asked, each in one way, and which say that all is well.

They use the compilers that they lie about; where one is not installed, its canary is not run.
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
from bakeoff.backends.exported import TORCH, export, operators
from bakeoff.backends.inductor import compiler_environment, missing_compiler
from bakeoff.backends.onnxruntime.backend import BACKEND as ONNXRUNTIME
from bakeoff.backends.onnxruntime.options import Options as OnnxruntimeOptions
from bakeoff.machine import host
from bakeoff.selftest.faulty import Inputs
from bakeoff.selftest.unusual import delegate

if TYPE_CHECKING:
    from torch import Tensor, fx, nn


# LIE: its compiler fails, and what it was given runs operator by operator, decomposed: no `linear`, no `conv2d` shows.
# REAL: partitioners that reject every node (torch-tensorrt and OpenVINO's torch.compile back end run the rest of the
# lowered graph through PyTorch), torch.compile(backend="aot_eager_decomp_partition").
def _run_decomposed(module: "nn.Module", inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    program = export(module, inputs).run_decompositions()
    run = program.module()
    proof = Proof(graphs=1, graph_breaks=0, operators_inside=operators(program.graph))
    return ModuleEngine(lambda *tensors: tuple(run(*tensors)), lambda: proof)


# LIE: its session asks for a provider that is not there, and has only the CPU's.
# REAL: ONNX Runtime itself: "Specified provider 'CUDAExecutionProvider' is not in available provider names", a warning,
# and a session on the CPU. The back end asks first what there is; here that answer is wrong, as it is where the
# provider's library is listed and cannot be loaded.
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


# LIE: a compiler that catches its own exception and has inductor compile.
# REAL: torch.compile(backend="openvino"): fx_openvino ends with `except Exception: ... return compile_fx(subgraph,
# example_inputs)` and a line for the debug log (openvino 2026.4, openvino/frontend/pytorch/torchdynamo/backend.py).
# Nothing of it happens before the first call.
def _give_to_inductor(graph: "fx.GraphModule", inputs: "list[Tensor]") -> Any:
    from torch._inductor.compile_fx import compile_fx

    try:
        raise RuntimeError("no kernel for this operator")
    except RuntimeError:
        return compile_fx(graph, inputs)


def _fall_to_inductor(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    return ModuleEngine(torch.compile(module, backend=_give_to_inductor, fullgraph=True, dynamic=False))


# LIE: the same, and it clears dynamo's counters.
# REAL: whoever tells the graphs of one model from those of the next clears them (torch._dynamo.utils.counters.clear()
# stands in many a benchmark).
def _hide_inductor(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    compiled = torch.compile(module, backend=_give_to_inductor, fullgraph=True, dynamic=False)

    def call(*tensors: "Tensor") -> Outputs:
        from torch._dynamo.utils import counters

        outputs: Outputs = compiled(*tensors)
        counters.clear()
        return outputs

    return ModuleEngine(call)


# LIE: an engine of a bf16 variant, as fp32; its proof is right, for bf16.
# REAL: OpenVINO on a CPU that multiplies bf16, without a hint or with this one. Elsewhere inductor with a bf16 copy.
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


# What quantises nothing. `world` is the layer of the toy's workload of that name; the others are not used there.


def _claim_nothing(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Prepared:
    return Prepared(module, skipped={"world": "too small"})


# REAL: torchao's quantize_ with a filter that matches nothing, or on modules it does not know, returns in silence; who
# counts the layers that were asked for counts wrong.
def _claim_layers(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Prepared:
    return Prepared(module, {"world": "int8 dynamic"})


# REAL: weights cast in place on a module whose layers the model does not call: the size went down, the work did not.
def _shrink_unused(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Prepared:
    module.get_submodule("picture").half()
    return Prepared(module, {"world": "int8 dynamic"})


# REAL: quantised weights beside the original ones, which the forward goes on reading (an unpacked copy that is cached).
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
    """One for all of a sweep: a graph that one canary had compiled is taken from it by the next."""
    return compiler_environment(cache_dir.parent / "canaries")


def _compiling(name: str, summary: str, build: BuildFunction, uses_inductor: bool = False) -> Backend:
    """A back end that has inductor compile."""
    return Backend(
        name,
        summary,
        build,
        capability=Capability(requires=(TORCH,), missing=missing_compiler),
        evidence=Evidence(uses_inductor=uses_inductor),
        footprint=Footprint(environment=_shared_cache),
    )


DECOMPOSED_EAGER = Backend("decomposed-eager", "runs a decomposed graph operator by operator", _run_decomposed)
# LIE: plain eager, in a thread of its own.
# REAL: a runtime with a thread per session whose fallback runs there; torch's profiler sees the calling thread alone
# unless it is told otherwise.
THREADED_EAGER = Backend("threaded-eager", "runs eager in a thread of its own", delegate)
LOST_PROVIDER = Backend(
    "lost-provider",
    "asks for a GPU's provider and gets the CPU's",
    _lose_provider,
    capability=Capability(requires=ONNXRUNTIME.capability.requires, devices=("cpu",)),
)
FALLS_TO_INDUCTOR = _compiling("falls-to-inductor", "catches its error and has inductor compile", _fall_to_inductor)
FALLS_AGAIN = _compiling("falls-again", "does so, and inductor takes the graph from its cache", _fall_to_inductor)
HIDES_INDUCTOR = _compiling("hides-inductor", "does so and clears dynamo's counters", _hide_inductor)
HALF_ENGINE = _compiling("half-engine", "is a bf16 engine sold as fp32", _compute_in_half, True)
CLAIMS_NOTHING = _quantiser("claims-nothing", "quantises no layer", _claim_nothing)
CLAIMS_LAYERS = _quantiser("claims-layers", "names layers that are as they were", _claim_layers)
SHRINKS_UNUSED = _quantiser("shrinks-unused", "shrinks a layer that is not used", _shrink_unused)
KEEPS_FULL = _quantiser("keeps-full", "goes on computing with the weights it quantised", _keep_full)
