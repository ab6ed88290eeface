"""torch.compile with its default compiler, inductor, which generates C++ with OpenMP on a CPU and Triton on CUDA.

The whole module is captured as one graph (`fullgraph=True`) with static shapes, so a graph break fails the build and
cannot pass as a slow row. `freezing` makes weights constants: it folds what depends on them alone, merges linear layers
that share an input, and lays out weights once, packed for oneDNN on a CPU and channels_last for convolutions on CUDA
(torch/_inductor/compile_fx.py, fw_compiler_freezing). `mode` takes the names of torch.compile's modes. Convolutions and
large matrix products call oneDNN, cuDNN or cuBLAS, unless autotuning finds a faster kernel.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bakeoff.backends.backend import (
    Backend,
    BuildContext,
    DefaultOptions,
    Engine,
    Outputs,
    Proof,
    Unsupported,
    make_alone,
)
from bakeoff.backends.capture import ONE_SIZE, capture, unsupported_graph
from bakeoff.backends.compilers import missing_cpp_compiler, missing_for_triton
from bakeoff.backends.graphs import TORCH, valued_hash
from bakeoff.backends.torch_compile import CompiledEngine, CompileLog, compile_whole
from bakeoff.backends.torch_internals import (
    INDUCTOR_KERNELS,
    TUNED,
    compile_with_inductor,
    compiled_once,
    frozen_graphs_cached,
    inductor_mode,
    marked,
    separate_sizes,
    without_trials,
)
from bakeoff.backends.tracing import trace_operators

if TYPE_CHECKING:
    from torch import Tensor, fx, nn

_TUNING_VARIABLES = (
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM",
    "TORCHINDUCTOR_BENCHMARK_FUSION",
)
"""Environment variables that make inductor choose by timing on a CPU (torch/_inductor/config.py)."""


@dataclass(frozen=True, slots=True)
class Options:
    mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = "default"
    freezing: bool = False
    tuned: bool = False
    """Use the settings that torchao sets when it quantises, above all a search for faster Triton configurations, so
    that a quantised row can be compared with a plain one that was tuned alike."""
    regional: bool = False
    """Compile the code of equal blocks, such as the layers of a transformer, once (torch.compiler.
    nested_compile_region, torch 2.13), for shorter builds. Nothing is fused across the ends of a block."""
    graph: bool = False
    """Capture each call as one CUDA graph that reads its inputs in place (capture.py); no card has run this."""
    exact: bool = False
    """Round in half precision wherever eager does (`emulate_precision_casts`), and on CUDA multiply and add apart."""


def not_exact(options: Any, device: str, dtype: str) -> str | None:
    """Return why inductor generates the same code with `options.exact` as without; None if it may differ.

    torch 2.13: on CUDA it also decides about fused multiply-adds and libdevice (codegen/triton.py,
    runtime/compile_tasks.py), on a CPU about casts to and from bf16 and fp16 alone (codegen/cpp.py, lowering.py).
    """
    if options.exact and device == "cpu" and dtype in ("fp32", "tf32"):
        return f"exact keeps eager's roundings to bf16 and fp16, and changes no code in {dtype} on a CPU; leave it out"
    return None


def _unsupported(options: Options, device: str, dtype: str) -> str | None:
    if options.tuned and device == "cpu":
        return "tuned searches configurations of Triton kernels, which a CPU does not run; leave it out on cpu"
    if options.mode == "reduce-overhead" and device == "cpu":
        return "mode=reduce-overhead needs CUDA graphs, which a CPU does not have; use mode=default"
    if options.graph and options.mode in ("reduce-overhead", "max-autotune"):
        return f"mode={options.mode} captures by itself; with graph use mode=default or max-autotune-no-cudagraphs"
    return not_exact(options, device, dtype) or unsupported_graph(options.graph, device)


def missing_compiler(_options: Any, device: str) -> str | None:
    """Return why inductor's code (C++ on a CPU, Triton on CUDA) cannot be compiled here; None if it can."""
    return missing_cpp_compiler() if device == "cpu" else missing_for_triton()


