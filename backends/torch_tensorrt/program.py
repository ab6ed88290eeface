"""A module as a TensorRT program in the cache: compiled, saved and loaded back, or found there."""

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
from bakeoff.backends.exported import check_not_quantised, export, graph_hash, operators, program_key
from bakeoff.backends.torch_tensorrt.library import load_library
from bakeoff.backends.torch_tensorrt.partitions import PartitionLog, capture_partition_log
from bakeoff.backends.torch_tensorrt.proof import read_converted
from bakeoff.backends.torch_tensorrt.settings import cache_settings, settings

if TYPE_CHECKING:
    import torch
    from torch import Tensor, fx, nn

PLAN = ".engine"


@dataclass(frozen=True, slots=True)
class Options:
    optimization_level: int = 3
    """0 to 5: how long TensorRT's builder searches."""
    min_block_size: int = 1
    """Operators of the smallest engine; torch_tensorrt's own 5 leaves small ones to PyTorch."""
    cudagraphs: bool = False
    require_full_compilation: bool = True
    hardware_compatible: bool = False
    """Engines for Ampere and newer, not for this GPU alone."""
    version_compatible: bool = False
    """Engines for newer TensorRT too, by lean operators alone."""
    engine_cache: bool = False
    """Keep built engines; only refittable ones can be kept."""
    weight_streaming: bool = False
    """Weights stay on the host and are streamed to the device, within the budget that TensorRT chooses."""
    preallocated_outputs: bool = False
    """The next call's outputs are allocated while this one runs, in memory of their own."""


@dataclass(frozen=True, slots=True)
class SavedProgram:
    """A compiled program, saved in the cache and loaded back."""

    library: Any
    path: Path
    module: "fx.GraphModule"
    told: PartitionLog
    cached: bool
    graph: str
    inside: "Counter[str]"


def save_program(
    module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext
) -> SavedProgram:
    import torch

    check_not_quantised(module, "torch_tensorrt", "it lowers modelopt's quantize operators, not torchao's scaled_mm")
    library = load_library()
    program = export(module, inputs)
    hashed, inside = graph_hash([program.graph]), operators(program.graph)
    known = inspect.signature(library.dynamo.compile).parameters
    chosen = settings(_wanted(options, context), known, context)
    path = context.cache_dir / f"{program_key(program, hashed, sorted(asdict(options).items()))}.ep"
    told = PartitionLog()

    def build(target: Path) -> None:
        told.text = _compile(library, program, inputs, chosen, path, target).text
        gc.collect()  # graphs hold themselves: the engine that was saved would be metered beside the one loaded back
        torch.cuda.empty_cache()

    stored = load_or_build(
        path,
        lambda saved: library.load(str(saved)).module(),
        build,
        context.work_dir / "program.pt2",
        (OSError, RuntimeError, ValueError),
    )
    return SavedProgram(library, path, stored.loaded, told, stored.from_cache, hashed, inside)


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
    """Save the compiled program at `target`, and its raw engine beside `path` if it is one; gives the partitions' log.

    Raises Unsupported, naming them, where operators are left and a full compilation was asked for.
    """
    tensors = tuple(inputs.values())
    with capture_partition_log() as told:
        try:
            compiled = library.dynamo.compile(program, arg_inputs=tensors, **chosen)
        except AssertionError as error:
            if "require_full_compilation" not in str(error):
                raise
            names = (
                ", ".join(sorted(_left(library, program, tensors, chosen, target.with_name("partitions.txt"))))
                or "some operator"
            )
            text = f"TensorRT has no layer for {names}; with require_full_compilation=false PyTorch runs what it lacks"
            raise Unsupported(text) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    plans = list(read_converted(compiled).engines.values())
    if len(plans) == 1 and plans[0]:
        path.with_suffix(PLAN).write_bytes(plans[0])
    _save(compiled, tensors, target)
    return told


def _save(compiled: "fx.GraphModule", tensors: "tuple[Tensor, ...]", path: Path) -> None:
    """What torch_tensorrt.save does with a compiled graph by default, retracing it, but for two things.

    Example inputs, all caches among them, are not pickled beside it. And engines stay objects of the C++ runtime, which
    torch's own reader in C++ makes again: 2.13 and 2.14 turn them into Python's before they save
    (torch_tensorrt/_compile.py, _normalize_engine_constants_to_python), whose pickles run code when the file is opened,
    so that `_check` refuses them. (2.14 also declares what a program changes of its buffers: a component changes none.)
    """
    import torch

    saved = torch.export.export(compiled, tensors, strict=False)
    saved.example_inputs = None
    torch.export.save(saved, path)


def _left(
    library: Any,
    program: "torch.export.ExportedProgram",
    tensors: "tuple[Tensor, ...]",
    chosen: Mapping[str, Any],
    report: Path,
) -> Mapping[str, int]:
    """Operators that TensorRT lacks, by a dry run: the error that stops a full compilation does not name them."""
    asked = {**chosen, "require_full_compilation": False, "dryrun": str(report)}
    with contextlib.redirect_stdout(sys.stderr):
        library.dynamo.compile(program, arg_inputs=tensors, **asked)
    return PartitionLog(report.read_text(encoding="utf-8")).left


def digest(path: Path) -> str:
    """Of the saved program: a warm engine is the same one, while two builds of one graph may differ."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def set_up(library: Any, module: "fx.GraphModule", options: Options) -> None:
    """What a loaded program is told before its first call.

    That its outputs are the caller's is not saved with an engine, and one that takes them for its own gives the same
    preallocated memory at each call (torch_tensorrt/dynamo/runtime/_TRTEngine.py); 2.11 to 2.14 can all be told.
    """
    library.runtime.set_cudagraphs_mode(options.cudagraphs)
    for engine in _engines(module):
        engine.use_pre_allocated_outputs = options.preallocated_outputs
        if options.preallocated_outputs:
            engine.set_output_tensors_as_unowned(True)
        if options.weight_streaming:
            engine.device_memory_budget = engine.automatic_device_memory_budget


def _engines(module: "fx.GraphModule") -> Iterator[Any]:
    """The engines of a loaded program: torch_tensorrt's own context managers find those of an unsaved one alone."""
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(module)
            if hasattr(value, "device_memory_budget"):
                yield value
