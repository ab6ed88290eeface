"""The proof of a compiled module: its engines, torch_tensorrt's log of partitions, and operators that PyTorch runs."""

import contextlib
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Proof, Unavailable, Unsupported
from bakeoff.backends.graphs import operators
from bakeoff.backends.tracing import Trace, trace_operators
from bakeoff.models.words import counted

if TYPE_CHECKING:
    from torch import fx

_ENGINE_OPERATOR = "tensorrt::execute_engine"
"""The operator that runs an engine, in torch_tensorrt's C++ runtime and in its Python one (2.11 to 2.14)."""
_OWN_KERNELS = ("__myl", "_gemm_mha", "trt", "void nvinfer1", "void cask", "void genericReformat")
"""Prefixes of kernel names that only TensorRT uses. Most of its kernels have names like those of cuBLAS and CUTLASS
(`sm90_xmma_gemm_…`, `cutlass_…`), so they are recognised by the operator that launched them."""
_PYTHON_OPERATORS = {
    "truediv": "div",
    "floordiv": "floor_divide",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "iadd": "add",
    "isub": "sub",
    "imul": "mul",
    "itruediv": "div",
}
"""ATen's names of Python's operators, if they differ."""


@dataclass(frozen=True, slots=True)
class Converted:
    """The engines and other operators of a compiled module."""

    engines: Mapping[str, bytes]
    """Serialised engines by name; empty bytes for an engine that was loaded from a file."""
    outside: Mapping[str, int] = field(default_factory=dict)
    """Number of each operator that PyTorch runs, by ATen's name."""


_LOGGER = "torch_tensorrt.dynamo._DryRunTracker"
_TOTAL = re.compile(r"The graph consists of (\d+) Total Operators, of which (\d+) operators are supported")
_UNCONVERTED = re.compile(r"^Node: (\S+), with layer location: ", re.MULTILINE)
_ENGINE = re.compile(r"TRT Engine #\d+ - Submodule name: (\S+)\n.*\n\s*Number of Operators in Engine: (\d+)")


@dataclass(slots=True)
class PartitionLog:
    """The text that torch_tensorrt logs about its partitions, and the numbers in it."""

    text: str = ""

    @property
    def operators(self) -> tuple[int, int] | None:
        """Number of operators in the graph, and how many of them TensorRT can run; None if the log does not say."""
        found = _TOTAL.search(self.text)
        return (int(found[1]), int(found[2])) if found else None

    @property
    def unconverted(self) -> Counter[str]:
        """Number of each operator that PyTorch runs, by name."""
        names = (name.removeprefix("torch.ops.").removesuffix(".default") for name in _UNCONVERTED.findall(self.text))
        return Counter(names)

    @property
    def engines(self) -> dict[str, int]:
        """Number of operators in each engine, by the engine's name."""
        return {name: int(count) for name, count in _ENGINE.findall(self.text)}


_BUILDER = "torch_tensorrt [TensorRT Conversion Context]"


class BuilderError(Exception):
    """TensorRT could not build an engine; the message begins with the first error that its builder logged."""


def read_converted(module: "fx.GraphModule") -> Converted:
    """Find the engines and all other operators of a compiled module, or of one that was loaded from a file.

    In a compiled module an engine is a submodule `_run_on_acc_N`; in a loaded one, a call of `tensorrt.execute_engine`.
    """
    from torch import fx

    engines: dict[str, bytes] = {}
    outside: Counter[str] = Counter()
    for node in module.graph.nodes:
        if node.op == "call_module":
            child = module.get_submodule(str(node.target))
            if isinstance(child, fx.GraphModule):
                inner = read_converted(child)
                engines |= {f"{node.target}.{name}": data for name, data in inner.engines.items()}
                outside.update(inner.outside)
            elif "_run_on_acc" in str(node.target):
                engines[str(node.target)] = bytes(getattr(child, "serialized_engine", None) or b"")
            else:
                outside[type(child).__name__] += 1
        elif node.op == "call_function" and "execute_engine" in str(node.target):
            engines[node.name] = b""
    for name, count in operators(module.graph).items():
        if "execute_engine" not in name and "getitem" not in name:
            outside[aten_name(name)] += count
    return Converted(engines, dict(outside))


