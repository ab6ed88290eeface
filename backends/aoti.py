"""AOTInductor: exports the module, compiles it with inductor into a package on disk, and loads the package back.

The loaded package is timed, not the exported module. Weights of 1 GB or more stay outside the package's shared library
(`package_constants_in_so=False`), because linking them into it takes several times their size in memory. A package
does not check the shapes of its inputs (PyTorch's AOTI_RUNTIME_CHECK_INPUTS is off by default), so `bind` checks them.
A package in the cache that cannot be loaded is built again.
"""

import shutil
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends.artifact_cache import load_or_build
from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Engine,
    Proof,
    Unsupported,
)
from bakeoff.backends.capture import ONE_SIZE, capture, replaying, unsupported_graph
from bakeoff.backends.channels_last import CONVOLUTIONS
from bakeoff.backends.compilers import missing_cpp_compiler, missing_cuda_toolkit, toolkit_environment
from bakeoff.backends.format import (
    ArtifactFormat,
    HostRequirement,
    Opening,
    Run,
    WriteRequest,
    WrittenProgram,
    in_one_thread,
)
from bakeoff.backends.graphs import (
    TORCH,
    export,
    graph_hash,
    input_layouts,
    operators,
    program_key,
    save_weights,
    tensors_of,
)
from bakeoff.backends.inductor import compiler_environment, missing_compiler, not_exact, tunes_by_environment
from bakeoff.backends.torch_export import LoadedProgram
from bakeoff.backends.torch_internals import (
    INDUCTOR_KERNELS,
    Package,
    compile_package,
    compiled_once,
    load_package,
    package_calls,
)
from bakeoff.backends.tracing import trace_operators
from bakeoff.models.component import DynamicAxis

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

_SEPARATE_WEIGHTS_BYTES = 10**9


@dataclass(frozen=True, slots=True)
class Options:
    freezing: bool = False
    max_autotune: bool = False
    graph: bool = False
    """Capture each call as one CUDA graph that reads its inputs in place (capture.py); no card has run this."""
    exact: bool = False
    """As of inductor."""


def _unsupported(options: Options, device: str, dtype: str) -> str | None:
    return not_exact(options, device, dtype) or unsupported_graph(options.graph, device)


def _one_size_only(options: Options) -> str | None:
    if options.max_autotune:
        return "max_autotune tunes for one size; leave it or --sizes out"
    return ONE_SIZE if options.graph else None


def _overlaps(options: Options) -> bool:
    return not options.max_autotune and not tunes_by_environment()


def _missing(options: Options, device: str) -> str | None:
    """Return what is missing on this host. On CUDA, the package's wrapper is C++ that calls the CUDA runtime."""
    missing = missing_compiler(options, device)
    return missing if device == "cpu" else missing or missing_cpp_compiler() or missing_cuda_toolkit()


def _environment(cache_dir: Path) -> Mapping[str, str]:
    return {**compiler_environment(cache_dir), **toolkit_environment()}


def _engine(
    package: Package,
    inputs: "Mapping[str, Tensor]",
    graph: bool,
    proof: Proof,
    sizes: tuple[DynamicAxis, ...] = (),
    weights: "Mapping[str, Tensor] | None" = None,
) -> Engine:
    """Return an engine that runs the package; `weights` are the tensors that the package reads but does not own."""
    tracer = partial(trace_operators, own=INDUCTOR_KERNELS)
    engine = LoadedProgram(package.run, input_layouts(inputs, sizes), proof, sizes, tracer, weights or {})
    return capture(engine, inputs) if graph else engine


def _settings(options: Options, context: BuildContext, separate_weights: bool) -> dict[str, Any]:
    """Return inductor's settings for one build; with `separate_weights`, weights stay outside the shared library."""
    settings: dict[str, Any] = {"aot_inductor.package_constants_in_so": not separate_weights}
    if options.freezing:
        settings["freezing"] = True
    if options.max_autotune:
        settings["max_autotune"] = True
    if options.exact:
        settings["emulate_precision_casts"] = True
    if context.device == "cpu":
        # As in inductor.py: kernels have names for a profiler, so that the timed package, which is the exported one,
        # can be traced. Kernels on CUDA have names anyway.
        settings["cpp.enable_kernel_profile"] = True
    return settings


