"""TensorRT ahead of time: torch.export, converted by torch_tensorrt, saved, and what is timed is what was loaded back.

Weights are constants of the engine. `require_full_compilation` turns an operator that TensorRT lacks into a failed
build with its name. A saved program in the cache that cannot be loaded is built again. Not one engine has been built by
us: the machines that this was written on have no TensorRT libraries.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Call,
    Capability,
    DefaultOptions,
    Engine,
    Evidence,
    Footprint,
    Proof,
)
from bakeoff.backends.exported import TORCH, check_layouts, input_layouts
from bakeoff.backends.torch_tensorrt.artifact import FORMAT
from bakeoff.backends.torch_tensorrt.library import REQUIRES
from bakeoff.backends.torch_tensorrt.program import Options, digest, save_program, set_up
from bakeoff.backends.torch_tensorrt.proof import prove, read_converted, trace_engines
from bakeoff.backends.torch_tensorrt.settings import unsupported_settings
from bakeoff.backends.tracing import Trace

if TYPE_CHECKING:
    from torch import Tensor, fx, nn


@dataclass(frozen=True, slots=True)
class _Loaded(Engine):
    """A program loaded from disk."""

    module: "fx.GraphModule"
    layouts: Mapping[str, str]
    proof: Proof

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        check_layouts(self.layouts, inputs)
        run, tensors = self.module, tuple(inputs.values())
        return lambda: tuple(run(*tensors))

    def prove(self) -> Proof:
        return self.proof

    def trace(self, call: Call) -> Trace:
        return trace_engines(call)


def _unsupported(options: Options, _device: str, _dtype: str) -> str | None:
    if options.weight_streaming and options.cudagraphs:
        return "weight_streaming cannot be combined with cudagraphs: a CUDA graph needs its weights in place; drop one"
    return unsupported_settings(options.optimization_level, options.min_block_size)


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    made = save_program(module, inputs, options, context)
    found = read_converted(made.module)
    proof = prove(
        found,
        made.told,
        made.inside,
        made.graph,
        program_from_cache=made.cached,
        program_digest=digest(made.path),
    )
    set_up(made.library, made.module, options)
    return _Loaded(made.module, input_layouts(inputs), replace(proof, artifact_bytes=made.path.stat().st_size))


BACKEND = Backend(
    name="tensorrt-aot",
    summary="TensorRT engines made ahead of time by torch_tensorrt, saved and loaded back",
    build=_build,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cuda",)),
        DefaultOptions(Options(cudagraphs=True), devices=("cuda",)),
        DefaultOptions(Options(optimization_level=5), devices=("cuda",), suite="full"),
        DefaultOptions(Options(require_full_compilation=False), devices=("cuda",), suite="full"),
    ),
    capability=Capability(requires=(TORCH, *REQUIRES), devices=("cuda",), unsupported=_unsupported),
    evidence=Evidence(
        checks="the program loaded from disk holds at least one TensorRT engine; operators beside it are named"
    ),
    footprint=Footprint(keeps_module_weights=False, caches=True, weight_copies=3.0),
    artifact=FORMAT,
)
