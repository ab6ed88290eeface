"""TensorRT ahead of time: exports the module, converts it with torch_tensorrt, saves it, loads it back and times that.

Weights are constants of the engine. With `require_full_compilation`, a build fails if TensorRT lacks an operator, and
the error names it. A saved program in the cache that cannot be loaded is built again. Never run on a real engine yet:
the machines it was written on have no TensorRT libraries, so tests use a fake of torch_tensorrt.

For a range of sizes the module is exported with both ends (`torch.export.Dim`) and compiled for inputs with a profile
(`torch_tensorrt.Input` with min_shape, opt_shape and max_shape), as torch_tensorrt documents
(docsrc/user_guide/compilation/dynamic_shapes.rst, 2.13.0). An operator whose converter does not state that it accepts
such sizes counts as one that TensorRT lacks (dynamo/conversion/_ConverterRegistry.py, 470 in 2.13.0).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Engine,
)
from bakeoff.backends.capture import ONE_SIZE, capture, replaying
from bakeoff.backends.graphs import TORCH, input_layouts
from bakeoff.backends.torch_export import LoadedProgram
from bakeoff.backends.torch_tensorrt.program import Options, file_digest, save_program
from bakeoff.backends.torch_tensorrt.proof import prove, read_converted, trace_engines
from bakeoff.backends.torch_tensorrt.settings import (
    QUANTISE_OPERATORS,
    REQUIRES,
    in_own_mode,
    one_size_only,
    unsupported_settings,
)
from bakeoff.backends.tracing import trace_operators

if TYPE_CHECKING:
    from torch import Tensor, nn
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bakeoff.backends.format import (
    ArtifactFormat,
    HostRequirement,
    Opening,
    Run,
    WriteRequest,
    WrittenProgram,
    in_one_thread,
)
from bakeoff.backends.pt2_files import check_program
from bakeoff.backends.torch_tensorrt.external import operator_files, qualified_name
from bakeoff.backends.torch_tensorrt.program import ENGINE_ENDING, load_program
from bakeoff.backends.torch_tensorrt.settings import load_library

if TYPE_CHECKING:
    from torch import Tensor


def _write(request: WriteRequest) -> WrittenProgram:
    """Write the saved program, and the raw engine for trtexec and C++ if the program is a single engine."""
    made = save_program(request.module, request.inputs, request.options, request.context)
    shutil.copyfile(made.path, request.folder / f"{request.name}.ep")
    engine = made.path.with_suffix(ENGINE_ENDING)
    if engine.exists():
        shutil.copyfile(engine, request.folder / f"{request.name}{ENGINE_ENDING}")
    needs = [
        HostRequirement("torch", "is"),
        HostRequirement("torch-tensorrt", "is"),
        HostRequirement("cuda", "at least"),
        HostRequirement("driver", "at least"),
    ]
    needs.append(HostRequirement("tensorrt", "at least" if request.options.version_compatible else "is"))
    needs.append(
        HostRequirement("compute capability", "at least", "8.0")
        if request.options.hardware_compatible
        else HostRequirement("gpu", "is")
    )
    for file in operator_files(made.path).values():
        shutil.copyfile(file, request.folder / f"{request.name}{file.name.removeprefix(made.path.stem)}")
    engines = len(read_converted(made.module).engines)
    return WrittenProgram(f"{request.name}.ep", (), tuple(needs), {"engines": engines, "raw_engine": engine.exists()})


def _check(path: Path, _files: Mapping[str, int]) -> None:
    """Check the program and its external operators. Raises BadArtifact if anything is pickled.

    The program may contain engines, as objects of torch_tensorrt's C++ class, and call the operators whose graphs are
    beside it; these graphs may call ATen operators only.
    """
    operators = operator_files(path)
    for file in operators.values():
        check_program(file)
    check_program(path, torchbind=True, operators=[qualified_name(name) for name in operators])


def _read(path: Path, _constants: Sequence[Path], opening: Opening) -> Run:
    library = load_library()
    module = load_program(library, path)
    program = in_own_mode(library, opening.options.cudagraphs, module)

    def run(tensors: "Sequence[Tensor]") -> "Sequence[Tensor]":
        before = library.runtime.get_cudagraphs_mode()
        try:
            outputs: Sequence[Tensor] = program(*tensors)
        finally:  # the process is the user's, who may have other engines
            if library.runtime.get_cudagraphs_mode() != before:
                library.runtime.set_cudagraphs_mode(before)
        return outputs

    return in_one_thread(replaying(run) if opening.options.graph else run, path)  # calls share the process's graph mode


FORMAT = ArtifactFormat(
    name="tensorrt",
    summary="torch_tensorrt program (.ep), and the raw engine (.engine) if the program is a single engine",
    write=_write,
    check=_check,
    read=_read,
    runs_torch=True,  # what TensorRT lacks
)


def _unsupported(options: Options, _device: str, _dtype: str) -> str | None:
    if options.graph and options.cudagraphs:
        return "graph and cudagraphs both capture the engine; leave one out"
    return unsupported_settings(options.optimization_level, options.min_block_size)


def _one_size_only(options: Options) -> str | None:
    return ONE_SIZE if options.graph else one_size_only(options.cudagraphs, options.external)


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    made = save_program(module, inputs, options, context)
    found = read_converted(made.module)
    with context.untimed():
        digest = file_digest(made.path)
    proof = prove(
        found,
        made.log,
        made.operators,
        made.graph,
        program_from_cache=made.cached,
        program_digest=digest,
    )
    proof = replace(proof, artifact_bytes=made.path.stat().st_size)
    layouts = input_layouts(inputs, context.sizes)
    run = in_own_mode(made.library, options.cudagraphs, made.module)
    # The kernels of a replayed graph have no operator that launched them; without others, all are TensorRT's.
    whole = options.graph and not proof.operators_outside
    tracer = partial(trace_operators, own=("",)) if whole else trace_engines
    engine = LoadedProgram(
        lambda tensors: run(*tensors), layouts, proof, context.sizes, tracer, copying=options.cudagraphs
    )
    return capture(engine, inputs) if options.graph else engine


BACKEND = Backend(
    name="tensorrt-aot",
    summary="TensorRT engines built ahead of time by torch_tensorrt, saved and loaded back",
    build=_build,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cuda",), dtypes=("bf16", "fp16"), suite="quick"),
        DefaultOptions(Options(cudagraphs=True), devices=("cuda",), dtypes=("bf16",)),
        DefaultOptions(Options(graph=True), devices=("cuda",), dtypes=("bf16",)),
        DefaultOptions(Options(optimization_level=5), devices=("cuda",), suite="full"),
        DefaultOptions(Options(require_full_compilation=False), devices=("cuda",), suite="full"),
    ),
    requires=(TORCH, *REQUIRES),
    devices=("cuda",),
    unsupported_options=_unsupported,
    unsupported_sizes=_one_size_only,
    own_attention=True,
    quantise_operators=QUANTISE_OPERATORS,
    checks="the program loaded from disk holds at least one TensorRT engine; other operators are listed",
    binds_memory=lambda options: options.graph,
    same_when_traced=("cuda",),
    keeps_module_weights=False,
    caches=True,
    weight_copies=3.0,
    gpu_weight_copies=2.0,  # the module's, and the engine's
    # Saving a plan holds it as bytes, std::string and base64, pickled, and in the archive
    # (pytorch/TensorRT, core/runtime/TRTEngine.cpp, serialize).
    host_weight_copies=6.0,
    searches=True,
    artifact=FORMAT,
)
