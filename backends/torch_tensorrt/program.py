"""Compiles a module to a TensorRT program in the cache, or finds it there, and loads it."""

import contextlib
import gc
import hashlib
import inspect
import operator
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends.artifact_cache import load_or_build
from bakeoff.backends.backend import BuildContext, Unsupported
from bakeoff.backends.graphs import check_not_quantised, export, graph_hash, operators, program_key
from bakeoff.backends.torch_tensorrt.builder_errors import builder_errors
from bakeoff.backends.torch_tensorrt.library import load_library
from bakeoff.backends.torch_tensorrt.partitions import PartitionLog, capture_partition_log
from bakeoff.backends.torch_tensorrt.proof import read_converted
from bakeoff.backends.torch_tensorrt.settings import QUANTISED_ADVICE, cache_settings, settings

if TYPE_CHECKING:
    import torch
    from torch import Tensor, fx, nn

ENGINE_ENDING = ".engine"
_PICKLE_PROTOCOL = 4
"""An engine of 4 GiB and more does not fit in torch's default, protocol 2 (pytorch#142004)."""


@dataclass(frozen=True, slots=True)
class Options:
    optimization_level: int = 3
    """0 to 5: how long TensorRT's builder searches for fast kernels."""
    min_block_size: int = 1
    """Fewest operators of an engine; with torch_tensorrt's default of 5, PyTorch runs smaller groups."""
    cudagraphs: bool = False
    require_full_compilation: bool = True
    """Fail the build if TensorRT lacks an operator; if False, PyTorch runs that operator."""
    hardware_compatible: bool = False
    """Engines run on Ampere and newer GPUs, not only on this one."""
    version_compatible: bool = False
    """Engines also run with newer versions of TensorRT, but use only the operators of its lean runtime."""
    engine_cache: bool = False
    """Cache built engines; this makes them refittable, since others cannot be cached."""
    weight_streaming: bool = False
    """Weights stay in host memory and are streamed to the device, within the budget that TensorRT chooses."""
    preallocated_outputs: bool = False
    """While a call runs, allocate new memory for the outputs of the next call."""


@dataclass(frozen=True, slots=True)
class SavedProgram:
    """A compiled program in the cache, and the module loaded from it."""

    library: Any
    path: Path
    module: "fx.GraphModule"
    log: PartitionLog
    """Empty for a program that was in the cache."""
    cached: bool
    graph: str
    operators: "Counter[str]"
    """Number of each operator in the exported graph."""


def save_program(
    module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext
) -> SavedProgram:
    """Load the module's program from the cache; compile and save it first if it is not there.

    Raises Unavailable if torch_tensorrt does not load, Unsupported for operators, settings or weights it cannot take.
    """
    import torch

    check_not_quantised(module, "torch_tensorrt", QUANTISED_ADVICE)
    library = load_library()
    program = export(module, inputs)
    hashed, counted = graph_hash([program.graph]), operators(program.graph)
    known = inspect.signature(library.dynamo.compile).parameters
    chosen = settings(_wanted(options, context), known, context)
    path = context.cache_dir / f"{program_key(program, hashed, sorted(asdict(options).items()))}.ep"
    log = PartitionLog()

    def build(target: Path) -> None:
        log.text = _compile(library, program, inputs, chosen, path, target).text
        # Graphs have reference cycles: without a collection, memory figures would count the saved engine and the loaded
        # one.
        gc.collect()
        torch.cuda.empty_cache()

    stored = load_or_build(
        path,
        lambda saved: load_program(library, saved),
        build,
        context.work_dir / "program.pt2",
        (OSError, RuntimeError, ValueError),
    )
    return SavedProgram(library, path, stored.loaded, log, stored.from_cache, hashed, counted)


def load_program(library: Any, path: Path) -> "fx.GraphModule":
    """The module of a saved program, without the guards that torch adds when it is loaded.

    They compare shapes and dtypes of all inputs in Python at each call, 3 us an input, which no other engine is charged
    for; callers check the layouts once, when they bind.
    """
    module: fx.GraphModule = library.load(str(path)).module()
    for node in module.graph.find_nodes(op="call_module", target="_guards_fn"):
        module.graph.erase_node(node)
    module.recompile()
    return module


