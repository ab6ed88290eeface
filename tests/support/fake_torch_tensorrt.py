"""A torch_tensorrt that runs its engines by PyTorch, for hosts without a GPU.

It imitates what was read in the wheels of 2.11 to 2.14, whose signatures are in tests/golden/torch_tensorrt.json:
engines are submodules `_run_on_acc_N` of the compiled graph (dynamo/_compiler.py, compile_module); saving inlines them
as calls of `tensorrt::execute_engine` on an object in an attribute (dynamo/_exporter.py), here the number of the
engine; partitions are logged for debugging, or written by a dry run (dynamo/_DryRunTracker.py); a full compilation that
is not possible is an AssertionError without a name (dynamo/partitioning/_adjacency_partitioner.py); a failed build is
PyTorch's own graph unless it is to be passed through (dynamo/backend/backends.py). It builds no engine and proves none.
"""

import logging
import pickle
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

FAKE_ENGINE = b"not an engine"
_ENGINES: "list[Engine]" = []
_RAN: list[int] = []
_TELLER = logging.getLogger("torch_tensorrt.dynamo._DryRunTracker")
_OPERATORS = torch.library.Library("tensorrt", "FRAGMENT")
_OPERATORS.define("execute_engine(Tensor[] inputs, int engine) -> Tensor[]")


@dataclass
class Engine:
    """An engine's runtime object, by the attributes that torch_tensorrt's has (runtime/_TorchTensorRTModule.py)."""

    graph: fx.GraphModule
    device_memory_budget: int = 1000
    automatic_device_memory_budget: int = 600
    use_pre_allocated_outputs: bool = False


def _execute(inputs: list[Tensor], engine: int) -> list[Tensor]:
    _RAN.append(engine)
    return [output.clone() for output in _ENGINES[engine].graph(*inputs)]


_OPERATORS.impl("execute_engine", _execute, "CompositeExplicitAutograd")


class EngineModule(nn.Module):
    """What stands for a partition that TensorRT took."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self.number = len(_ENGINES)
        _ENGINES.append(Engine(graph))
        self.serialized_engine = FAKE_ENGINE

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.ops.tensorrt.execute_engine(list(inputs), self.number))


@dataclass
class Fake:
    """How the library behaves, and what it was asked."""

    version: str
    signatures: dict[str, list[str]]
    partitions: str
    """What it says of its partitions."""
    lacks: tuple[str, ...] = ()
    """Operators that no engine takes; then one partition is PyTorch's."""
    fails: bool = False
    """A build fails."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    cudagraphs: list[bool] = field(default_factory=list)

    @property
    def ran(self) -> list[int]:
        """Engines that were called, by number."""
        return _RAN

    @property
    def engines(self) -> "list[Engine]":
        return _ENGINES

    def known(self, where: str) -> set[str]:
        return {name for name in self.signatures[where] if not name.startswith("*")}

    def _partition(self, graph: fx.GraphModule) -> fx.GraphModule:
        """The whole graph as one engine; as PyTorch's where it holds an operator that is lacking."""
        _TELLER.debug(self.partitions)
        left = any(name in str(node.target) for node in graph.graph.nodes for name in self.lacks)
        outer = fx.Graph()
        inputs = [outer.placeholder(node.name) for node in graph.graph.nodes if node.op == "placeholder"]
        name = "_run_on_gpu_0" if left else "_run_on_acc_0"
        outer.output(outer.call_module(name, tuple(inputs)))
        return fx.GraphModule({name: graph if left else EngineModule(graph)}, outer)

    def backend(self, graph: fx.GraphModule, _inputs: Sequence[Any], **given: Any) -> Callable[..., Any]:
        options = given["options"]
        self.asked.append(options)
        if self.fails and options["pass_through_build_failures"]:
            raise RuntimeError("[SHAPE] no tactic")
        return graph if self.fails else self._partition(graph)

    def compile(self, program: torch.export.ExportedProgram, **asked: Any) -> fx.GraphModule:
        self.asked.append(asked)
        graph = program.module(check_guards=False)
        lacking = any(name in str(node.target) for node in graph.graph.nodes for name in self.lacks)
        if lacking and asked["require_full_compilation"]:
            raise AssertionError("require_full_compilation=True was specified, but model is not fully supported")
        if asked.get("dryrun"):
            print(self.partitions)
            Path(asked["dryrun"]).write_text(self.partitions)
        return self._partition(graph)

    def save(self, module: fx.GraphModule, path: str, *, output_format: str, arg_inputs: list[Tensor]) -> None:
        assert output_format == "exported_program"
        assert arg_inputs
        Path(path).write_bytes(pickle.dumps([node.target for node in module.graph.nodes if node.op == "call_module"]))
        self._saved = module

    def load(self, path: str) -> Any:
        """The program with its engines inlined; RuntimeError for a file that it did not write."""
        try:
            (name,) = pickle.loads(Path(path).read_bytes())
        except pickle.UnpicklingError as error:
            raise RuntimeError(str(error)) from error
        inner = self._saved.get_submodule(name)
        if not isinstance(inner, EngineModule):
            return types.SimpleNamespace(module=lambda: inner)
        graph = fx.Graph()
        inputs = [graph.placeholder(node.name) for node in self._saved.graph.nodes if node.op == "placeholder"]
        engine = graph.get_attr("engine")
        outputs = graph.call_function(torch.ops.tensorrt.execute_engine.default, (inputs, inner.number))
        engine.meta["val"] = inner.number
        graph.output(outputs)
        loaded = fx.GraphModule({"engine": _ENGINES[inner.number]}, graph)
        return types.SimpleNamespace(module=lambda: loaded)

    def as_module(self) -> types.ModuleType:
        """What `import torch_tensorrt` gives."""
        module: Any = types.ModuleType("torch_tensorrt")
        settings = make_dataclass("CompilationSettings", sorted(self.known("settings")))
        module.dynamo = types.SimpleNamespace(
            CompilationSettings=settings,
            backend=types.SimpleNamespace(torch_tensorrt_backend=self.backend),
            compile=_with_parameters(self.compile, self.known("compile")),
        )
        module.runtime = types.SimpleNamespace(set_cudagraphs_mode=self.cudagraphs.append)
        module.save, module.load = self.save, self.load
        result: types.ModuleType = module
        return result


def _with_parameters(function: Callable[..., Any], names: set[str]) -> Callable[..., Any]:
    """The function with the signature that the library's own has."""
    import inspect

    def called(*positional: Any, **named: Any) -> Any:
        return function(*positional, **named)

    kind = inspect.Parameter.KEYWORD_ONLY
    called.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in sorted(names)])  # type: ignore[attr-defined]
    return called


@contextmanager
def installed(fake: Fake) -> Iterator[Fake]:
    """`import torch_tensorrt` gives the fake."""
    before = sys.modules.get("torch_tensorrt")
    sys.modules["torch_tensorrt"] = fake.as_module()
    try:
        yield fake
    finally:
        if before is None:
            del sys.modules["torch_tensorrt"]
        else:
            sys.modules["torch_tensorrt"] = before