def prove(
    converted: Converted, log: PartitionLog, compiled: Counter[str], hashed: str, **facts: str | int | float | bool
) -> Proof:
    """Return the proof of a compiled module: its engines, and the operators inside and outside of them, by name.

    `compiled` are the operators of the graph that was compiled, from which those that PyTorch runs are subtracted. All
    have ATen's names (`aten_name`). An operator that torch_tensorrt replaces before it converts, such as `aten.linear`
    by `aten.addmm`, is counted inside under its first name and outside under its last.
    """
    outside = Counter(converted.outside) | _aten_names(log.unconverted)
    counted = log.operators
    if counted is not None:
        facts |= {"operators_lowered": counted[0], "operators_convertible": counted[1]}
    if log.engines:
        facts["operators_in_engines"] = sum(log.engines.values())
    data = b"".join(converted.engines.values())
    if data:  # two builds of the same graph may differ in bits and in speed (NVIDIA/TensorRT#4730)
        facts["engines_digest"] = hashlib.sha256(data).hexdigest()[:16]
    return Proof(
        fell_back="" if converted.engines else "PyTorch: TensorRT took no part of the graph",
        graphs=1,
        graph_breaks=0,
        operators_inside=_aten_names(compiled) - outside,
        operators_outside=outside,
        facts={"engines": len(converted.engines), **facts},
        graph_hash=hashed,
        artifact_bytes=len(data) or None,
    )


def aten_name(name: str) -> str:
    """Return ATen's name of an operator, without its overload.

    Dynamo's graphs have `conv2d` and `iadd`, graphs of ATen `aten.add.Tensor`, torch_tensorrt's log
    `torch.ops.aten.add.Tensor`: the results are `aten.conv2d`, `aten.add`, `aten.add` and `aten.add`. Other namespaces
    are kept.
    """
    namespace, dot, rest = name.removeprefix("torch.ops.").replace("::", ".").partition(".")
    if dot:
        return f"{namespace}.{rest.partition('.')[0]}"
    plain = name.removesuffix("_")  # of a change in place, which torch_tensorrt makes a change of a copy
    return f"aten.{_PYTHON_OPERATORS.get(plain, plain)}"


def _aten_names(counted: Mapping[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, count in counted.items():
        found[aten_name(name)] += count
    return found


def trace_engines(call: Callable[[], Any]) -> Trace:
    """Trace device kernels; every kernel that an engine launches counts as TensorRT's."""
    return trace_operators(call, _OWN_KERNELS, own_regions=(_ENGINE_OPERATOR,))


@contextlib.contextmanager
def capture_partition_log() -> Iterator[PartitionLog]:
    """Collect torch_tensorrt's log messages about its partitions, which have level DEBUG (_DryRunTracker.py)."""
    captured = PartitionLog()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            captured.text += record.getMessage()

    logger, handler = logging.getLogger(_LOGGER), Handler()
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield captured
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


@contextlib.contextmanager
def builder_errors() -> Iterator[None]:
    """Replace an exception by a BuilderError if TensorRT logged errors within the block; other exceptions are passed
    on.

    A build that fails returns None, and torch_tensorrt then raises a bare `assert cuda_engine`
    (dynamo/conversion/_TRTInterpreter.py, 2.11 to 2.14); the cause is only in the builder's log
    (torch_tensorrt/logging.py, _TRTLogger). The first error is the cause; later ones are its consequences.
    """
    logged: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(" ".join(record.getMessage().split()))

    logger, handler = logging.getLogger(_BUILDER), Handler(logging.ERROR)
    logger.addHandler(handler)
    try:
        yield
    except (Unavailable, Unsupported):
        raise
    except Exception as error:
        if not logged:
            raise
        more = f" (and {counted(len(logged) - 1, 'more error')})" if len(logged) > 1 else ""
        raise BuilderError(f"{logged[0]}{more}") from error
    finally:
        logger.removeHandler(handler)
