"""All private names of torch that this project uses; no other file uses any.

Private names may change with every version of torch. tests/backends/test_torch_internals.py checks each against the
installed version, so that an upgrade which removes one fails that test. Importing this file imports nothing of torch.
Counters of a module that torch has not loaded yet read as zero.
"""

import ast
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor, fx, nn
    from torch.autograd.profiler import profile

    from bakeoff.models.component import DynamicAxis

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
"""Prefixes of profiler events that only enclose other events: compiled regions, cache lookups, TorchScript's `forward`.
"""

_COMPILED = "fxgraph_cache_"
"""Prefix of inductor's counters of graphs: hit, miss or bypass, one count per graph (torch/_inductor/codecache.py)."""
_LIBRARIES = ("extern_kernels.", "torch.ops.", "aten.")
"""Prefixes of calls of libraries and ATen in inductor's Python."""
_AOTI_LIBRARY_CALL = re.compile(r"\baoti_torch_(?:(?:(?:cpu|cuda|mkldnn)_)+(\w+)|(proxy_executor)_call_function)\(")
"""A library call in AOTInductor's C++. Operators without a C function of their own are called by the proxy executor,
with a number instead of a name."""
_AOTI_KERNEL = re.compile(r"(?:\bcall_|\bkernels\.)(\w+)\(|\b(cpp_fused\w*)\(")
"""A call of a generated kernel in AOTInductor's C++. On CUDA a Triton kernel is called by its launcher,
`call_triton_…(`, and a CUTLASS kernel as `kernels.cutlass_…(` (torch/_inductor/codegen/cpp_wrapper_gpu.py,
_generate_kernel_call_helper)."""


@dataclass(frozen=True, slots=True)
class CompileActivity:
    """Counts of dynamo and inductor: since the process began (`snapshot`), or between two snapshots (`after - before`).

    A difference below zero counts as zero: any code may clear dynamo's counters
    (`torch._dynamo.utils.counters.clear()`).
    """

    captured: int = 0
    """Graphs that dynamo passed to a compiler."""
    graph_breaks: int = 0
    compiled: int = 0
    """Graphs that inductor compiled or loaded from its cache."""
    cache_hits: int = 0
    """Graphs that inductor loaded from its cache."""
    kernels: int = 0
    """Kernels that inductor generated; for a graph from the cache, those generated when it was compiled."""
    vectorised_kernels: int = 0
    """Kernels that inductor generated as vectorised C++."""
    not_captured: int = 0
    """Graphs that inductor does not run as CUDA graphs although its settings say so."""

    def __add__(self, other: "CompileActivity") -> "CompileActivity":
        return CompileActivity(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, before: "CompileActivity") -> "CompileActivity":
        return CompileActivity(*(max(0, now - was) for now, was in zip(astuple(self), astuple(before), strict=True)))


def snapshot() -> CompileActivity:
    """Return the counts of dynamo and inductor in this process so far; zeros for modules that are not imported."""
    counters = _dynamo_counters()
    inductor, metrics = counters.get("inductor", {}), sys.modules.get("torch._inductor.metrics")
    return CompileActivity(
        captured=int(counters.get("stats", {}).get("unique_graphs", 0)),
        graph_breaks=sum(counters.get("graph_break", {}).values()),
        compiled=sum(int(count) for name, count in inductor.items() if name.startswith(_COMPILED)),
        cache_hits=int(inductor.get(f"{_COMPILED}hit", 0)),
        kernels=metrics.generated_kernel_count if metrics else 0,
        vectorised_kernels=metrics.generated_cpp_vec_kernel_count if metrics else 0,
        not_captured=int(inductor.get("cudagraph_skips", 0)),
    )


def read_counters(*groups: str) -> dict[str, int]:
    """Return dynamo's counters of these groups as `group.name`; empty if dynamo is not imported."""
    counters = _dynamo_counters()
    return {f"{group}.{name}": int(count) for group in groups for name, count in counters.get(group, {}).items()}


def _dynamo_counters() -> Mapping[str, Mapping[str, Any]]:
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo.counters if dynamo else {}


def compile_id() -> str:
    """Return dynamo's id of the compilation in progress, as `frame/number`. Call it in a compiler that dynamo calls."""
    from torch._guards import CompileContext

    return str(CompileContext.current_compile_id())


