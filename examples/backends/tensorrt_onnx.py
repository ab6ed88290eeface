"""TensorRT from ONNX, as trtexec's users deploy it: torch.onnx, TensorRT's parser, one strongly typed engine, saved.

    bakeoff sweep wm --backends 'examples/backends/tensorrt_onnx.py:BACKEND[graph]'

The calls are those of TensorRT's Python documentation (docs.nvidia.com/deeplearning/tensorrt/latest, "Python API
Documentation", and "The Python API" of "Inference Library", 10.x and 11.0): Builder, OnnxParser, a timing cache,
build_serialized_network, Runtime, and one execution context whose tensors are set by address. An engine computes the
whole model or does not build. A network keeps the model's dtypes; TensorRT 11 has no other networks.

No card has run this, and the host that it was written on has no TensorRT libraries: its test uses a stand-in.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bakeoff.backends.artifact_cache import load_or_build
from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Call,
    DefaultOptions,
    Engine,
    Outputs,
    Proof,
    Requirement,
    Unsupported,
)
from bakeoff.backends.capture import capture, replaying
from bakeoff.backends.format import (
    ArtifactFormat,
    HostRequirement,
    Opening,
    Run,
    WriteRequest,
    WrittenProgram,
    in_one_thread,
)
from bakeoff.backends.graphs import TORCH, check_layouts, check_not_quantised, input_layouts, operators
from bakeoff.backends.install import tensorrt_command
from bakeoff.backends.onnxruntime.export import MODEL, export_program
from bakeoff.backends.port import NOTHING_CARRIED, Port, bound_port
from bakeoff.backends.tracing import Trace, trace_operators

if TYPE_CHECKING:
    from torch import Tensor, nn

_DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}
"""torch's name of each of TensorRT's dtypes."""


@dataclass(frozen=True, slots=True)
class Options:
    level: int = 3
    """How long the builder searches for fast kernels, from 0 to 5; trtexec's --builderOptimizationLevel."""
    graph: bool = False
    """Capture each call as one CUDA graph that reads its inputs in place; trtexec's --useCudaGraph."""


@dataclass(slots=True)
class _Engine(Engine):
    """A deserialised engine, whose calls read the bound tensors and write into outputs of fixed memory."""

    plan: Any
    """trt.ICudaEngine"""
    layouts: Mapping[str, str]
    proof: Proof
    context: Any = field(init=False)
    bound: object = None
    """The call whose addresses the context has."""

    def __post_init__(self) -> None:
        self.context = self.plan.create_execution_context()

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        check_layouts(self.layouts, inputs)
        loose = next((name for name, tensor in inputs.items() if not tensor.is_contiguous()), None)
        if loose is not None:
            raise Unsupported(f"TensorRT reads contiguous memory, and the input {loose} is not; make it so")
        return self._bind(inputs, self._new_results(inputs))

    def port(
        self,
        inputs: "Mapping[str, Tensor]",
        outputs: Sequence[str],
        carried: Mapping[str, str] = NOTHING_CARRIED,
        shared: bool = False,
    ) -> Port:
        return bound_port(inputs, self._new_results(inputs), self._bind, outputs, carried, shared)

    def _new_results(self, inputs: "Mapping[str, Tensor]") -> "list[Tensor]":
        """Return new memory for the outputs, which follow the inputs in the engine's list of tensors."""
        import torch

        plan, device = self.plan, next(iter(inputs.values())).device
        names = [plan.get_tensor_name(index) for index in range(len(inputs), plan.num_io_tensors)]
        return [
            torch.empty(
                tuple(plan.get_tensor_shape(name)),
                dtype=getattr(torch, _DTYPES[plan.get_tensor_dtype(name).name]),
                device=device,
            )
            for name in names
        ]

    def _bind(self, inputs: "Mapping[str, Tensor]", results: "Sequence[Tensor]") -> Call:
        import torch

        names = map(self.plan.get_tensor_name, range(self.plan.num_io_tensors))
        tensors = dict(zip(names, (*inputs.values(), *results), strict=True))
        outputs: Outputs = tuple(results)

        def call() -> Outputs:
            if self.bound is not call:  # the context is called by several sets of inputs in turn
                for name, tensor in tensors.items():
                    if not self.context.set_tensor_address(name, tensor.data_ptr()):
                        raise RuntimeError(f"TensorRT has no tensor {name} in this engine")
                self.bound = call
            if not self.context.execute_async_v3(torch.cuda.current_stream().cuda_stream):
                raise RuntimeError("TensorRT could not enqueue the engine; its log says why")
            return outputs

        return call

    def prove(self) -> Proof:
        return self.proof

    def trace(self, call: Call) -> Trace:
        return trace_operators(call, own=("",))

    def close(self) -> None:
        self.context = self.bound = None


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    path, exported, cached = _saved_plan(module, inputs, options, context)
    plan = _load(path)
    proof = Proof(
        graphs=1,
        operators_inside=operators(exported.program.graph),
        facts={"layers": plan.num_layers, "engine_from_cache": cached},
        graph_hash=exported.graph,
        artifact_bytes=path.stat().st_size,
    )
    engine = _Engine(plan, input_layouts(inputs), proof)
    return capture(engine, inputs) if options.graph else engine


