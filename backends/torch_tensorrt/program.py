"""Compiles a module to a TensorRT program in the cache, or finds it there, and loads it."""

import contextlib
import gc
import hashlib
import inspect
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends.artifact_cache import load_or_build
from bakeoff.backends.backend import BuildContext, Unsupported
from bakeoff.backends.graphs import check_not_quantised, dynamic_shapes, export, graph_hash, operators, program_key
from bakeoff.backends.torch_tensorrt.external import (
    ExternalOperator,
    asked,
    externalise,
    register_files,
    save_operators,
    strip_guards,
)
from bakeoff.backends.torch_tensorrt.proof import PartitionLog, builder_errors, capture_partition_log, read_converted
from bakeoff.backends.torch_tensorrt.settings import (
    QUANTISED_ADVICE,
    check_outside,
    load_library,
    qualified,
    settings,
)
from bakeoff.models.component import DynamicAxis

if TYPE_CHECKING:
    import torch
    from torch import Tensor, fx, nn

ENGINE_ENDING = ".engine"
_PICKLE_PROTOCOL = 4
"""Pickle protocol of saved programs: an engine of 4 GiB or more does not fit in torch's default, 2 (pytorch#142004)."""


@dataclass(frozen=True, slots=True)
class Options:
    optimization_level: int = 3
    """How long TensorRT's builder searches for fast kernels, from 0 to 5."""
    min_block_size: int = 1
    """Smallest number of operators in an engine; PyTorch runs smaller groups. torch_tensorrt's own default is 5."""
    cudagraphs: bool = False
    """Let torch_tensorrt's runtime capture each engine; it copies inputs and outputs at each call."""
    graph: bool = False
    """Capture each call as one CUDA graph that reads its inputs in place (capture.py); no card has run this."""
    require_full_compilation: bool = True
    """Fail the build if TensorRT lacks an operator outside of `external`; if False, PyTorch runs that operator."""
    external: str = ""
    """Submodules that PyTorch runs, each as one custom operator, joined by `+`: `blocks.3.attention`."""
    hardware_compatible: bool = False
    """Engines run on Ampere and newer GPUs, not only on this one."""
    version_compatible: bool = False
    """Engines also run with newer versions of TensorRT, but use only the operators of its lean runtime."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """An exported program, and how torch_tensorrt must compile it."""

    program: "torch.export.ExportedProgram"
    sizes: tuple[DynamicAxis, ...]
    external: tuple[ExternalOperator, ...]
    asked: Mapping[str, str]
    """The qualified name of each external operator, by the option that asks for it."""
    settings: Mapping[str, Any]
    whole: bool
    """Whether every other operator must be in an engine."""


@dataclass(frozen=True, slots=True)
class SavedProgram:
    """A compiled program in the cache, and the module loaded from it."""

    library: Any
    path: Path
    module: "fx.GraphModule"
    log: PartitionLog
    """Log of the partitioning; empty for a program that was in the cache."""
    cached: bool
    graph: str
    operators: "Counter[str]"
    """Number of each operator in the exported graph."""


def lower(
    library: Any, module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext
) -> Lowered:
    """Export the module and choose the settings, without compiling. Raises Unsupported for options and weights."""
    check_not_quantised(module, "torch_tensorrt", QUANTISED_ADVICE)
    module, external = externalise(module, inputs, options.external)
    known = inspect.signature(library.dynamo.compile).parameters
    named = asked(external)
    wanted: dict[str, Any] = {
        "optimization_level": options.optimization_level,
        "min_block_size": options.min_block_size,
        # torch_tensorrt's own check knows no exceptions; `check_named` does
        "require_full_compilation": options.require_full_compilation and not named,
        "hardware_compatible": options.hardware_compatible,
        "version_compatible": options.version_compatible,
    }
    chosen = settings(wanted, known, context)
    program = _export(module, inputs, context.sizes)
    return Lowered(program, context.sizes, external, named, chosen, options.require_full_compilation)


def _export(
    module: "nn.Module", inputs: "Mapping[str, Tensor]", sizes: Sequence[DynamicAxis]
) -> "torch.export.ExportedProgram":
    """Export the module; with sizes, export it twice, so that a later trace gives its symbols the same names.

    When a compiled graph is traced to be saved, an engine gives outputs whose shapes are expressions in the symbols of
    the first graph (dynamo/runtime/meta_ops/register_meta_ops.py, 138 in 2.13.0: create_symintnode). torch derives the
    name of a symbol from that of the argument, which is `tensors[0]` in `forward(*tensors)` and `tensors_0` in a graph.
    """
    program = export(module, inputs, sizes)
    if not sizes:
        return program
    return export(strip_guards(program.module()), inputs, sizes)


def save_program(
    module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext
) -> SavedProgram:
    """Load the module's program from the cache; compile and save it first if it is missing.

    Raises Unavailable if torch_tensorrt does not load, and Unsupported for operators, settings or weights that it
    cannot use and for an unknown submodule in the options.
    """
    import torch

    library = load_library()
    lowered = lower(library, module, inputs, options, context)
    program = lowered.program
    hashed, counted = graph_hash([program.graph]), operators(program.graph)
    with context.untimed():
        key = program_key(program, hashed, sorted(asdict(options).items()), *context.sizes)
    path = context.cache_dir / f"{key}.ep"
    log = PartitionLog()

    def build(target: Path) -> None:
        log.text = _compile(library, lowered, inputs, path, target).text
        # Graphs have reference cycles: without a collection, memory figures would count the saved engine and the loaded
        # one.
        gc.collect()
        torch.cuda.empty_cache()

    loaded, cached = load_or_build(
        path,
        lambda saved: load_program(library, saved),
        build,
        context.work_dir / "program.pt2",
        (OSError, RuntimeError, ValueError),
    )
    return SavedProgram(library, path, loaded, log, cached, hashed, counted)


def load_program(library: Any, path: Path) -> "fx.GraphModule":
    """Return the module of a saved program, without torch's guards; its external operators are registered first."""
    register_files(path)
    return strip_guards(library.load(str(path)).module())