@dataclass(frozen=True, slots=True)
class _CachedPackage:
    """A module's compiled package in the cache, loaded, with the module's exported program."""

    program: "torch.export.ExportedProgram"
    graph: str
    path: Path
    package: Package
    """Loaded from `path`, without the separate weights."""
    cached: bool
    weights: "Mapping[str, Tensor]"
    separate_bytes: int
    """Bytes of the weights that stay outside the package; 0 if the package contains its weights."""


def _cached_package(
    module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext
) -> _CachedPackage:
    """Load the module's package from the cache; compile it first if it is missing.

    Raises Unsupported for `freezing` with weights of 1 GB or more.
    """
    program = export(module, inputs, context.sizes)
    weights = tensors_of(program)
    weight_bytes = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    separate = weight_bytes >= _SEPARATE_WEIGHTS_BYTES
    if separate and options.freezing:
        raise Unsupported(
            f"freezing puts the weights into the compiled library, and {weight_bytes} bytes are too many for one; "
            "use aoti without freezing"
        )
    settings = _settings(options, context, separate)
    graph = graph_hash([program.graph])
    with context.untimed():
        key = program_key(program, graph, sorted(settings.items()), asdict(options), *context.sizes)
    path = context.cache_dir / f"{key}.pt2"

    def compile_to(target: Path) -> None:
        with compiled_once(context.share):
            compile_package(program, target, settings)

    package, cached = load_or_build(
        path,
        _load_whole,
        compile_to,
        context.work_dir / "package.pt2",
        (OSError, RuntimeError, ValueError, zipfile.BadZipFile),
    )
    separate_bytes = weight_bytes if separate else 0
    return _CachedPackage(program, graph, path, package, cached, weights, separate_bytes)


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    made = _cached_package(module, inputs, options, context)
    weights = _set_weights(made.package, made.weights) if made.separate_bytes else {}
    called = operators(made.program.graph)
    proof = _prove(made.path, called, made.graph, made.cached, made.separate_bytes)
    if not made.separate_bytes:  # those are the module's
        context.keep(lambda: {"file": made.path.name, "graph": made.graph, "operators": called})
    return _engine(made.package, inputs, options.graph, proof, context.sizes, weights)