def _saved_plan(
    module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext
) -> tuple[Path, Any, bool]:
    """Return the plan in the cache, the exported program, and whether the plan was there; build it if it was not."""
    check_not_quantised(module, "torch.onnx", "quantise with modelopt, and use tensorrt-aot")
    exported = export_program(module, inputs, context, "tensorrt", options.level, context.dtype)
    path = context.cache_dir / f"{exported.key}.plan"

    def build(target: Path) -> None:
        with TemporaryDirectory(dir=context.work_dir) as temporary:
            folder = Path(temporary, "onnx")
            exported.convert(folder)
            target.write_bytes(_plan(folder / MODEL, options, context))

    _, cached = load_or_build(path, _load, build, context.work_dir / "engine.plan", (OSError, ValueError))
    return path, exported, cached


def _plan(model: Path, options: Options, context: BuildContext) -> bytes:
    """Build a serialised engine from an ONNX model. Raises Unsupported with the parser's errors."""
    import tensorrt as trt

    builder = trt.Builder(_logger())
    typed = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)  # before 11 a choice
    network = builder.create_network(0 if typed is None else 1 << int(typed))
    parser = trt.OnnxParser(network, _logger())
    if not parser.parse_from_file(str(model)):  # a file: its weights are beside it
        errors = "; ".join(parser.get_error(index).desc() for index in range(parser.num_errors))
        raise Unsupported(f"TensorRT's ONNX parser: {errors}; use tensorrt-aot, or inductor")
    config = builder.create_builder_config()
    config.builder_optimization_level = options.level
    if context.dtype != "tf32":
        config.clear_flag(trt.BuilderFlag.TF32)
    timings = context.cache_dir / "timing.cache"
    known = timings.read_bytes() if timings.exists() else b""
    config.set_timing_cache(config.create_timing_cache(known), ignore_mismatch=False)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("TensorRT could not build the engine; its log above says why")
    context.cache_dir.mkdir(parents=True, exist_ok=True)
    timings.write_bytes(bytes(config.get_timing_cache().serialize()))
    return bytes(plan)


def _load(path: Path) -> Any:
    """Return the engine in a file. Raises ValueError if TensorRT does not take it."""
    import tensorrt as trt

    plan = trt.Runtime(_logger()).deserialize_cuda_engine(path.read_bytes())
    if plan is None:
        raise ValueError(f"{path.name} is no engine of this version of TensorRT for this GPU")
    return plan


def _logger() -> Any:
    import tensorrt as trt

    return trt.Logger(trt.Logger.WARNING)


def _write(request: WriteRequest) -> WrittenProgram:
    path, *_ = _saved_plan(request.module, request.inputs, request.options, request.context)
    shutil.copyfile(path, request.folder / f"{request.name}.engine")
    needs = [HostRequirement("tensorrt", "is"), HostRequirement("gpu", "is"), HostRequirement("driver", "at least")]
    return WrittenProgram(f"{request.name}.engine", needs=tuple(needs), facts=asdict(request.options))


def _read(path: Path, _constants: Sequence[Path], opening: Opening) -> Run:
    engines: list[_Engine] = []

    def run(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        inputs = {str(place): tensor.contiguous() for place, tensor in enumerate(tensors)}
        if not engines:
            engines.append(_Engine(_load(path), input_layouts(inputs), Proof()))
        return engines[0].bind(inputs)()

    return in_one_thread(replaying(run) if opening.options.graph else run, path)


def _unsupported(options: Options, _device: str, _dtype: str) -> str | None:
    return None if options.level in range(6) else f"TensorRT has no level={options.level}; give 0 to 5"


BACKEND = Backend(
    name="tensorrt-onnx",
    summary="TensorRT from ONNX: one strongly typed engine, as trtexec builds it",
    build=_build,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cuda",), dtypes=("bf16", "fp16")),
        DefaultOptions(Options(graph=True), devices=("cuda",), dtypes=("bf16", "fp16")),
    ),
    requires=(TORCH, Requirement("onnxscript", "pip install onnxscript"), Requirement("tensorrt", tensorrt_command())),
    devices=("cuda",),
    unsupported_options=_unsupported,
    own_attention=True,
    checks="the engine in the file is the whole model; calls dispatch no operators",
    binds_memory=True,
    same_when_traced=("cuda",),
    keeps_module_weights=False,
    caches=True,
    weight_copies=3.0,
    gpu_weight_copies=2.0,
    host_weight_copies=4.0,
    searches=True,
    artifact=ArtifactFormat(
        name="tensorrt-onnx", summary="TensorRT engine (.engine), as trtexec loads it", write=_write, read=_read
    ),
)