def recompile_reasons(compile_ids: Collection[str]) -> tuple[str, ...]:
    """Return dynamo's reasons for these recompilations, in order; a first compilation has no reason and is left out.

    Dynamo keeps the last 64 compilations, and restarts its numbers after `torch._dynamo.reset()`: of several
    compilations with one number the newest counts.
    """
    from torch._dynamo.utils import get_compilation_metrics

    newest = {entry.compile_id: entry for entry in get_compilation_metrics() if entry.graph_op_count}
    found = (newest[number].recompile_reason for number in compile_ids if number in newest)
    return tuple(reason for reason in found if reason)


@contextmanager
def separate_sizes() -> Iterator[None]:
    """Let dynamo, within the block, give axes of equal size separate symbols, so that their sizes may differ later."""
    from torch.fx.experimental import _config

    with _config.patch(use_duck_shape=False):  # type: ignore[attr-defined]  # installed at run time
        yield


def marked(inputs: "Mapping[str, Tensor]", sizes: "Iterable[DynamicAxis]") -> "dict[str, Tensor]":
    """Return copies of the inputs that tell dynamo which axes have a range of sizes; the inputs are not changed.

    torch nevertheless specialises on a size of one, and compiles a separate graph for it
    (torch/fx/experimental/symbolic_shapes.py, specialize_zero_one).
    """
    import torch._dynamo

    found = {name: tensor.clone() for name, tensor in inputs.items()}
    for one in sizes:
        torch._dynamo.mark_dynamic(found[one.input], one.axis, min=one.min, max=one.max)
    return found