def _compile(library: Any, lowered: Lowered, inputs: "Mapping[str, Tensor]", path: Path, target: Path) -> PartitionLog:
    """Compile the program, save it at `target`, and return the log.

    Its external operators are saved beside `path`, and so is the raw engine if the program is a single engine. Raises
    Unsupported with the names of operators that TensorRT lacks outside of them, if `require_full_compilation` is set.
    """
    given = _profiles(library, inputs, lowered.sizes)
    report = target.with_name("partitions.txt")
    if lowered.asked:
        check_named(lowered, dry_run(library, lowered, given, report).unconverted)
    with capture_partition_log() as log:
        try:
            with builder_errors():
                compiled = library.dynamo.compile(lowered.program, arg_inputs=given, **lowered.settings)
        except AssertionError as error:
            if "require_full_compilation" not in str(error):
                raise
            unconverted = sorted(dry_run(library, lowered, given, report).unconverted)
            raise Unsupported(
                f"TensorRT has no layer for {', '.join(unconverted) or 'some operator'}; to run it with PyTorch, use "
                "external=SUBMODULE or require_full_compilation=false"
            ) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    found = read_converted(compiled)
    engines = list(found.engines.values())
    if len(engines) == 1 and engines[0] and not found.outside:
        path.with_suffix(ENGINE_ENDING).write_bytes(engines[0])
    save_operators(lowered.external, path)
    _save(library, compiled, inputs, lowered.sizes, target)
    return log


def _profiles(library: Any, inputs: "Mapping[str, Tensor]", sizes: Sequence[DynamicAxis]) -> tuple[Any, ...]:
    """Return the inputs in order as `compile` expects them: tensors, or torch_tensorrt's specification for a range of
    sizes.

    An engine is tuned for the shapes of `inputs`, which TensorRT calls `opt_shape`. The exported graph contains all
    three shapes too, and torch_tensorrt reads them there (dynamo/_compiler.py, 1103 in 2.13.0:
    construct_submodule_inputs).
    """

    def shape(name: str, tensor: "Tensor", end: str) -> tuple[int, ...]:
        found = list(tensor.shape)
        for one in sizes:
            if one.input == name:
                found[one.axis] = getattr(one, end)
        return tuple(found)

    ranged = {one.input for one in sizes}
    return tuple(
        library.Input(
            min_shape=shape(name, tensor, "min"),
            opt_shape=tuple(tensor.shape),
            max_shape=shape(name, tensor, "max"),
            dtype=tensor.dtype,
        )
        if name in ranged
        else tensor
        for name, tensor in inputs.items()
    )


def _save(
    library: Any,
    compiled: "fx.GraphModule",
    inputs: "Mapping[str, Tensor]",
    sizes: Sequence[DynamicAxis],
    path: Path,
) -> None:
    """Save a compiled graph by tracing it again, as torch_tensorrt.save does by default, with two differences.

    Example inputs, which include all caches, are not pickled into the file. And engines remain objects of the C++
    runtime, which torch's C++ code can read. torch_tensorrt 2.13 and 2.14 convert them to Python objects before saving
    (torch_tensorrt/_compile.py, _normalize_engine_constants_to_python); their pickles run code when the file is opened,
    and the artifact's check rejects them. 2.14 also states which buffers a program changes; components change none.
    With a range of sizes, torch_tensorrt.save traces the graph by its own `export` (_compile.py, 1050 in 2.13.0).
    """
    import torch

    tensors, shapes = tuple(inputs.values()), dynamic_shapes(compiled, tuple(inputs), sizes)
    if shapes is None:
        saved = torch.export.export(compiled, tensors, strict=False)
    else:
        saved = library.dynamo.export(compiled, arg_inputs=tensors, kwarg_inputs={}, dynamic_shapes=shapes)
    saved.example_inputs = None
    torch.export.save(saved, path, pickle_protocol=_PICKLE_PROTOCOL)


def check_named(lowered: Lowered, unconverted: Mapping[str, int]) -> None:
    """Check that PyTorch would run exactly the external operators, before an engine is built.

    `unconverted` are the operators that PyTorch would run by a dry run. Raises Unsupported if an option has no effect,
    or if PyTorch would run other operators although the whole program must be in engines.
    """
    check_outside(lowered.asked, unconverted)
    other = sorted(name for name in unconverted if qualified(name) not in lowered.asked.values())
    if other and lowered.whole:
        raise Unsupported(
            f"PyTorch would also run {', '.join(other)}, outside of external; use require_full_compilation=false"
        )


def dry_run(library: Any, lowered: Lowered, given: tuple[Any, ...], report: Path) -> PartitionLog:
    """Return the partitions that a compilation would have, without building; torch_tensorrt writes them to `report`."""
    report.unlink(missing_ok=True)  # torch_tensorrt does not overwrite it
    chosen = {**lowered.settings, "require_full_compilation": False, "dryrun": str(report)}
    with contextlib.redirect_stdout(sys.stderr):
        library.dynamo.compile(lowered.program, arg_inputs=given, **chosen)
    return PartitionLog(report.read_text(encoding="utf-8"))


def file_digest(path: Path) -> str:
    """Return a hash of a saved program. It is equal if the program came from the cache; two builds of a graph may
    differ."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