def _wanted(options: Options, context: BuildContext) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "optimization_level": options.optimization_level,
        "min_block_size": options.min_block_size,
        "require_full_compilation": options.require_full_compilation,
        "hardware_compatible": options.hardware_compatible,
        "version_compatible": options.version_compatible,
        "enable_weight_streaming": options.weight_streaming,
    }
    return wanted | (cache_settings(context.cache_dir) if options.engine_cache else {})


def _compile(
    library: Any,
    program: "torch.export.ExportedProgram",
    inputs: "Mapping[str, Tensor]",
    chosen: Mapping[str, Any],
    path: Path,
    target: Path,
) -> PartitionLog:
    """Save the compiled program at `target`, and beside `path` its raw engine if it is a single one; return the log.

    Raises Unsupported with the names of operators that TensorRT lacks, if `require_full_compilation` is set.
    """
    tensors = tuple(inputs.values())
    with capture_partition_log() as log:
        try:
            with builder_errors():
                compiled = library.dynamo.compile(program, arg_inputs=tensors, **chosen)
        except AssertionError as error:
            if "require_full_compilation" not in str(error):
                raise
            unconverted = _unconverted(library, program, tensors, chosen, target.with_name("partitions.txt"))
            names = ", ".join(sorted(unconverted)) or "some operator"
            raise Unsupported(
                f"TensorRT has no layer for {names}; use require_full_compilation=false to run it with PyTorch"
            ) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    engines = list(read_converted(compiled).engines.values())
    if len(engines) == 1 and engines[0]:
        path.with_suffix(ENGINE_ENDING).write_bytes(engines[0])
    _save(compiled, tensors, target)
    return log


def _save(compiled: "fx.GraphModule", tensors: "tuple[Tensor, ...]", path: Path) -> None:
    """Save a compiled graph by tracing it again, as torch_tensorrt.save does by default, with two differences.

    Example inputs, which include all caches, are not pickled into the file. And engines stay objects of the C++
    runtime, which torch's C++ code can read. torch_tensorrt 2.13 and 2.14 convert them to Python objects before saving
    (torch_tensorrt/_compile.py, _normalize_engine_constants_to_python); their pickles run code when the file is opened,
    and the artifact's check rejects them. 2.14 also states which buffers a program changes; components change none.
    """
    import torch

    saved = torch.export.export(compiled, tensors, strict=False)
    saved.example_inputs = None
    torch.export.save(saved, path, pickle_protocol=_PICKLE_PROTOCOL)


def _unconverted(
    library: Any,
    program: "torch.export.ExportedProgram",
    tensors: "tuple[Tensor, ...]",
    chosen: Mapping[str, Any],
    report: Path,
) -> Mapping[str, int]:
    """Operators that TensorRT lacks, from a dry run: the error of a failed full compilation does not name them."""
    dry_run = {**chosen, "require_full_compilation": False, "dryrun": str(report)}
    with contextlib.redirect_stdout(sys.stderr):
        library.dynamo.compile(program, arg_inputs=tensors, **dry_run)
    return PartitionLog(report.read_text(encoding="utf-8")).unconverted


def file_digest(path: Path) -> str:
    """Hash of a saved program: equal if it came from the cache; two builds of the same graph may differ."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def configure(library: Any, module: "fx.GraphModule", options: Options) -> None:
    """Set a loaded program's runtime options; call it before the program's first call.

    Whether the caller owns the outputs is not saved with an engine. Unless it is set, an engine with preallocated
    outputs returns the same memory at each call (torch_tensorrt/dynamo/runtime/_TRTEngine.py, 2.11 to 2.14).
    """
    library.runtime.set_cudagraphs_mode(options.cudagraphs)
    for engine in _engines(module):
        engine.use_pre_allocated_outputs = options.preallocated_outputs
        if options.preallocated_outputs:
            engine.set_output_tensors_as_unowned(True)
        if options.weight_streaming:
            engine.device_memory_budget = engine.automatic_device_memory_budget


def _engines(module: "fx.GraphModule") -> Iterator[Any]:
    """The engines of a loaded program; torch_tensorrt's own context managers only find those of an unsaved one."""
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(module)
            if hasattr(value, "device_memory_budget"):
                yield value
