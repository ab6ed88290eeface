"""Backends whose compiler does not do what was requested, each in one way, and whose own proof does not show it.

They use real compilers; if one is not installed, its backend is not run.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends import openvino
from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    BuildFunction,
    Engine,
    ModuleEngine,
    NoOptions,
    Outputs,
    Prepared,
    PrepareFunction,
)
from bakeoff.backends.graphs import TORCH, export
from bakeoff.backends.inductor import compiler_environment, missing_compiler
from bakeoff.backends.onnxruntime.backend import BACKEND as ONNXRUNTIME
from bakeoff.backends.onnxruntime.options import Options as OnnxruntimeOptions
from bakeoff.backends.torch_internals import compiled_once
from bakeoff.machine import host
from bakeoff.selftest.faulty import Inputs
from selftest_backends.unusual import delegate

if TYPE_CHECKING:
    from torch import Tensor, fx, nn


# Fault: a decomposed graph runs operator by operator, with real products and sums computed as complex ones and an FFT
# beside, which compilers leave to ATen by design.
# Seen in: nothing. It is the excuse of complex arithmetic, made up.
def _hide_in_complex(module: "nn.Module", inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    program = export(module, inputs).run_decompositions()

    class Disguised(torch.fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            real = all(isinstance(one, torch.Tensor) and one.is_floating_point() for one in args)
            if target not in (torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor) or not real:
                return super().call_function(target, args, kwargs)
            return target(*(torch.complex(one, torch.zeros_like(one)) for one in args), **kwargs).real

    run = Disguised(program.module())

    def call(*tensors: "Tensor") -> Outputs:
        torch.fft.rfft(tensors[0])
        return tuple(run.run(*tensors))

    return ModuleEngine(call)


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


# No fault: dynamo is told to capture an LSTM, which inductor leaves to oneDNN's kernel.
def _compile_rnn(module: "nn.Module", _inputs: Inputs, _options: NoOptions, _context: BuildContext) -> Engine:
    import torch

    torch._dynamo.config.allow_rnn = True
    return ModuleEngine(torch.compile(module, fullgraph=True, dynamic=False))


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
        dtypes=("fp32",),
        quantises="dynamic",
    )


def _shared_cache(cache_dir: Path) -> Mapping[str, str]:
    """Return the variables of one compile cache for the whole sweep: later backends take the graph from it."""
    return compiler_environment(cache_dir.parent / "canaries")


_UNTIL_THE_END = ExitStack()
"""What these builds share, for as long as their worker lives: some compile only when they are called."""


def _compiling(
    name: str,
    summary: str,
    build: BuildFunction,
    uses_inductor: bool = False,
    devices: tuple[str, ...] = ("cpu", "cuda"),
) -> Backend:
    """Make a backend that compiles with inductor, and declares that if `uses_inductor`."""

    def build_with_headers(module: "nn.Module", inputs: Inputs, options: NoOptions, context: BuildContext) -> Engine:
        _UNTIL_THE_END.enter_context(compiled_once(context.share))
        return build(module, inputs, options, context)

    return Backend(
        name,
        summary,
        build_with_headers,
        requires=(TORCH,),
        missing=missing_compiler,
        devices=devices,
        uses_inductor=uses_inductor,
        environment=_shared_cache,
    )


HIDES_IN_COMPLEX = Backend(
    "hides-in-complex", "runs a decomposed graph as complex arithmetic and with an FFT", _hide_in_complex
)
# Fault: plain eager, in another thread.
# Seen in: runtimes with a thread per session whose fallback runs there; torch's profiler records only the calling
# thread by default.
THREADED_EAGER = Backend("threaded-eager", "runs eagerly in another thread", delegate)
LOST_PROVIDER = Backend(
    "lost-provider",
    "asks for a GPU's provider and gets the CPU's",
    _lose_provider,
    requires=ONNXRUNTIME.requires,
    devices=("cpu",),
)
FALLS_TO_INDUCTOR = _compiling("falls-to-inductor", "catches its error and compiles with inductor", _fall_to_inductor)
FALLS_AGAIN = _compiling("falls-again", "the same, with the graph from inductor's cache", _fall_to_inductor)
HIDES_INDUCTOR = _compiling("hides-inductor", "the same, and clears dynamo's counters", _hide_inductor)
HALF_ENGINE = _compiling("half-engine", "computes in bf16 in an fp32 variant", _compute_in_half, True)
COMPILES_RNN = _compiling("compiles-rnn", "compiles an LSTM with inductor", _compile_rnn, True, ("cpu",))
CLAIMS_NOTHING = _quantiser("claims-nothing", "quantises no layer", _claim_nothing)
SHRINKS_UNUSED = _quantiser("shrinks-unused", "quantises a layer that is not used", _shrink_unused)
KEEPS_FULL = _quantiser("keeps-full", "computes with the original weights", _keep_full)
