"""The private names of torch that this project relies on, each used here alone.

torch promises none of them from one version to the next. tests/backends/test_torch_internals.py checks each against the
installed version, so that an upgrade that moves one fails there. Nothing is imported before it is called: reading
counters of a module that torch has not loaded yet gives zeros.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor, fx, nn
    from torch.autograd.profiler import profile

INDUCTOR_CALL = "## Call CompiledFxGraph"
"""Prefix of the profiler event around each call of a graph that inductor compiled (torch/_inductor/output_code.py)."""
INDUCTOR_KERNELS = ("cpp_", "graph_", "triton_", "kernel_")
"""Prefixes of the names of kernels that inductor generates."""
WRAPPER_EVENTS = (
    "## Call",
    "Torch-Compiled Region",
    "TorchDynamo",
    "CompiledFunction",
    "inductor_wrapper_call",
    "forward",
)
"""Prefixes of profiler events that only enclose others: compiled regions, cache lookups, TorchScript's `forward`."""

_COMPILED = "fxgraph_cache_"
"""Prefix of inductor's counters of graphs: hit, miss or bypass, one for each graph (torch/_inductor/codecache.py)."""
_LIBRARY_CALL = re.compile(r"\b(?:extern_kernels|torch\.ops|aten)\.([\w.]+)\(")
_AOTI_LIBRARY_CALL = re.compile(r"\baoti_torch_(?:(?:cpu|cuda|mkldnn)_)+(\w+)\(")
_AOTI_KERNEL = re.compile(r"\b((?:cpp_fused|triton_\w*fused)\w*)\(")


@dataclass(frozen=True, slots=True)
class CompileActivity:
    """Counts of dynamo and inductor: since the process began (`snapshot`), or between two snapshots (`after - before`).

    A difference below zero counts as zero: anyone may clear dynamo's counters (`torch._dynamo.utils.counters.clear()`).
    """

    captured: int = 0
    """Graphs that dynamo handed to a compiler."""
    graph_breaks: int = 0
    compiled: int = 0
    """Graphs that inductor compiled or took from its cache."""
    cache_hits: int = 0
    """Those of them that it took from its cache."""
    kernels: int = 0
    """Kernels that inductor generated; of a graph from the cache, when it was compiled."""
    vectorised_kernels: int = 0
    """Those of them that are vectorised C++."""

    def __add__(self, other: "CompileActivity") -> "CompileActivity":
        return CompileActivity(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, before: "CompileActivity") -> "CompileActivity":
        return CompileActivity(*(max(0, now - was) for now, was in zip(astuple(self), astuple(before), strict=True)))


def snapshot() -> CompileActivity:
    """What dynamo and inductor have counted in this process so far; zeros for what is not imported."""
    counters = _dynamo_counters()
    inductor, metrics = counters.get("inductor", {}), sys.modules.get("torch._inductor.metrics")
    return CompileActivity(
        captured=int(counters.get("stats", {}).get("unique_graphs", 0)),
        graph_breaks=sum(counters.get("graph_break", {}).values()),
        compiled=sum(int(count) for name, count in inductor.items() if name.startswith(_COMPILED)),
        cache_hits=int(inductor.get(f"{_COMPILED}hit", 0)),
        kernels=metrics.generated_kernel_count if metrics else 0,
        vectorised_kernels=metrics.generated_cpp_vec_kernel_count if metrics else 0,
    )


def read_counters(*groups: str) -> dict[str, int]:
    """Dynamo's counters of these groups as `group.name`; empty where dynamo is not imported."""
    counters = _dynamo_counters()
    return {f"{group}.{name}": int(count) for group in groups for name, count in counters.get(group, {}).items()}


def _dynamo_counters() -> Mapping[str, Mapping[str, Any]]:
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo.counters if dynamo else {}


def compile_id() -> str:
    """Dynamo's name of the compilation in progress, as `frame/number`. Called by a compiler that dynamo calls."""
    from torch._guards import CompileContext

    return str(CompileContext.current_compile_id())


def recompile_reasons(compile_ids: Collection[str]) -> tuple[str, ...]:
    """Dynamo's reasons for these compilations, in order; of one that was none it has no reason.

    Dynamo keeps the last 64 compilations, and begins its numbers anew after `torch._dynamo.reset()`.
    """
    from torch._dynamo.utils import get_compilation_metrics

    entries = (entry for entry in get_compilation_metrics() if entry.graph_op_count and entry.compile_id in compile_ids)
    return tuple(entry.recompile_reason for entry in entries if entry.recompile_reason)


