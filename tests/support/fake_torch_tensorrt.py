"""A torch_tensorrt that runs its engines by PyTorch, for hosts without a GPU.

It imitates what was read in the wheels of 2.11 to 2.14, whose signatures are in tests/golden/torch_tensorrt.json:
engines are submodules `_run_on_acc_N` of the compiled graph (dynamo/_compiler.py, compile_module), which call
`tensorrt::execute_engine` on an object of a C++ class (dynamo/runtime/_TorchTensorRTModule.py), here on the number of
the engine, so that torch itself exports, saves and loads the graph, but no engine is in the file; an engine may keep
its outputs' memory (dynamo/runtime/_TRTEngine.py); partitions are logged for debugging, or written by a dry run
(dynamo/_DryRunTracker.py); a full compilation that is not possible is an AssertionError without a name, and operators
without a converter, `unconverted` by their qualified names, are left in graphs `_run_on_gpu_N`
between the engines (dynamo/partitioning/_adjacency_partitioner.py); a failed build is PyTorch's own graph unless it is
to be passed through (dynamo/backend/backends.py). Whether engines run as CUDA graphs is one global of the process, that
each call reads: an engine captures where its last call was without, and drops its graph in a call without
(core/runtime/TRTEngine.h, set_runtime_states, 74 in 2.13.0). It builds no engine and proves none.

Ranges of sizes follow the sources of 2.13.0:
- an engine's profile is the range of the symbols in its graph, not what `inputs` says; a range that begins at 2 begins
  at 1 (dynamo/_compiler.py:1106; dynamo/partitioning/common.py:18; dynamo/utils.py:409 and 458);
- shapes outside of the profile are an error of the call (core/runtime/execute_engine.cpp:147), and so are those of an
  engine for one size;
- torch.compile's graph is lowered with its symbols, which an engine takes as tensors where it uses them
  (dynamo/backend/backends.py:329; dynamo/runtime/_TorchTensorRTModule.py:579);
- a traced engine gives outputs whose shapes are the expressions of its graph (dynamo/runtime/meta_ops/
  register_meta_ops.py:11), a run one those that the inputs lead to (core/runtime/execute_engine.cpp:169);
- outputs that were allocated before serve calls of the same shapes alone (core/runtime/TRTEngine.h:78);
- `export` copies a graph and traces it with torch.export (dynamo/_exporter.py:26).
"""

import copy
import json
import logging
import operator
import sys
import types
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, fx, nn
from torch._dynamo.utils import detect_fake_mode
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.passes.split_module import split_module

from bakeoff.backends.torch_tensorrt import settings

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SIGNATURES: dict[str, dict[str, list[str]]] = json.loads((GOLDEN / "torch_tensorrt.json").read_text(encoding="utf-8"))
PARTITIONS = (GOLDEN / "torch_tensorrt_partitions.txt").read_text(encoding="utf-8")
FAKE_ENGINE = b"not an engine"
_ENGINES: "list[Engine]" = []
_RAN: list[tuple[int, bool]] = []
_CUDA_GRAPHS = [False]
"""The mode of the process; a list, because functions of several objects change it."""
_TELLER = logging.getLogger("torch_tensorrt.dynamo._DryRunTracker")
_OPERATORS = torch.library.Library("tensorrt", "FRAGMENT")
_OPERATORS.define("execute_engine(Tensor[] inputs, int engine) -> Tensor[]")


Bounds = tuple[tuple[int, int], ...]
"""The smallest and the largest size of each axis; of a size that is an input itself, its values."""


def _bounds(size: Any) -> tuple[int, int]:
    """As extract_var_range_info (dynamo/utils.py:409 in 2.13.0)."""
    if isinstance(size, int):
        return size, size
    environment, expression = size.node.shape_env, size.node.expr
    found = environment.var_to_range.get(expression) or environment.bound_sympy(expression)
    least = int(found.lower)
    return 1 if least == 2 else least, int(found.upper)