def compile_with_inductor(graph: "fx.GraphModule", inputs: "list[Tensor]", settings: Mapping[str, Any]) -> Any:
    """Compile a graph that dynamo captured; return inductor's callable. `settings` apply to this compilation only."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(graph, inputs, config_patches=dict(settings))


_FROZEN_GRAPHS_PIN = ("2.13.0", "557e4336e50694f0")
"""The version of torch whose cache `frozen_graphs_cached` changes, and the hash of the files that the change relies on.
"""
_FROZEN_GRAPHS_FILES = ("codecache.py", "output_code.py", "freezing_utils.py", "constant_folding.py")


def caches_frozen_graphs() -> bool:
    """Return whether the files of the installed torch are the ones that `frozen_graphs_cached` was written for."""
    import torch._inductor

    version, pinned = _FROZEN_GRAPHS_PIN
    folder, digest = Path(torch._inductor.__file__).parent, hashlib.sha256()
    try:
        for name in _FROZEN_GRAPHS_FILES:
            digest.update((folder / name).read_bytes())
    except OSError:
        return False
    return torch.__version__.partition("+")[0] == version and digest.hexdigest()[:16] == pinned


@contextmanager
def frozen_graphs_cached(values: str) -> Iterator[None]:
    """Let inductor's cache, within the block, also store graphs with frozen weights that oneDNN has packed.

    Inductor refuses every graph with a packed tensor, because such tensors cannot be pickled
    (torch/_inductor/codecache.py, CacheabilityValidator.check_tensor). It stores no frozen weight anyway: a graph from
    the cache gets those of the process that loads it, by name (output_code.py, CompiledFxGraphConstantsWithGm). So for
    the key the packed ones are reduced to shape, dtype and bytes.

    `values` must be a hash of the graph and of all its weights; it becomes a part of the key. Inductor's own key has
    only the shapes of most frozen weights, although code may depend on their values: scalars are written into it, and
    lowerings of int8 compute constants from scales and zero points (mkldnn_lowerings.py), which are stored. Equal
    tensors may also be one constant in one graph and two in another.

    Nothing is changed for any version of torch but the pinned one, nor for packed tensors that are not frozen weights.
    """
    if not caches_frozen_graphs():
        yield
        return
    import torch
    from torch._inductor import codecache
    from torch._inductor.freezing_utils import is_frozen_param

    pickler: Any = codecache.FxGraphCachePickler
    validator: Any = codecache.CacheabilityValidator
    settings: Any = torch.compiler.config
    reduce, check = pickler._reduce_tensor, validator.check_tensor

    def reduce_tensor(self: Any, tensor: "Tensor") -> Any:
        if not (tensor.is_mkldnn and is_frozen_param(tensor)):
            return reduce(self, tensor)
        return codecache._ident, (("mkldnn", tuple(tensor.shape), tensor.dtype, torch.ops.mkldnn._nbytes(tensor)),)

    def check_tensor(tensor: "Tensor") -> None:
        if not (tensor.is_mkldnn and is_frozen_param(tensor)):
            check(tensor)

    tag = f"{settings.cache_key_tag} {values} {torch.backends.cpu.get_cpu_capability()}"
    pickler._reduce_tensor = reduce_tensor
    validator.check_tensor = staticmethod(check_tensor)
    try:
        with settings.patch(cache_key_tag=tag):
            yield
    finally:
        pickler._reduce_tensor = reduce
        validator.check_tensor = staticmethod(check)


@contextmanager
def without_trials() -> Iterator[None]:
    """Let inductor, within the block, trust the libraries in its cache folder, if this version of torch allows it.

    Otherwise each process that loads a graph preprocesses torch's headers, for the names of precompiled ones that it
    does not need, and loads a library for each set of vector instructions in a separate process: a second of CPU time
    (torch/_inductor/codecache.py, _precompile_header; cpu_vec_isa.py, VecISA.check_build; 2.13).
    """
    from torch._inductor import codecache, cpu_vec_isa

    trials: list[tuple[Any, str, Callable[..., Any]]] = [
        (codecache, "_precompile_header", lambda *_, **_more: ""),
        (cpu_vec_isa.VecISA, "_probe_load", lambda _set, path: Path(path).exists()),
    ]
    usual = [(owner, name, getattr(owner, name)) for owner, name, _ in trials if hasattr(owner, name)]
    try:
        for owner, name, instead in trials if len(usual) == len(trials) else ():
            setattr(owner, name, instead)
        yield
    finally:
        for owner, name, before in usual:
            setattr(owner, name, before)


def inductor_mode(mode: str) -> dict[str, Any]:
    """Return the inductor settings that a `mode` of torch.compile stands for."""
    from torch._inductor import list_mode_options

    return dict(list_mode_options(mode))


TUNED: Mapping[str, bool] = {
    "coordinate_descent_tuning": True,
    "coordinate_descent_check_all_directions": True,
    "force_fuse_int_mm_with_mul": True,
    "fx_graph_cache": True,
    "triton.unique_kernel_names": True,
}
"""Inductor settings that torchao's `quantize_` sets for the whole process (torchao 0.18, quantization/utils.py,
recommended_inductor_config_setter)."""


@contextmanager
def compiled_once(share: Callable[[Path, Callable[[], None]], None]) -> Iterator[None]:
    """Have `share` make, within the block, what inductor compiles before any graph; it gets the file and what makes it.

    That is torch's C++ headers, precompiled, and a library for each set of vector instructions that the CPU's flags
    promise: most of the CPU time of a small graph's first build. A file's name is the hash of what is compiled and how,
    so inductor uses any file of that name, whoever made it; but it looks below TMPDIR and in its cache folder, which
    each worker has for itself (torch/_inductor/codecache.py, _precompile_header; cpu_vec_isa.py, VecISA.check_build;
    cpp_builder.py, CppBuilder.build; 2.13). Headers of clang contain the paths of their sources and are not shared.
    """
    from torch._inductor import cpp_builder, cpu_vec_isa

    builder: Any = cpp_builder.CppBuilder
    vectors: Any = cpu_vec_isa.VecISA
    build, check = builder.build, vectors.check_build
    checking = False

    def build_shared(self: Any) -> None:
        file = Path(self.get_target_file_path())
        if checking or file.suffix == ".gch":
            share(file, lambda: build(self))
        else:
            build(self)

    def check_shared(self: Any, code: str) -> bool:
        nonlocal checking
        checking = True
        try:
            return bool(check(self, code))
        finally:
            checking = False

    builder.build, vectors.check_build = build_shared, check_shared
    try:
        yield
    finally:
        builder.build, vectors.check_build = build, check


def read_inductor_settings() -> dict[str, bool]:
    """Return the current values of the settings in `TUNED`, as `inductor.NAME`; empty if inductor is not imported."""
    if "torch._inductor.config" not in sys.modules:
        return {}
    from torch._inductor import config

    return {f"inductor.{name}": bool(getattr(config, name)) for name in TUNED}


def change_inductor_settings(settings: Mapping[str, bool]) -> None:
    """Set inductor's global settings to values from `read_inductor_settings`; an empty mapping imports nothing."""
    if settings:
        from torch._inductor import config

        for name, value in settings.items():
            setattr(config, name.removeprefix("inductor."), value)


