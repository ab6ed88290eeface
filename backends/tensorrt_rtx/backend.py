"""TensorRT for RTX: exports with torch.onnx, compiles engines ahead of time, runs them by ONNX Runtime's plugin.

An engine is compiled for one architecture (`target`), which need not be here. `here` is that of this GPU, on
which the engine runs: inputs and outputs stay on the device, calls are queued on a stream as those of the CUDA provider
(`bakeoff.backends.onnxruntime.binding`), and what the engine finishes for its card lies in the runtime cache. With
another target nothing runs, and the row is `built`. Operators outside of engines are left to ONNX Runtime's CPU
provider, which is a fallback; version 0.5.0 of the provider leaves out the whole graph for one operator that it does
not know. No card has run any of this yet.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Call,
    DefaultOptions,
    Engine,
    Proof,
    Requirement,
)
from bakeoff.backends.compilers import c_compiler
from bakeoff.backends.graphs import TORCH, input_layouts
from bakeoff.backends.onnxruntime.export import MODEL
from bakeoff.backends.onnxruntime.placement import read_placement
from bakeoff.backends.onnxruntime.session import Session, outputs_of
from bakeoff.backends.tensorrt_rtx.artifact import FORMAT
from bakeoff.backends.tensorrt_rtx.compile_engine import PROVIDER
from bakeoff.backends.tensorrt_rtx.compiler import Compiled, compiled, has_driver, kept
from bakeoff.backends.tensorrt_rtx.fp8 import OPERATOR
from bakeoff.backends.tensorrt_rtx.options import HERE, INSTALL, LEAST_RUNTIME, PLUGIN, Options
from bakeoff.backends.tensorrt_rtx.session import open_context

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class BuiltForAnother(Engine):
    """Engines for a GPU that is not here."""

    proof: Proof

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        raise AssertionError(f"engines for another GPU are not bound here, to {', '.join(inputs)}")

    def prove(self) -> Proof:
        return self.proof


def _missing(_options: Options, _device: str) -> str | None:
    found = [_version(name) for name in ("onnxruntime", "onnxruntime-gpu")]
    if not any(one and Version(one) >= Version(LEAST_RUNTIME) for one in found):
        return f"tensorrt-rtx needs ONNX Runtime {LEAST_RUNTIME} or newer; {INSTALL}"
    if not has_driver() and c_compiler() is None:
        return "without an NVIDIA driver, engines are built with a C compiler's help, and there is none; install gcc"
    return None


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _unsupported(options: Options, device: str, _dtype: str) -> str | None:
    if device == "cpu" and options.target == HERE:
        return "it runs on RTX GPUs only; to build engines for one here give its architecture, as in --build-for sm89"
    if device == "cuda" and options.target != HERE:
        return "engines for a named target are not run; leave target out, or build them @cpu"
    if options.target != HERE and options.cuda_graph:
        return "cuda_graph is chosen where an engine is run; leave it out of a build for another GPU"
    return None


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    return _engine(compiled(module, inputs, options.target, context), inputs, options, context)


def _open(saved: Mapping[str, Any], inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    return _engine(kept(context.cache_dir / saved["folder"], saved["graph"]), inputs, options, context)


def _engine(made: Compiled, inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    proof = _proof(made)
    if options.target != HERE:
        return BuiltForAnother(proof)
    import onnx

    path, profile = made.folder / MODEL, context.work_dir / "profile" if context.trace else None
    opened = open_context(
        path, options.cuda_graph, context.device, context.threads, context.cache_dir / "runtime", profile
    )
    placed = read_placement(opened.session, onnx.load(str(path), load_external_data=False), PROVIDER)
    proof = replace(
        proof,
        fell_back=placed.fell_back(PROVIDER),
        facts={**proof.facts, "providers": ", ".join(opened.session.get_providers())},
    )
    names = tuple(value.name for value in opened.session.get_inputs())
    layouts = input_layouts(inputs, context.sizes)
    return Session(opened, names, layouts, outputs_of(opened.session), PROVIDER, proof, options.cuda_graph)


def _proof(made: Compiled) -> Proof:
    about = made.about
    names = ("engines", "engine_s", "engine_peak_bytes", "precisions")
    return Proof(
        graphs=1,
        operators_inside=Counter(about["inside"]),
        operators_outside=Counter(about["outside"]),
        facts={
            "target": made.engine.target,
            "tensorrt_rtx": made.engine.version,
            **{name: about[name] for name in names},
            "export_from_cache": made.cached,
        },
        graph_hash=made.graph,
        artifact_bytes=about["engine_bytes"],
    )


BACKEND = Backend(
    name="tensorrt-rtx",
    summary="TensorRT for RTX engines, compiled ahead of time, also for GPUs that are not here",
    build=_build,
    open=_open,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cuda",), suite="full", dtypes=("bf16", "fp16")),
        DefaultOptions(Options(cuda_graph=True), devices=("cuda",), suite="full", dtypes=("fp16",)),
    ),
    requires=(
        TORCH,
        Requirement("onnxruntime", INSTALL),
        Requirement("onnxscript", INSTALL),
        Requirement(PLUGIN, INSTALL),
    ),
    dtypes=("fp32", "tf32", "fp16", "bf16"),
    missing=_missing,
    unsupported_options=_unsupported,
    own_attention=True,
    quantise_operators=(OPERATOR,),
    builds_for=lambda options: "" if options.target == HERE else options.target,
    tracer="ONNX Runtime",
    checks="the session has the provider, and every node runs in one of its engines but those that compute shapes",
    binds_memory=True,
    keeps_module_weights=False,
    caches=True,
    weight_copies=4.0,
    gpu_weight_copies=2.0,
    host_weight_copies=4.0,  # the exported model, and what the compiler's process holds of it
    overlaps=lambda options: options.target == HERE,  # their seconds are what such rows are for,
    artifact=FORMAT,
)