def _profile(graph: fx.GraphModule) -> tuple[Bounds | None, ...]:
    """The profile of an engine for this graph; None for an input whose shape is not known."""
    found: list[Bounds | None] = []
    for node in graph.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val", node.meta.get("example_value"))
        sizes = value.shape if isinstance(value, Tensor) else None if value is None else (value,)
        found.append(None if sizes is None else tuple(_bounds(size) for size in sizes))
    return tuple(found)


@dataclass(frozen=True)
class Input:
    """What `torch_tensorrt.Input` says of one input with a range (_Input.py)."""

    min_shape: tuple[int, ...]
    opt_shape: tuple[int, ...]
    max_shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass
class Engine:
    """An engine's runtime object, by the attributes that torch_tensorrt's has (runtime/_TorchTensorRTModule.py)."""

    graph: fx.GraphModule
    profile: tuple[Bounds | None, ...] = ()
    device_memory_budget: int = 1000
    automatic_device_memory_budget: int = 600
    use_pre_allocated_outputs: bool = False
    output_tensors_are_unowned: bool = False
    pre_allocated_outputs: list[Tensor] = field(default_factory=list)
    shape_key: list[torch.Size] = field(default_factory=list)
    captured: bool = False
    captures: list[bool] = field(default_factory=list)
    """For each capture, whether the engine had run before."""

    def set_output_tensors_as_unowned(self, enabled: bool) -> None:
        self.output_tensors_are_unowned = enabled

    def forms(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Empty tensors like the outputs for these inputs, which may be traced."""
        known: dict[Any, Any] = {}
        for node, tensor in zip(self.graph.graph.find_nodes(op="placeholder"), inputs, strict=True):
            value = node.meta["val"]
            for size, real in zip(value.shape if isinstance(value, Tensor) else (), tensor.shape, strict=False):
                if not isinstance(size, int):
                    known[size.node.expr] = real
        (outputs,) = self.graph.graph.find_nodes(op="output")[0].args
        shapes = [[_size(size, known) for size in node.meta["val"].shape] for node in outputs]
        return [torch.empty(shape, dtype=node.meta["val"].dtype) for shape, node in zip(shapes, outputs, strict=True)]

    def run(self, inputs: list[Tensor]) -> list[Tensor]:
        self._check(inputs)
        values = [int(tensor) if self._is_size(node) else tensor for node, tensor in self._given(inputs)]
        computed = self.graph(*values)
        if _CUDA_GRAPHS[0] and not (self.captured and self.shape_key == [tensor.shape for tensor in inputs]):
            self.captures.append(bool(self.shape_key))
        self.captured = _CUDA_GRAPHS[0]
        changed = self.shape_key != [tensor.shape for tensor in inputs] or not self.pre_allocated_outputs
        self.shape_key = [tensor.shape for tensor in inputs]
        if not self.use_pre_allocated_outputs:
            return [output.clone() for output in computed]
        outputs = [torch.empty_like(one) for one in computed] if changed else self.pre_allocated_outputs
        for output, value in zip(outputs, computed, strict=True):
            output.copy_(value)
        if self.output_tensors_are_unowned or changed:
            self.pre_allocated_outputs = [torch.empty_like(one) for one in computed]
        return list(outputs)

    def _given(self, inputs: Sequence[Tensor]) -> Iterator[tuple[fx.Node, Tensor]]:
        return zip(self.graph.graph.find_nodes(op="placeholder"), inputs, strict=True)

    def _is_size(self, node: fx.Node) -> bool:
        return isinstance(node.meta.get("val"), torch.SymInt)

    def _check(self, inputs: Sequence[Tensor]) -> None:
        for bounds, (node, tensor) in zip(self.profile, self._given(inputs), strict=True):
            sizes = (int(tensor),) if self._is_size(node) else tensor.shape
            if bounds is not None and not (
                len(sizes) == len(bounds)
                and all(low <= size <= high for size, (low, high) in zip(sizes, bounds, strict=True))
            ):
                raise RuntimeError("Error while setting the input shape")


def _size(size: Any, known: Mapping[Any, Any]) -> Any:
    """An output's size where the inputs have `known` ones, as register_meta_ops.py:11 finds it in 2.13.0."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression in known:
        return known[expression]
    numbers = {symbol: value for symbol, value in known.items() if isinstance(value, int)}
    if expression.free_symbols & numbers.keys():
        return int(expression.subs(numbers))
    traced = next(value for value in known.values() if not isinstance(value, int))
    hints = {symbol: value.node.hint for symbol, value in known.items()}
    return traced.node.shape_env.create_symintnode(expression, hint=int(expression.subs(hints)))


def _execute(inputs: list[Tensor], engine: int) -> list[Tensor]:
    _RAN.append((engine, _CUDA_GRAPHS[0]))
    return _ENGINES[engine].run(inputs)


_OPERATORS.impl("execute_engine", _execute, "CompositeExplicitAutograd")
torch.library.register_fake(
    "tensorrt::execute_engine", lambda inputs, engine: _ENGINES[engine].forms(inputs), lib=_OPERATORS
)


class EngineModule(nn.Module):
    """The replacement of a partition that TensorRT would build."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        (end,) = graph.graph.find_nodes(op="output")
        self.single = isinstance(end.args[0], fx.Node)
        if self.single:
            end.args = ((end.args[0],),)
            graph.recompile()
        self.number = len(_ENGINES)
        _ENGINES.append(Engine(graph, _profile(graph)))
        self.serialized_engine = FAKE_ENGINE

    def forward(self, *inputs: Any) -> Any:
        tensors = [one if isinstance(one, Tensor) else torch.tensor(one) for one in inputs]
        outputs = torch.ops.tensorrt.execute_engine(tensors, self.number)
        return outputs[0] if self.single else tuple(outputs)


def _runs_in_torch(node: fx.Node, executed: Collection[str]) -> bool:
    """Whether a node is left to PyTorch: a named operator, one of a namespace without converters, or its results."""
    if node.target is operator.getitem:
        return _runs_in_torch(node.args[0], executed)  # type: ignore[arg-type]
    name = f"torch.ops.{node.target}"
    return node.op == "call_function" and (name in executed or name.startswith("torch.ops.bakeoff."))


def _split(graph: fx.GraphModule, executed: Collection[str]) -> tuple[fx.GraphModule, str]:
    """The graph with an engine for each run of nodes that TensorRT takes, and the report of a dry run on it."""
    parts: dict[str, int] = {}
    torch_parts: set[int] = set()
    left: list[str] = []
    number, before = 0, None
    for node in graph.graph.nodes:
        if node.op not in ("call_function", "call_method"):
            continue
        here = _runs_in_torch(node, executed)
        number += before is not None and here != before
        before = here
        parts[node.name] = number
        if here:
            torch_parts.add(number)
            if node.target is not operator.getitem:
                left.append(f"Node: torch.ops.{node.target}, with layer location: /{node.name}")
    whole = split_module(graph, graph, lambda node: parts[node.name])
    for node in [node for node in whole.graph.nodes if node.op == "call_module"]:
        part = int(node.target.removeprefix("submod_"))
        child = whole.get_submodule(node.target)
        node.target = f"_run_on_{'gpu' if part in torch_parts else 'acc'}_{part}"
        whole.add_submodule(node.target, child if part in torch_parts else EngineModule(child))
    whole.recompile()
    totals = (
        f"The graph consists of {len(parts)} Total Operators, of which {len(parts) - len(left)} operators are supported"
    )
    return whole, "\n".join([totals, *left, ""])


@dataclass
class Fake:
    """Settings of the fake library, and the calls that it received."""

    version: str
    signatures: dict[str, list[str]]
    partitions: str
    """Its report on partitions."""
    lacks: tuple[str, ...] = ()
    """Operators that no engine supports; if there are any, one partition is run by PyTorch."""
    unconverted: tuple[str, ...] = ()
    """Qualified names of operators that PyTorch runs between engines."""
    fails: bool = False
    """Whether a build fails."""
    builder_log: tuple[str, ...] = ()
    """Errors that the builder logs, before it returns None, which is a bare AssertionError."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    compiled_left: list[bool] = field(default_factory=list)
    """For each call of `load`, whether the graph that was compiled last is still in memory."""
    switches: list[bool] = field(default_factory=list)
    """The modes that were set, in order."""
    _compiled: Callable[[], object] = field(default=lambda: None, init=False)

    @property
    def ran(self) -> list[tuple[int, bool]]:
        """For each call of an engine its number, and whether it ran as a CUDA graph."""
        return _RAN

    @property
    def engines(self) -> "list[Engine]":
        return _ENGINES

    def mode(self) -> bool:
        return _CUDA_GRAPHS[0]

    def set_mode(self, enabled: bool) -> None:
        self.switches.append(enabled)
        _CUDA_GRAPHS[0] = enabled

    def known(self, where: str) -> set[str]:
        return {name for name in self.signatures[where] if not name.startswith("*")}

    def _partition(self, graph: fx.GraphModule, executed: Collection[str] = ()) -> fx.GraphModule:
        """The whole graph as one engine, or run by PyTorch if it has an unsupported operator.

        Where operators are named to run in PyTorch, or have no converter, there are engines around them.
        """
        for line in self.builder_log:
            logging.getLogger("torch_tensorrt [TensorRT Conversion Context]").error(line)
        assert not self.builder_log
        if any(_runs_in_torch(node, executed) for node in graph.graph.nodes):
            whole, report = _split(graph, executed)
            _TELLER.debug(report)
            return whole
        _TELLER.debug(self.partitions)
        left = any(name in str(node.target) for node in graph.graph.nodes for name in self.lacks)
        outer = fx.Graph()
        inputs = []
        for node in graph.graph.find_nodes(op="placeholder"):
            own = outer.placeholder(node.name)
            own.meta |= {"val": node.meta["val"]} if "val" in node.meta else {}
            if isinstance(node.meta.get("val"), torch.SymInt) and not node.users:
                graph.graph.erase_node(node)
            else:
                inputs.append(own)
        graph.recompile()
        name = "_run_on_gpu_0" if left else "_run_on_acc_0"
        outer.output(outer.call_module(name, tuple(inputs)))
        return fx.GraphModule({name: graph if left else EngineModule(graph)}, outer)

    def backend(self, graph: fx.GraphModule, inputs: Sequence[Any], **given: Any) -> Callable[..., Any]:
        options = given["options"]
        self.asked.append(options)
        if self.fails and options["pass_through_build_failures"]:
            raise RuntimeError("[SHAPE] no tactic")
        if self.fails:
            return graph
        executed = self.unconverted
        if any(isinstance(one, torch.SymInt) for one in inputs):
            graph = _lowered(graph, inputs)
        elif executed or any(_runs_in_torch(node, executed) for node in graph.graph.nodes):
            graph = make_fx(graph)(*inputs)  # the library lowers dynamo's graph to ATen operators
        if options.get("dryrun"):
            Path(options["dryrun"]).write_text(self.partitions)
            return graph
        return self._partition(graph, executed)

    def compile(self, program: torch.export.ExportedProgram, **asked: Any) -> fx.GraphModule:
        self.asked.append(asked)
        graph = program.module(check_guards=False)
        executed = self.unconverted
        named = any(_runs_in_torch(node, executed) for node in graph.graph.nodes)
        lacking = named or any(name in str(node.target) for node in graph.graph.nodes for name in self.lacks)
        if lacking and asked["require_full_compilation"]:
            raise AssertionError("require_full_compilation=True was specified, but model is not fully supported")
        if asked.get("dryrun"):
            report = _split(graph, executed)[1] if named else self.partitions
            print(report)
            Path(asked["dryrun"]).write_text(report)
        compiled = self._partition(graph, executed)
        self._compiled = weakref.ref(compiled)
        return compiled

    def export(self, compiled: fx.GraphModule, **asked: Any) -> torch.export.ExportedProgram:
        """As torch_tensorrt.dynamo.export; the arguments are those that torch_tensorrt.save gives."""
        assert set(asked) == {"arg_inputs", "kwarg_inputs", "dynamic_shapes"}
        return torch.export.export(
            copy.deepcopy(compiled),
            args=asked["arg_inputs"],
            kwargs=asked["kwarg_inputs"],
            dynamic_shapes=asked["dynamic_shapes"],
        )

    def load(self, path: str) -> Any:
        """The program with its engines' objects as attributes. Raises ValueError for another file."""
        self.compiled_left.append(self._compiled() is not None)
        try:
            module: Any = torch.export.load(path).module()
        except Exception as error:
            raise ValueError(f"The file {path} doesn't correspond to a valid ExportedProgram") from error
        for node in module.graph.find_nodes(op="call_function", target=torch.ops.tensorrt.execute_engine.default):
            name = f"engine_{node.args[1]}"
            setattr(module, name, _ENGINES[node.args[1]])
            with module.graph.inserting_before(node):
                module.graph.get_attr(name)
        return types.SimpleNamespace(module=lambda: module)

    def as_module(self) -> types.ModuleType:
        """The module that `import torch_tensorrt` returns."""
        module: Any = types.ModuleType("torch_tensorrt")
        settings = make_dataclass("CompilationSettings", sorted(self.known("settings")))
        module.dynamo = types.SimpleNamespace(
            CompilationSettings=settings,
            backend=types.SimpleNamespace(torch_tensorrt_backend=self.backend),
            compile=_with_parameters(self.compile, self.known("compile")),
            export=self.export,
        )
        module.Input = Input
        module.runtime = types.SimpleNamespace(get_cudagraphs_mode=self.mode, set_cudagraphs_mode=self.set_mode)
        module.load = self.load
        result: types.ModuleType = module
        return result


def _lowered(graph: fx.GraphModule, inputs: Sequence[Any]) -> fx.GraphModule:
    """The graph of torch.compile in ATen's operators, with its symbols as inputs."""
    mode = detect_fake_mode(inputs)
    assert mode is not None
    with mock.patch.object(mode, "allow_non_fake_inputs", True), mode:
        lowered: fx.GraphModule = aot_export_joint_simple(graph, inputs, trace_joint=False)
    return lowered


def _with_parameters(function: Callable[..., Any], names: set[str]) -> Callable[..., Any]:
    """The function with the signature of the library's own."""
    import inspect

    def called(*positional: Any, **named: Any) -> Any:
        return function(*positional, **named)

    kind = inspect.Parameter.KEYWORD_ONLY
    called.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in sorted(names)])  # type: ignore[attr-defined]
    return called


@contextmanager
def installed(fake: Fake) -> Iterator[Fake]:
    """Make `import torch_tensorrt` return the fake."""
    before = sys.modules.get("torch_tensorrt")
    fake.set_mode(False)  # as in a process that has just imported it
    sys.modules["torch_tensorrt"] = fake.as_module()
    try:
        yield fake
    finally:
        if before is None:
            del sys.modules["torch_tensorrt"]
        else:
            sys.modules["torch_tensorrt"] = before


@contextmanager
def pinned(version: str = "2.13.0", partitions: str = "") -> Iterator[Fake]:
    """Make the fake of this version, with this report of partitions, the installed library."""
    library = Fake(version, SIGNATURES[version], partitions)
    with installed(library), mock.patch.object(settings, "version", return_value=version):
        yield library