def inductor_settings(**changes: Any) -> AbstractContextManager[None]:
    """Return a context that changes inductor's global settings and restores them at its end."""
    from torch._inductor import config

    return config.patch(**changes)


@contextmanager
def generated_code() -> "Iterator[list[ModuleType]]":
    """Collect the Python modules that inductor writes or loads while the context is open; complete when it closes.

    Inductor does not list a module that this process has loaded before (PyCodeCache.modules_no_attr), so a second
    engine of the same graph would seem to have no code. Its lists are therefore replaced by empty ones while the
    context is open, and joined afterwards.
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
    """Count the calls into oneDNN, cuDNN, BLAS and ATen in inductor's generated Python, by name.

    All functions of a module are read: with CUDA graphs, inductor puts the calls into functions `partition_N`, which
    its `call` runs (torch/_inductor/codegen/wrapper.py, SubgraphPythonWrapperCodegen). Kernels are text in the module.
    """
    found: Counter[str] = Counter()
    for tree in _parsed(modules):
        called = (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))
        found.update(
            name.removeprefix("extern_kernels.").removeprefix("torch.ops.").removesuffix(".default")
            for name in called
            if name.startswith(_LIBRARIES)
        )
    return found


def captured_functions(modules: "Iterable[ModuleType]") -> int:
    """Count the functions in inductor's generated Python that it captures as CUDA graphs, if it captures any.

    Inductor moves into them all code that a CUDA graph can contain (torch/_inductor/codegen/wrapper.py,
    codegen_partition_call); without any, it captures nothing and does not say so (torch/_inductor/output_code.py,
    cudagraph_partition_post_compile).
    """
    return sum(
        isinstance(node, ast.FunctionDef) and node.name.startswith("partition_")
        for tree in _parsed(modules)
        for node in tree.body
    )


def _parsed(modules: "Iterable[ModuleType]") -> Iterator[ast.Module]:
    for module in modules:
        if module.__file__:
            yield ast.parse(Path(module.__file__).read_text(encoding="utf-8"))


def fold_constants(graph: "nn.Module") -> None:
    """Replace all parts of a captured graph that depend only on parameters by their results, in place."""
    from torch._inductor.constant_folding import constant_fold

    constant_fold(graph)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Package:
    """A loaded AOTInductor package."""

    loader: Any
    """torch._C._aoti.AOTIModelPackageLoader"""

    @property
    def run(self) -> "Callable[[Any], list[Tensor]]":
        """Function from a list of inputs to a list of outputs. It empties the list of inputs and checks nothing."""
        return self.loader.boxed_run

    def constants(self) -> list[str]:
        """Return the names of the weights, as `load_constants` expects them."""
        return list(self.loader.get_constant_fqns())

    def load_constants(self, weights: "Mapping[str, Tensor]") -> None:
        """Use these weights without copying them; the caller must keep them alive. Every name must be present."""
        from torch.export.pt2_archive._package import AOTICompiledModel

        AOTICompiledModel(self.loader).load_constants(dict(weights), check_full_update=True, user_managed=True)

    def metadata(self) -> dict[str, str]:
        return dict(self.loader.get_metadata())


def compile_package(program: Any, path: Path, settings: Mapping[str, Any]) -> None:
    """Compile an exported program into a package at `path`, without kernel contexts."""
    from torch._inductor import aoti_compile_and_package

    with _without_kernel_contexts():
        aoti_compile_and_package(program, package_path=str(path), inductor_configs=dict(settings))


@contextmanager
def _without_kernel_contexts() -> Iterator[None]:
    """Remove, within the block, the kernel contexts that `cpp.enable_kernel_profile` adds to a package; keep kernel
    names.

    In torch 2.13 the setting also puts a KernelContextGuard around each kernel and library call, which makes two
    strings and a stringstream at every call (torch/csrc/inductor/aoti_runtime/kernel_context_tls.h), with the source
    lines of the module and their paths (torch/_inductor/codegen/cpp_wrapper_cpu.py, write_kernel_context_guard). Only
    torch's own debugging reads it.
    """
    from torch._inductor.utils import IndentedBuffer

    code: Any = IndentedBuffer
    usual = code.writeline

    def writeline(self: Any, line: Any) -> None:
        if not (isinstance(line, str) and line.startswith(KERNEL_CONTEXT)):
            usual(self, line)

    code.writeline = writeline
    try:
        yield
    finally:
        code.writeline = usual


KERNEL_CONTEXT = "KernelContextGuard _ctx("
"""Prefix of the line in a package's wrapper that makes a kernel context."""