def _open(kept: Mapping[str, Any], inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    path = context.cache_dir / kept["file"]
    package = _load_whole(path)
    proof = _prove(path, kept["operators"], kept["graph"], True, 0)
    return _engine(package, inputs, options.graph, proof)


def _set_weights(package: Package, weights: "Mapping[str, Tensor]") -> "Mapping[str, Tensor]":
    """Set the separate weights of a package and return them. The package reads the returned tensors, so keep them
    alive."""
    used = {name: weights[name].detach() for name in package.constants()}
    package.load_constants(used)
    return used


def _load_whole(path: Path) -> Package:
    """Load the package at `path`. Raises BadZipFile for a wrong checksum, which torch's loader does not check."""
    with zipfile.ZipFile(path) as package:
        damaged = package.testzip()
    if damaged is not None:
        raise zipfile.BadZipFile(f"{path.name}: the checksum of {damaged} is wrong")
    return load_package(path)


def _prove(path: Path, called: Mapping[str, int], hashed: str, cached: bool, separate_bytes: int) -> Proof:
    """Read the proof from the package: the calls in its C++ wrapper, and whether it contains a compiled library."""
    with zipfile.ZipFile(path) as package:
        names = package.namelist()
        sources = [package.read(name).decode() for name in names if name.endswith(".wrapper.cpp")]
    library = Counter[str]()
    kernels = Counter[str]()
    for source in sources:
        libraries, own = package_calls(source)
        library.update(libraries)
        kernels.update(own)
    loaded = any(name.endswith(".so") for name in names)
    return Proof(
        fell_back="" if loaded and sources else "nothing: the package holds no compiled library",
        graphs=1,
        graph_breaks=0,
        operators_inside=called,
        operators_outside=library,
        facts={
            "kernels_called": sum(kernels.values()),
            "package_from_cache": cached,
            "weights_outside_package_bytes": separate_bytes,
        },
        graph_hash=hashed,
        artifact_bytes=path.stat().st_size,
    )


def _write(request: WriteRequest) -> WrittenProgram:
    """Copy the package from the cache (the measured one, if it was measured); save separate weights as safetensors."""
    made = _cached_package(request.module, request.inputs, request.options, request.context)
    shutil.copyfile(made.path, request.folder / f"{request.name}.pt2")
    about = made.package.metadata()
    needs = [HostRequirement("torch", "is"), HostRequirement("machine", "is", about["AOTI_MACHINE"])]
    if request.context.device == "cpu":
        needs.append(HostRequirement("cpu flags", "has"))  # the C++ compiler was told -march=native
    else:
        needs += [
            HostRequirement("compute capability", "is"),
            HostRequirement("cuda", "at least"),
            HostRequirement("driver", "at least"),
        ]
    constants = save_weights(made.weights, request.folder, request.name) if made.separate_bytes else ()
    facts: dict[str, str | int | float | bool] = {
        "weights_outside_package_bytes": made.separate_bytes,
        "taken_from_cache": made.cached,
    }
    if about.get("AOTI_CPU_ISA"):
        facts["instruction_set"] = about["AOTI_CPU_ISA"]
    return WrittenProgram(f"{request.name}.pt2", constants, tuple(needs), facts)


def _read(path: Path, constants: "Sequence[Path]", opening: Opening) -> Run:
    from safetensors.torch import load_file

    package = load_package(path)
    stored: dict[str, Tensor] = {}
    for file in reversed(constants):
        stored |= load_file(file, device=opening.device)
    weights = _set_weights(package, stored) if constants else {}

    def run(tensors: "Sequence[Tensor]", _weights: object = weights) -> "Sequence[Tensor]":
        return package.run(list(tensors))

    return in_one_thread(replaying(run) if opening.options.graph else run, path)


BACKEND = Backend(
    name="aoti",
    summary="AOTInductor: exported, compiled into a package, loaded back",
    build=_build,
    open=_open,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cpu",), dtypes=("bf16",), suite="quick"),
        DefaultOptions(Options(), devices=("cuda",), dtypes=("bf16",)),
        DefaultOptions(Options(graph=True), devices=("cuda",), dtypes=("bf16",), layers=("linear",)),
        DefaultOptions(Options(freezing=True, graph=True), devices=("cuda",), dtypes=("bf16",), layers=CONVOLUTIONS),
        DefaultOptions(Options(freezing=True), devices=("cpu",), suite="full"),
        DefaultOptions(Options(max_autotune=True), suite="full"),
    ),
    requires=(TORCH,),
    missing=_missing,
    unsupported_options=_unsupported,
    unsupported_sizes=_one_size_only,
    checks="the package loaded from disk holds a compiled library, and its wrapper makes every call",
    uses_inductor=True,
    same_when_traced=("cpu", "cuda"),
    binds_memory=lambda options: options.graph,
    keeps_module_weights=False,
    caches=True,
    weight_copies=3.0,
    gpu_weight_copies=2.0,
    host_weight_copies=2.0,  # the constants, and the bytes of the package
    environment=_environment,
    overlaps=_overlaps,
    searches=lambda options: options.max_autotune,
    artifact=ArtifactFormat(
        name="aoti",
        summary="AOTInductor package (.pt2); weights of 1 GB or more are files beside it",
        write=_write,
        read=_read,
        runs_torch=True,
    ),
)
