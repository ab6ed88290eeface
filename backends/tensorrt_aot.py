"""TensorRT ahead of time: torch.export, converted by torch_tensorrt, saved, and what is timed is what was loaded back.

Weights are constants of the engine. `require_full_compilation` turns an operator that TensorRT lacks into a failed
build with its name. A saved program in the cache that cannot be loaded is built again. Not one engine has been built by
us: the machines that this was written on have no TensorRT libraries.
"""

import contextlib
import gc
import hashlib
import inspect
import operator
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Backend, BuildContext, Call, Choice, Engine, Proof, Unsupported
from bakeoff.backends.exported import (
    TORCH,
    export,
    forms,
    graph_hash,
    operators,
    program_key,
    refuse_others,
    refuse_quantised,
)
from bakeoff.backends.format import ArtifactFormat, Need, Opening, Run, Written
from bakeoff.backends.pt2_files import check_program
from bakeoff.backends.torchtrt import (
    REQUIRES,
    Told,
    cache_settings,
    listening,
    load_library,
    objection,
    prove,
    read_converted,
    settings,
    trace_engines,
)
from bakeoff.backends.tracing import Trace

if TYPE_CHECKING:
    import torch
    from torch import Tensor, fx, nn

_PLAN = ".engine"


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


def _objection(options: Options, _device: str, _dtype: str) -> str:
    if options.weight_streaming and options.cudagraphs:
        return "weights that are streamed cannot be captured in a CUDA graph"
    return objection(options.optimization_level, options.min_block_size)


@dataclass(frozen=True, slots=True)
class _Loaded(Engine):
    """A program loaded from disk."""

    module: "fx.GraphModule"
    takes: Mapping[str, str]
    proof: Proof

    def bind(self, inputs: "Mapping[str, Tensor]") -> Call:
        refuse_others(self.takes, inputs)
        run, tensors = self.module, tuple(inputs.values())
        return lambda: tuple(run(*tensors))

    def prove(self) -> Proof:
        return self.proof

    def trace(self, call: Call) -> Trace:
        return trace_engines(call)


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


@dataclass(frozen=True, slots=True)
class _Made:
    """A compiled program, saved in the cache and loaded back."""

    library: Any
    path: Path
    module: "fx.GraphModule"
    told: Told
    cached: bool
    graph: str
    inside: "Counter[str]"