def load_package(path: Path) -> Package:
    """Load a package as torch's C++ does, to be called from one thread at a time; `aoti_load_package` would import
    inductor.

    Otherwise (`run_single_threaded=False`) each call on CUDA would first wait, on the host, until the GPU has finished
    the call before it, and could not be captured (torch/include/torch/csrc/inductor/aoti_runtime/model_container.h,
    reclaim_finished_models; model_base.h, run; 2.13). Raises RuntimeError for a file that this version of torch cannot
    load.
    """
    import torch

    return Package(torch._C._aoti.AOTIModelPackageLoader(str(path), "model", True, 1, -1))


def package_calls(wrapper: str) -> tuple[Counter[str], Counter[str]]:
    """Count the calls in a package's C++ wrapper, by name: of libraries, and of generated kernels."""
    body = wrapper.partition("::run_impl(")[2]
    libraries, kernels = (
        Counter(first or second for first, second in pattern.findall(body))
        for pattern in (_AOTI_LIBRARY_CALL, _AOTI_KERNEL)
    )
    return libraries, kernels


def int8_product(left: "Tensor", right: "Tensor", out: "Tensor | None" = None) -> "Tensor":
    """Return the product of two int8 matrices as int32, written to `out` if it is given.

    Raises RuntimeError if the device has no kernel for it.
    """
    import torch

    return torch._int_mm(left, right) if out is None else torch._int_mm(left, right, out=out)


def copier(buffers: "Mapping[str, Tensor]", values: "Mapping[str, Tensor]") -> Callable[[], tuple[()]]:
    """Return a function that copies each value into the buffer of its name; no value may lie in another's buffer.

    On CUDA one kernel copies many tensors, but only if all buffers of its list have one dtype and each value has the
    strides of its buffer: a single other tensor, such as an fp32 input among bf16 ones, makes torch copy all of the
    list one by one. So there is a list for each dtype (ATen/native/cuda/ForeachBinaryOpList.cu,
    foreach_tensor_copy_list_kernel_cuda_; ATen/native/ForeachUtils.h, _check_tensors_share_device_and_dtype, 2.13). On
    a CPU torch copies any list one by one, without Python between.
    """
    import torch

    lists: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
    for name, value in values.items():
        buffer = buffers[name]
        alike = buffer.is_cuda and (buffer.device, buffer.dtype, value.stride() == buffer.stride())
        own, new = lists.setdefault(alike, ([], []))
        own.append(buffer)
        new.append(value)

    def copy() -> tuple[()]:
        for own, new in lists.values():
            torch._foreach_copy_(own, new)
        return ()

    return copy


_CYCLES_PER_NS = 2
"""Approximate clock rate of GPUs, which run at 1.4 to 2.9 GHz."""


