"""OpenVINO: converts the exported program with `ov.convert_model`, compiles it for the CPU, binds requests in place.

The graph has the dtypes of the module: in a bf16 variant products and convolutions are bf16, phases and statistics are
fp32. OpenVINO keeps these dtypes only with the precision hint f32, which means "not lower than the graph". The hint
bf16 also lowers the fp32 parts; the world model's phases of hundreds of radians then give a relative error of 0.23. So
the option `hint=typed` (hint f32) is the default, and `hint=dtype` passes the variant's dtype as hint. Without any hint
OpenVINO chooses bf16 on a CPU that has it. `torch.compile(backend="openvino")` is not used: it catches every exception,
and inductor then compiles the graph without a message.

OpenVINO sends usage statistics when it is imported and when it converts, unless it cannot import its telemetry package
(openvino/tools/ovc/telemetry_utils.py). So that package is hidden while openvino is imported.
"""

import hashlib
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    Call,
    DefaultOptions,
    Engine,
    Proof,
    Requirement,
    Unsupported,
)
from bakeoff.backends.format import (
    ArtifactFormat,
    BadArtifact,
    HostRequirement,
    Opening,
    Run,
    WriteRequest,
    WrittenProgram,
    in_one_thread,
)
from bakeoff.backends.graphs import (
    INSTALL,
    TORCH,
    BoundEngine,
    Shape,
    check_not_quantised,
    export,
    input_layouts,
    output_shapes,
    tensors_of,
)
from bakeoff.backends.tracing import TRACED_CALLS, Kernel, Trace
from bakeoff.models.component import DynamicAxis

if TYPE_CHECKING:
    import openvino
    import torch
    from torch import Tensor, nn

_HINTS = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}
_BLOB = "openvino.blob"
"""The compiled model with its weights, in the cache folder."""
_HEAVY = ("Convolution", "GroupConvolution", "FullyConnected", "MatMul", "Deconvolution")


@dataclass(frozen=True, slots=True)
class Options:
    threads: int = 0
    """Number of threads; 0: the variant's threads."""
    streams: int = 1
    hint: Literal["typed", "dtype"] = "typed"
    """INFERENCE_PRECISION_HINT: `typed` is f32, which keeps the graph's dtypes; `dtype` is the variant's dtype."""


def _unsupported(options: Options, _device: str, dtype: str) -> str | None:
    if options.hint == "dtype" and dtype == "given":
        return "hint=dtype needs one dtype, and the model was given with several; use hint=typed"
    if options.threads < 0:
        return f"threads={options.threads} is negative; give 0 (the variant's threads) or more"
    return None if options.streams >= 1 else f"streams={options.streams} is less than 1; give 1 or more"


@contextmanager
def _without_telemetry() -> Iterator[None]:
    """Hide openvino_telemetry from imports, so that openvino, imported in this context, uses a stub that sends nothing.

    Nothing is hidden if openvino_telemetry was imported before. The environment variable CI would also stop it, but
    torch reads that variable and compiles differently.
    """
    name = "openvino_telemetry"
    hidden = name not in sys.modules
    if hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # makes its import raise ImportError
    try:
        yield
    finally:
        if hidden:
            sys.modules.pop(name, None)