def compile_with_inductor(graph: "fx.GraphModule", inputs: "list[Tensor]", settings: Mapping[str, Any]) -> Any:
    """Inductor's callable for a graph that dynamo captured; `settings` hold for this compilation alone."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(graph, inputs, config_patches=dict(settings))


def inductor_mode(mode: str) -> dict[str, Any]:
    """Inductor's settings that torch.compile's `mode` stands for."""
    from torch._inductor import list_mode_options

    return dict(list_mode_options(mode))


def inductor_settings(**changes: Any) -> AbstractContextManager[None]:
    """Change inductor's global settings; leaving the context restores them."""
    from torch._inductor import config

    return config.patch(**changes)


@contextmanager
def generated_code() -> "Iterator[list[ModuleType]]":
    """The Python modules that inductor writes, or loads again, while the context is open; complete when it closes.

    Inductor does not list a module again that this process has loaded before (PyCodeCache.modules_no_attr), so that a
    second engine of one graph would seem to have no code. Its lists are put aside meanwhile and joined afterwards.
    """
    from torch._inductor.codecache import PyCodeCache

    modules, by_path = PyCodeCache.modules, PyCodeCache.modules_no_attr
    found: list[ModuleType] = []
    PyCodeCache.modules, PyCodeCache.modules_no_attr = found, {}
    try:
        yield found
    finally:
        modules += PyCodeCache.modules
        by_path |= PyCodeCache.modules_no_attr
        PyCodeCache.modules, PyCodeCache.modules_no_attr = modules, by_path


def library_calls(modules: "Iterable[ModuleType]") -> Counter[str]:
    """Calls in inductor's generated Python that are not its own kernels: oneDNN, cuDNN, BLAS and ATen, by name."""
    found: Counter[str] = Counter()
    for module in modules:
        source = Path(module.__file__ or "").read_text(encoding="utf-8") if module.__file__ else ""
        _, _, calls = source.partition("def call(")
        found.update(name.removesuffix(".default") for name in _LIBRARY_CALL.findall(calls.partition("\ndef ")[0]))
    return found


def fold_constants(graph: "nn.Module") -> None:
    """Replace what a captured graph computes from its parameters alone by the result, in place."""
    from torch._inductor.constant_folding import constant_fold

    constant_fold(graph)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Package:
    """A package of AOTInductor, loaded."""

    model: Any
    """torch._inductor.package.AOTICompiledModel"""

    @property
    def run(self) -> "Callable[[list[Tensor]], list[Tensor]]":
        """List of inputs, which it empties and does not check, to outputs. AOTICompiledModel's own call is slower."""
        run: Callable[[list[Tensor]], list[Tensor]] = self.model.loader.boxed_run
        return run

    def constants(self) -> list[str]:
        """Names of the weights, as `load_constants` takes them."""
        return list(self.model.get_constant_fqns())

    def load_constants(self, weights: "Mapping[str, Tensor]") -> None:
        """Compute with these weights, where they lie: the caller keeps them alive. All names must be there."""
        self.model.load_constants(dict(weights), check_full_update=True, user_managed=True)

    def metadata(self) -> dict[str, str]:
        return dict(self.model.get_metadata())


def compile_package(program: Any, path: Path, settings: Mapping[str, Any]) -> None:
    """Compile an exported program into a package at `path`."""
    from torch._inductor import aoti_compile_and_package

    aoti_compile_and_package(program, package_path=str(path), inductor_configs=dict(settings))


def load_package(path: Path) -> Package:
    """Raises RuntimeError for a file that is no package of this torch."""
    from torch._inductor import aoti_load_package

    return Package(aoti_load_package(str(path)))


def package_calls(wrapper: str) -> tuple[Counter[str], Counter[str]]:
    """Calls in the C++ wrapper of a package by name: those into libraries, those of generated kernels."""
    body = wrapper.partition("::run_impl(")[2]
    return Counter(_AOTI_LIBRARY_CALL.findall(body)), Counter(_AOTI_KERNEL.findall(body))


def profile_every_thread() -> "profile":
    """Torch's profiler over the threads that a call starts too. torch.profiler's own would import inductor (1 s)."""
    from torch._C._profiler import _ExperimentalConfig
    from torch.autograd.profiler import profile

    return profile(experimental_config=_ExperimentalConfig(profile_all_threads=True))