def fake_tensors() -> Any:
    """Return a mode in which tensors have shapes and dtypes but no values; its `from_tensor` makes one from a real
    tensor."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode(allow_non_fake_inputs=True)


def _may_compile(_mode: type | None = None) -> bool:
    """Return whether dynamo was imported, so that modes must be hidden from it; importing it only for that would take 2
    s."""
    return "torch._dynamo" in sys.modules


def flop_counter(formulas: Mapping[Any, Callable[..., int]]) -> Any:
    """Return torch.utils.flop_counter's mode, with `formulas` for operators that its own table lacks.

    It knows no modules, since torch's tracker of these puts hooks on tensors that need gradients, and a forward that
    calls autograd.grad then fails. Within `watch_dispatch` it also counts what cond, while_loop, scan and map call.
    """
    from torch.utils import flop_counter

    raw = flop_counter._FlopCounterMode.__torch_dispatch__.__wrapped__  # type: ignore[attr-defined]  # functools.wraps
    if not _may_compile():
        setattr(raw, "__dynamo_disable", raw)  # else torch imports dynamo to keep it from being compiled
    elif getattr(raw, "__dynamo_disable", None) is raw:
        delattr(raw, "__dynamo_disable")
    counter = flop_counter.FlopCounterMode(display=False, custom_mapping=dict(formulas))
    counter.mod_tracker = _NoModules()  # type: ignore[assignment]
    return counter


class _NoModules(nullcontext[None]):
    """Stands in for torch.utils.module_tracker.ModuleTracker."""

    parents = ("Global",)


def watch_dispatch(note: Callable[[Any, list[Any], Any], None]) -> Any:
    """Return a context that passes each dispatched operator, its arguments (also those in lists) and its result to
    `note`."""
    from torch.utils._pytree import tree_leaves

    def compute(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        result = func(*args, **named)
        note(func, tree_leaves((args, named)), result)
        return result

    return replace_dispatch(compute)


def without_dispatch() -> Any:
    """Return a context in which no mode watches or changes dispatched operators."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def storage_id(tensor: "Tensor") -> int:
    """Return an id of the tensor's storage, unique while the storage exists, also on the meta device, where all
    addresses are 0."""
    return tensor.untyped_storage()._cdata


@contextmanager
def replace_dispatch(compute: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Iterator[None]:
    """Within this context, `compute`, given an operator and its arguments, computes each dispatched operator.

    A higher-order operator, such as cond and flex_attention, reaches `compute` with all modes in force in the functions
    among its arguments, and in nothing else. Such operators compile these functions, which fails under a mode, unless
    all compiled code is run in eager.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
    from torch.utils._pytree import tree_map

    class Replacing(TorchDispatchMode):
        _should_skip_dynamo: Any = classmethod(_may_compile)
        supports_higher_order_operators = True
        ignore_compile_internals: Any = classmethod(lambda _: True)
        within = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = dict(kwargs or {})
            if not isinstance(func, torch._ops.HigherOrderOperator):
                parts = NotImplemented
                if self.within and func.namespace == "aten":  # where composite operators arrive whole
                    with self:
                        parts = func.decompose(*args, **named)
                return compute(func, args, named) if parts is NotImplemented else parts
            modes = [*_get_current_dispatch_mode_stack(), self]

            def watched(value: Any) -> Any:
                if not callable(value):
                    return value

                def call(*operands: Any, **others: Any) -> Any:
                    self.within += 1
                    with ExitStack() as entered:
                        for mode in modes:
                            entered.enter_context(mode)
                        result = value(*operands, **others)
                    self.within -= 1
                    return result

                return call

            args, named = tree_map(watched, (args, named))
            with without_dispatch():
                return compute(func, args, named)

    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with eager, Replacing():  # type: ignore[no-untyped-call]
        yield


def intercept_dispatch(compute: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Any:
    """Return a context like `replace_dispatch`'s in which compiled code stays compiled: of that `compute` gets only
    what it calls itself, such as `aten.addmm.out`.

    Under any other mode dynamo runs a compiled frame in eager (PyTorch 2.13, torch/_dynamo/convert_frame.py).
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Intercepting(TorchDispatchMode):
        _should_skip_dynamo: Any = classmethod(_may_compile)
        ignore_compile_internals: Any = classmethod(lambda _: True)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return compute(func, args, dict(kwargs or {}))

    return Intercepting()  # type: ignore[no-untyped-call]


def rewrite_dispatch(rewrite: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a context in which `rewrite` changes the keyword arguments of each dispatched operator."""
    return replace_dispatch(lambda func, args, named: func(*args, **rewrite(func, named)))


def occupy_gpu(ns: int) -> None:
    """Queue a kernel on the current stream that does nothing for about `ns` nanoseconds; return at once."""
    import torch

    torch.cuda._sleep(ns * _CYCLES_PER_NS)


def profile_every_thread() -> "profile":
    """Return torch's profiler, set to include threads that a call starts.

    torch.profiler.profile would import inductor (1 s).
    """
    from torch._C._profiler import _ExperimentalConfig
    from torch.autograd.profiler import profile

    return profile(experimental_config=_ExperimentalConfig(profile_all_threads=True))