def _make(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> _Made:
    import torch

    refuse_quantised(module, "torch_tensorrt", "it lowers modelopt's quantize operators, not torchao's scaled_mm")
    library = load_library()
    program = export(module, inputs)
    hashed, inside = graph_hash([program.graph]), operators(program.graph)
    known = inspect.signature(library.dynamo.compile).parameters
    chosen = settings(_wanted(options, context), known, context)
    path = context.cache_dir / f"{program_key(program, hashed, sorted(asdict(options).items()))}.ep"
    loaded, told = _load(library, path), Told()
    cached = loaded is not None
    if loaded is None:
        told = _compile(library, program, inputs, chosen, path, context.work_dir)
        del program
        gc.collect()  # graphs hold themselves: the engine that was saved would be metered beside the one loaded back
        torch.cuda.empty_cache()
        loaded = library.load(str(path)).module()
    return _Made(library, path, loaded, told, cached, hashed, inside)


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    made = _make(module, inputs, options, context)
    found = read_converted(made.module)
    proof = prove(
        found,
        made.told,
        made.inside,
        made.graph,
        program_from_cache=made.cached,
        program_digest=_digest(made.path),
    )
    _set_up(made.library, made.module, options)
    return _Loaded(made.module, forms(inputs), replace(proof, artifact_bytes=made.path.stat().st_size))


def _set_up(library: Any, module: "fx.GraphModule", options: Options) -> None:
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


def _digest(path: Path) -> str:
    """Of the saved program: a warm engine is the same one, while two builds of one graph may differ."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _load(library: Any, path: Path) -> "fx.GraphModule | None":
    """The program in the cache; None where there is none, or none that loads."""
    if not path.exists():
        return None
    with contextlib.suppress(OSError, RuntimeError, ValueError):
        loaded: fx.GraphModule = library.load(str(path)).module()
        return loaded
    path.unlink()
    return None


def _compile(
    library: Any,
    program: "torch.export.ExportedProgram",
    inputs: "Mapping[str, Tensor]",
    chosen: Mapping[str, Any],
    path: Path,
    work_dir: Path,
) -> Told:
    """Leave the whole saved program at `path`, or nothing; gives what torch_tensorrt said of it.

    Raises Unsupported, naming them, where operators are left and a full compilation was asked for.
    """
    tensors = tuple(inputs.values())
    with listening() as told:
        try:
            compiled = library.dynamo.compile(program, arg_inputs=tensors, **chosen)
        except AssertionError as error:
            if "require_full_compilation" not in str(error):
                raise
            names = ", ".join(sorted(_left(library, program, tensors, chosen, work_dir))) or "some operator"
            text = f"TensorRT has no layer for {names}; with require_full_compilation=false PyTorch runs what it lacks"
            raise Unsupported(text) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    plans = list(read_converted(compiled).engines.values())
    if len(plans) == 1 and plans[0]:
        path.with_suffix(_PLAN).write_bytes(plans[0])
    written, part = work_dir / "program.pt2", path.with_suffix(".part")
    _save(compiled, tensors, written)
    shutil.move(written, part)
    part.rename(path)
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
    work_dir: Path,
) -> Mapping[str, int]:
    """Operators that TensorRT lacks, by a dry run: the error that stops a full compilation does not name them."""
    written = work_dir / "partitions.txt"
    asked = {**chosen, "require_full_compilation": False, "dryrun": str(written)}
    with contextlib.redirect_stdout(sys.stderr):
        library.dynamo.compile(program, arg_inputs=tensors, **asked)
    return Told(written.read_text(encoding="utf-8")).left


def _engines(module: "fx.GraphModule") -> Iterator[Any]:
    """The engines of a loaded program: torch_tensorrt's own context managers find those of an unsaved one alone."""
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = operator.attrgetter(str(node.target))(module)
            if hasattr(value, "device_memory_budget"):
                yield value


def _write(
    module: "nn.Module",
    inputs: "Mapping[str, Tensor]",
    options: Options,
    context: BuildContext,
    folder: Path,
    name: str,
) -> Written:
    """The saved program, and beside it the raw engine where the graph is one: that is what trtexec and C++ load."""
    made = _make(module, inputs, options, context)
    shutil.copyfile(made.path, folder / f"{name}.ep")
    plan = made.path.with_suffix(_PLAN)
    if plan.exists():
        shutil.copyfile(plan, folder / f"{name}{_PLAN}")
    needs = [Need("torch", "is"), Need("torch-tensorrt", "is"), Need("cuda", "at least"), Need("driver", "at least")]
    needs.append(Need("tensorrt", "at least" if options.version_compatible else "is"))
    needs.append(Need("compute capability", "at least", "8.0") if options.hardware_compatible else Need("gpu", "is"))
    engines = len(read_converted(made.module).engines)
    return Written(f"{name}.ep", (), tuple(needs), {"engines": engines, "raw_engine": plan.exists()})


def _check(path: Path, _files: Mapping[str, int]) -> None:
    """Engines are objects of torch_tensorrt's C++ class; nothing else may be unpickled."""
    check_program(path, torchbind=True)


def _read(path: Path, _constants: Sequence[Path], opening: Opening) -> Run:
    library = load_library()
    module = library.load(str(path)).module()
    _set_up(library, module, opening.options)

    def run(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        outputs: Sequence[Tensor] = module(*tensors)
        return outputs

    return run


BACKEND = Backend(
    name="tensorrt-aot",
    summary="TensorRT engines made ahead of time by torch_tensorrt, saved and loaded back",
    build=_build,
    options=Options,
    requires=(TORCH, *REQUIRES),
    devices=("cuda",),
    choices=(
        Choice(Options(), devices=("cpu",), dtypes=("bf16",)),  # a row that says what it lacks
        Choice(Options(), devices=("cuda",)),
        Choice(Options(cudagraphs=True), devices=("cuda",)),
        Choice(Options(optimization_level=5), devices=("cuda",), suite="full"),
        Choice(Options(require_full_compilation=False), devices=("cuda",), suite="full"),
    ),
    really_ran="the program loaded from disk holds at least one TensorRT engine; operators beside it are named",
    keeps_module=False,
    caches=True,
    weight_copies=3.0,
    objection=_objection,
    form=ArtifactFormat(
        name="tensorrt",
        summary="torch_tensorrt program (.ep), and the raw engine (.engine) where the graph is one",
        loads_in="Python with torch_tensorrt; the engine in C++ and trtexec",
        write=_write,
        check=_check,
        read=_read,
    ),
)