@dataclass(frozen=True, slots=True)
class _Compiled(BoundEngine):
    model: "openvino.CompiledModel"
    layouts: Mapping[str, str]
    outputs: tuple[tuple[tuple[int, ...], Any], ...]
    passed_through: tuple[tuple[int, int], ...]
    proof: Proof
    traced: bool
    weights: "tuple[Tensor, ...]"
    """Weights whose memory the model may read."""
    sizes: tuple[DynamicAxis, ...] = ()
    shapes: "Callable[[Sequence[Tensor]], tuple[Shape, ...]] | None" = None
    """Function from the inputs to the shapes of the outputs, if these differ from call to call."""
    requests: "list[openvino.InferRequest]" = field(default_factory=list)
    """The request of each call, in traced builds only: node times are means over all calls so far."""

    def results(self, inputs: "Mapping[str, Tensor]") -> "tuple[Tensor, ...]":
        """Return new memory for the outputs."""
        import torch

        shapes = [shape for shape, _ in self.outputs] if self.shapes is None else self.shapes(tuple(inputs.values()))
        return tuple(torch.empty(shape, dtype=dtype) for shape, (_, dtype) in zip(shapes, self.outputs, strict=True))

    def bind_to(self, inputs: "Mapping[str, Tensor]", memory: "Sequence[Tensor]") -> Call:
        """Return a call that reads the inputs and writes the outputs into `memory`."""
        request = self.model.create_infer_request()
        kept = tuple(tensor.contiguous() for tensor in inputs.values())
        results = tuple(memory)
        run, passed_through = request.infer, self.passed_through
        _set_tensors(request, kept, results, passed_through)

        def call() -> tuple["Tensor", ...]:
            run()
            for output, source in passed_through:
                results[output].copy_(kept[source])
            return results

        def logged_call() -> tuple["Tensor", ...]:
            self.requests.append(request)
            return call()

        return logged_call if self.traced else call

    def prove(self) -> Proof:
        return self.proof

    def trace(self, call: Call) -> Trace:
        """Return the times of all nodes that ran. Means are in whole microseconds, so a node of a few may show 0 ns."""
        call()
        before, earlier = self._node_ns(), len(self.requests)
        started = time.perf_counter_ns()
        for _ in range(TRACED_CALLS):
            call()
        wall_ns = (time.perf_counter_ns() - started) // TRACED_CALLS
        after, calls = self._node_ns(), len(self.requests)
        sums = {name: ns * calls - before[name] * earlier for name, ns in after.items() if ns or before[name]}
        own = Counter({name: max(0, ns) // TRACED_CALLS for name, ns in sums.items()})
        return Trace(tuple(Kernel(name, 1.0, ns, True) for name, ns in own.most_common()), wall_ns)

    def _node_ns(self) -> dict[str, int]:
        """Return the mean time of each node in ns over all calls so far; node names are unique in a compiled model."""
        return {
            f"{node.node_type} {node.node_name} ({node.exec_type})": round(node.real_time.total_seconds() * 1e9)
            for node in self.requests[-1].profiling_info
        }


def _set_tensors(
    request: "openvino.InferRequest",
    inputs: "Sequence[Tensor]",
    results: "Sequence[Tensor]",
    passed_through: Sequence[tuple[int, int]],
) -> None:
    """Set the memory that a request reads and writes, except for outputs that are unchanged inputs.

    The CPU plugin would write such an output's memory, as it was before the call, into the input (openvino 2026.4).
    """
    unchanged = {output for output, _ in passed_through}
    for index, tensor in enumerate(inputs):
        request.set_input_tensor(index, _shared(tensor))
    for index, tensor in enumerate(results):
        if index not in unchanged:
            request.set_output_tensor(index, _shared(tensor))


def _shared(tensor: "Tensor") -> "openvino.Tensor":
    """Wrap the tensor's memory without a copy. numpy has no bfloat16, so such a tensor is passed as int16 bits."""
    import openvino
    import torch

    if tensor.dtype == torch.bfloat16:
        shape = openvino.Shape(list(tensor.shape))
        return openvino.Tensor(tensor.view(torch.int16).numpy(), shape, openvino.Type.bf16)
    return openvino.Tensor(tensor.numpy(), shared_memory=True)


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    sizes = context.sizes
    model, program = _convert(module, inputs, sizes)
    compiled = _compile(model, options, context.dtype, context.threads, context.trace)
    hashed, passed_through = _graph_hash(model), _pass_through(model)

    def save() -> Mapping[str, Any]:
        (context.cache_dir / _BLOB).write_bytes(compiled.export_model().getbuffer())
        return {"graph": hashed, "passed_through": passed_through}

    context.keep(save)
    return _Compiled(
        compiled,
        input_layouts(inputs, sizes),
        _output_types(compiled),
        passed_through,
        _prove(compiled, hashed, context.dtype),
        context.trace,
        _read_in_place(program),
        sizes,
        output_shapes(program) if sizes else None,
    )


def _open(kept: Mapping[str, Any], inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    with _without_telemetry():
        import openvino

    blob = (context.cache_dir / _BLOB).read_bytes()
    settings = _settings(options, context.dtype, context.threads)
    compiled = openvino.Core().import_model(blob, "CPU", settings)
    passed_through = tuple((output, source) for output, source in kept["passed_through"])
    proof = _prove(compiled, kept["graph"], context.dtype)
    return _Compiled(compiled, input_layouts(inputs), _output_types(compiled), passed_through, proof, False, ())


def _convert(
    module: "nn.Module", inputs: "Mapping[str, Tensor]", sizes: Sequence[DynamicAxis] = ()
) -> "tuple[openvino.Model, torch.export.ExportedProgram]":
    """Convert the module with static shapes, except for the axes in `sizes`; return the model and the exported program.

    Raises Unsupported with the names of operators that OpenVINO lacks.
    """
    with _without_telemetry():
        import openvino

    check_not_quantised(module, "OpenVINO", "use int8+inductor")
    program = export(module, inputs, sizes)
    try:
        with _without_telemetry():
            model = openvino.convert_model(program)
    except openvino.frontend.OpConversionFailure as error:
        raise Unsupported(
            f"OpenVINO cannot convert {unconverted_operators(str(error))}; use another backend, such as inductor"
        ) from error
    shapes = {name: [openvino.Dimension(size) for size in tensor.shape] for name, tensor in inputs.items()}
    for one in sizes:
        shapes[one.input][one.axis] = openvino.Dimension(one.min, one.max)
    model.reshape({index: openvino.PartialShape(shape) for index, shape in enumerate(shapes.values())})
    return model, program


def _read_in_place(program: "torch.export.ExportedProgram") -> "tuple[Tensor, ...]":
    """Return the weights that must live as long as the model is used.

    A constant in bf16 points to the tensor's memory and does not keep it (openvino 2026.4,
    frontend/pytorch/utils.py, torch_tensor_to_ov_const); in other dtypes it keeps what it reads.
    """
    import torch

    return tuple(tensor for tensor in tensors_of(program).values() if tensor.dtype == torch.bfloat16)


def _compile(
    model: "openvino.Model", options: Options, dtype: str, threads: int, trace: bool = False
) -> "openvino.CompiledModel":
    import openvino

    return openvino.Core().compile_model(model, "CPU", _settings(options, dtype, threads, trace))


def _settings(options: Options, dtype: str, threads: int, trace: bool = False) -> dict[str, Any]:
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32" if options.hint == "typed" else _HINTS[dtype],
        "INFERENCE_NUM_THREADS": options.threads or threads,
        "NUM_STREAMS": str(options.streams),
        "PERF_COUNT": "YES" if trace else "NO",
    }


def _pass_through(model: "openvino.Model") -> tuple[tuple[int, int], ...]:
    """Return the indices (output, input) of each output that is an unchanged input.

    The CPU plugin does not write memory that is set for such an output, so the engine copies the input into it.
    """
    sources = [result.input_value(0).get_node() for result in model.get_results()]
    return tuple(
        (index, model.get_parameter_index(source))
        for index, source in enumerate(sources)
        if source.get_type_name() == "Parameter"
    )


def _output_types(compiled: "openvino.CompiledModel") -> tuple[tuple[tuple[int, ...], Any], ...]:
    """Return shape and dtype of each output; () for a shape that differs from call to call."""
    import torch

    types = {
        "f32": torch.float32,
        "bf16": torch.bfloat16,
        "f16": torch.float16,
        "i64": torch.int64,
        "i32": torch.int32,
        "i16": torch.int16,
        "i8": torch.int8,
        "u8": torch.uint8,
        "boolean": torch.bool,
    }
    return tuple(
        (() if port.partial_shape.is_dynamic else tuple(port.shape), types[port.element_type.get_type_name()])
        for port in compiled.outputs
    )


def unconverted_operators(report: str) -> str:
    """Return the operators that OpenVINO's error report lists as not converted, separated by commas."""
    missing = re.findall(r"No conversion rule found for operations: (.+)", report)
    failed = re.findall(r"^-- (\S+) with a message", report, re.MULTILINE)
    names = [name.strip().removesuffix(".default") for part in (*missing, *failed) for name in part.split(",")]
    return ", ".join(dict.fromkeys(names)) or "the graph (its report names no operator)"


def precision_fallback(dtype: str, products: Mapping[str, int]) -> str | None:
    """Return the products' precisions as a noun phrase if at most half of the products ran in `dtype`; else None.

    `products` is the number of convolutions and matrix products by OpenVINO's name of their precision.
    """
    if dtype not in _HINTS:
        return None
    right = products.get(_HINTS[dtype], 0)
    if 2 * right > sum(products.values()) or not products:
        return None
    found = ", ".join(f"{count} in {precision}" for precision, count in sorted(products.items()))
    return f"kernels of another dtype than {dtype}: convolutions and products ran {found}"


def _graph_hash(model: "openvino.Model") -> str:
    """Return a hash of the operations and shapes of a model before it is compiled."""
    listed = hashlib.sha256()
    for operation in model.get_ordered_ops():
        shapes = [str(port.get_partial_shape()) for port in operation.outputs()]
        listed.update(f"{operation.get_type_name()} {shapes}\n".encode())
    return listed.hexdigest()[:16]


def _prove(compiled: "openvino.CompiledModel", hashed: str, dtype: str) -> Proof:
    """Read the proof from the compiled graph: the kernel of each node and the precision it runs in."""
    nodes: Counter[str] = Counter()
    heavy: Counter[str] = Counter()
    reference = 0
    for node in compiled.get_runtime_model().get_ordered_ops():
        about = node.get_rt_info()
        kind, precision, kernel = (
            about[key].astype(str) if key in about else "" for key in ("layerType", "runtimePrecision", "primitiveType")
        )
        if kind in ("Const", "Constant", "Input", "Output"):
            continue
        nodes[kind] += 1
        reference += kernel.startswith("ref")
        if kind in _HEAVY:
            heavy[precision] += 1
    return Proof(
        fell_back=precision_fallback(dtype, heavy) or "",
        graphs=1,
        operators_inside=nodes,
        facts={
            "reference_kernels": reference,
            **{f"products_in_{precision}": count for precision, count in sorted(heavy.items())},
        },
        graph_hash=hashed,
    )


def _write(request: WriteRequest) -> WrittenProgram:
    model, _program = _convert(request.module, request.inputs)
    import openvino

    path = request.folder / f"{request.name}.xml"
    openvino.save_model(model, path, compress_to_fp16=False)
    needs = (HostRequirement("openvino", "at least"),)  # OpenVINO reads models written by earlier versions
    return WrittenProgram(path.name, (), needs, {"ir_version": _read_ir(path)[0][0]})


def _check(path: Path, files: Mapping[str, int]) -> None:
    """Check that the .xml reads only the .bin of the same name, within its size; OpenVINO reads weights by offset.

    Raises BadArtifact otherwise.
    """
    versions, ends = _read_ir(path)
    if not versions:
        raise BadArtifact(f"{path.name} is not an OpenVINO IR: it has no net with a version; export the artifact again")
    weights = path.with_suffix(".bin").name
    size = files.get(weights)
    if size is None:
        raise BadArtifact(f"{path.name} needs {weights}, which is missing; copy the whole folder again")
    if max(ends, default=0) > size:
        raise BadArtifact(
            f"{path.name} reads {weights} up to byte {max(ends)}, but the file has {size} bytes; export it again"
        )


def _read_ir(path: Path) -> tuple[list[int], list[int]]:
    """Return the versions of the nets in an IR, and the byte at which each constant ends in the .bin.

    Raises BadArtifact for a file that is not an IR.
    """
    from xml.parsers import expat

    versions: list[int] = []
    ends: list[int] = []

    def element(name: str, about: Mapping[str, str]) -> None:
        if name == "net" and "version" in about:
            versions.append(int(about["version"]))
        if "offset" in about and "size" in about:
            start, length = int(about["offset"]), int(about["size"])
            if min(start, length) < 0:
                raise ValueError("a constant has a negative offset or size")
            ends.append(start + length)

    def doctype(*_: object) -> None:
        raise ValueError("it declares XML entities, which may read other files")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.StartDoctypeDeclHandler = element, doctype
    try:
        if path.suffix != ".xml":  # OpenVINO reads other formats too
            raise ValueError("its name does not end in .xml")
        with path.open("rb") as file:
            parser.ParseFile(file)
    except (expat.ExpatError, ValueError) as error:
        raise BadArtifact(f"{path.name} is not an OpenVINO IR: {error}; export the artifact again") from error
    return versions, ends


def _read(path: Path, _constants: Sequence[Path], opening: Opening) -> Run:
    with _without_telemetry():
        import openvino
    import torch

    core = openvino.Core()
    core.set_property({"ENABLE_MMAP": False})  # or a file that is overwritten changes the weights of an open program
    model = core.read_model(path)
    compiled = _compile(model, opening.options, opening.dtype, opening.threads)
    outputs, passed_through = _output_types(compiled), _pass_through(model)
    request = compiled.create_infer_request()

    def run(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        kept = [tensor.contiguous() for tensor in tensors]
        results = [torch.empty(shape, dtype=dtype) for shape, dtype in outputs]
        _set_tensors(request, kept, results, passed_through)
        request.infer()
        for output, source in passed_through:
            results[output].copy_(kept[source])
        return results

    return in_one_thread(run, path)  # calls share the request, and so its tensors


BACKEND = Backend(
    name="openvino",
    summary="OpenVINO: the exported program converted and compiled for the CPU",
    build=_build,
    open=_open,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cpu",), dtypes=("bf16",)),
        DefaultOptions(Options(hint="dtype"), devices=("cpu",), suite="full", dtypes=("bf16",)),
    ),
    requires=(TORCH, Requirement("openvino", INSTALL)),
    devices=("cpu",),
    dtypes=("fp32", "bf16", "fp16", "given"),
    unsupported_options=_unsupported,
    unsupported_sizes=None,
    own_attention=True,
    tracer="OpenVINO",
    checks="the compiled graph runs more than half of its convolutions and products in the variant's dtype",
    binds_memory=True,
    own_threads=True,
    keeps_module_weights=False,
    weight_copies=3.0,
    overlaps=True,
    artifact=ArtifactFormat(
        name="openvino",
        summary="OpenVINO IR (.xml and .bin)",
        write=_write,
        check=_check,
        read=_read,
    ),
)