def compiler_environment(cache_dir: Path) -> Mapping[str, str]:
    """Return environment variables that place the caches of inductor and Triton in `cache_dir`."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(cache_dir / "inductor"), "TRITON_CACHE_DIR": str(cache_dir / "triton")}


@dataclass(slots=True)
class _Compiler:
    """The compiler function that torch.compile calls: compiles with inductor and logs the compilation."""

    settings: Mapping[str, Any]
    log: CompileLog = field(default_factory=CompileLog)
    captures: bool = False
    """Whether the settings ask for CUDA graphs, on a device that has them."""
    freezes: bool = False
    """Whether all weights are frozen before inductor looks into its cache. Not so with autotuning on a CPU, which packs
    some weights again during code generation, and would store them with the code."""
    untimed: Callable[[], AbstractContextManager[None]] = nullcontext
    """Context of `BuildContext.untimed`, for hashing the weights."""
    opens: bool = False
    """Value of `BuildContext.opens`."""
    share: Callable[[Path, Callable[[], None]], None] = make_alone
    """Function `BuildContext.share`."""
    compiler_name: str = "inductor"

    def __call__(self, graph: "fx.GraphModule", inputs: "list[Tensor]") -> Any:
        trials = without_trials() if self.opens else compiled_once(self.share)
        with self.log.compiling(graph), trials:
            if not self.freezes:
                return compile_with_inductor(graph, inputs, self.settings)
            with self.untimed():
                values = valued_hash(graph)
            with frozen_graphs_cached(values):
                return compile_with_inductor(graph, inputs, self.settings)

    def prove(self) -> Proof:
        log, activity = self.log, self.log.activity
        fell_back = ""
        if not log.graphs:
            fell_back = "eager: dynamo captured no graph"
        elif activity.compiled == 0:
            fell_back = "the captured graph, run operator by operator: inductor did not compile it"
        elif self.captures and (activity.not_captured or not log.captured_functions):
            fell_back = "inductor without CUDA graphs: it captured no part of the graph in one"
        return Proof(
            fell_back=fell_back,
            graphs=len(log.graphs),
            graph_breaks=log.graph_breaks,
            recompiles=log.recompiles,
            operators_inside=log.operators,
            operators_outside=dict(log.library_calls),
            facts={
                **({"cuda_graphs": log.captured_functions} if self.captures else {}),
                "kernels_generated": activity.kernels,
                "vectorised_cpp_kernels": activity.vectorised_kernels,
                "graph_cache_hits": activity.cache_hits,
            },
            graph_hash=log.graph_hash,
        )


def _settings(options: Options, context: BuildContext) -> dict[str, Any]:
    """Return inductor's settings for one build."""
    settings = inductor_mode(options.mode)
    if options.tuned:
        settings |= TUNED
    if options.exact:
        settings["emulate_precision_casts"] = True
    if settings.get("triton.cudagraphs"):
        settings["graph_partition"] = True  # torch's default; the proof reads from the functions what is captured
    if context.device == "cpu":
        # A guard in each kernel tells its name to a profiler; kernels on CUDA have names anyway. Every build has it,
        # so that what was timed can be traced. Without a profiler the guard only asks for one;
        # docs/trust.md (trials) has what that costs.
        settings["cpp.enable_kernel_profile"] = True
    return settings


def _build(module: "nn.Module", inputs: "Mapping[str, Tensor]", options: Options, context: BuildContext) -> Engine:
    import torch

    settings = _settings(options, context)
    compiler = _Compiler(
        settings,
        captures=context.device == "cuda" and bool(settings.get("triton.cudagraphs")),
        freezes=options.freezing and (context.device == "cuda" or options.mode == "default"),
        untimed=context.untimed,
        opens=context.opens,
        share=context.share,
    )
    if options.regional:
        _mark_blocks(module)
    compiled = call = compile_whole(module, compiler)

    def replay(*tensors: "Tensor") -> Outputs:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*tensors)

    # Inductor's graphs copy all inputs but weights into their own buffers at each call
    # (torch/_inductor/cudagraph_trees.py, CUDAGraphNode._copy_inputs_and_remove_from_src; 2.11 to 2.13).
    captured = bool(settings.get("triton.cudagraphs"))
    if captured:
        call = replay
    tracer = partial(trace_operators, own=INDUCTOR_KERNELS)
    copying = captured and context.device == "cuda"
    # The step that `replay` marks is the process's: it frees the outputs of all graphs that inductor captured in it
    # (torch/_inductor/cudagraph_trees.py, CUDAGraphTreeManager.try_end_curr_execution).
    engine = CompiledEngine(
        call, compiler.log, compiler.prove, tracer, options.freezing, copying, rebinding=not copying, one_pool=copying
    )
    if context.sizes:
        with separate_sizes():
            engine.bind(marked(inputs, context.sizes))()
    return capture(engine, inputs) if options.graph else engine


def _mark_blocks(module: "nn.Module") -> None:
    """Make regions of the blocks of each list of modules of one class, in place; lists within a block are left alone.

    The blocks get a class of their own, since other modules may have theirs. A region that is an attribute of the block
    itself would compute every block with the first one's weights (seen with torch 2.13). Raises Unsupported without
    such a list.
    """
    import torch
    from torch import nn

    marked: list[str] = []
    for name, part in module.named_modules():
        blocks = [*part] if isinstance(part, nn.ModuleList) else []
        alike = len(blocks) > 1 and len({type(block) for block in blocks}) == 1 and any(blocks[0].children())
        if alike and not any(name.startswith(f"{outer}.") for outer in marked):
            marked.append(name)
            kind = type(blocks[0])
            regional = type(kind.__name__, (kind,), {"forward": torch.compiler.nested_compile_region(kind.forward)})
            for block in blocks:
                block.__class__ = regional
    if not marked:
        raise Unsupported("regional: the module has no nn.ModuleList of several blocks of one class; leave it out")


def tunes_by_environment() -> bool:
    """Return whether environment variables tell inductor to choose by timing even if its settings do not."""
    return any(os.environ.get(name) == "1" for name in _TUNING_VARIABLES)


def _overlaps(options: Options) -> bool:
    return not _searches(options) and not options.tuned and not tunes_by_environment()


def _searches(options: Options) -> bool:
    return options.mode.startswith("max-autotune")


def _one_size_only(options: Options) -> str | None:
    """Return why engines with these options accept only one size; None if they accept a range."""
    if options.mode != "default":
        return f"mode={options.mode} tunes or captures for one size; use mode=default, or leave out --sizes"
    return ONE_SIZE if options.graph else None


BACKEND = Backend(
    name="inductor",
    summary="torch.compile: one graph, static shapes, C++ or Triton kernels",
    build=_build,
    options=Options,
    defaults=(
        DefaultOptions(Options(), devices=("cpu",), dtypes=("bf16",)),
        DefaultOptions(Options(freezing=True), devices=("cpu",), dtypes=("bf16",), suite="quick"),
        DefaultOptions(
            Options(mode="reduce-overhead", freezing=True), devices=("cuda",), dtypes=("bf16",), suite="quick"
        ),
        DefaultOptions(Options(mode="max-autotune", freezing=True), devices=("cuda",), dtypes=("bf16",)),
        DefaultOptions(
            Options(mode="max-autotune-no-cudagraphs", freezing=True, graph=True), devices=("cuda",), dtypes=("bf16",)
        ),
        DefaultOptions(Options(), devices=("cuda",), suite="full"),
        DefaultOptions(Options(freezing=True), devices=("cuda",), dtypes=("bf16",), suite="full"),
        DefaultOptions(Options(freezing=True, graph=True), devices=("cuda",), dtypes=("bf16",), suite="full"),
        DefaultOptions(Options(mode="reduce-overhead"), devices=("cuda",), suite="full"),
        DefaultOptions(Options(mode="max-autotune"), devices=("cuda",), suite="full"),
        DefaultOptions(Options(tuned=True), devices=("cuda",), suite="full"),
        DefaultOptions(Options(mode="reduce-overhead", tuned=True), devices=("cuda",), suite="full"),
        DefaultOptions(Options(mode="max-autotune", freezing=True), devices=("cpu",), suite="full"),
    ),
    requires=(TORCH,),
    missing=missing_compiler,
    unsupported_options=_unsupported,
    unsupported_sizes=_one_size_only,
    checks="dynamo captured one graph without a graph break, and inductor compiled it",
    uses_inductor=True,
    same_when_traced=("cpu", "cuda"),
    caches=True,
    binds_memory=lambda options: options.graph,
    weight_copies=2.0,
    gpu_weight_copies=1.0,
    environment=compiler_environment,
    overlaps=_overlaps,
    searches=_searches,
)
