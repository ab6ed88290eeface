"""The proof of a compiled module: its engines, and the operators that PyTorch runs."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import Proof
from bakeoff.backends.torch_tensorrt.partitions import PartitionLog
from bakeoff.backends.tracing import Trace, trace_operators

if TYPE_CHECKING:
    from torch import fx

_OWN_KERNELS = (
    "__myl",
    "_gemm_mha",
    "trt",
    "void nvinfer1",
    "void cask",
    "void genericReformat",
    "fmha_",
    "sm75_",
    "sm80_",
    "sm86_",
    "sm89_",
    "sm90_",
    "sm100_",
    "sm120_",
    "cutlass",
    "void cutlass",
)
"""Prefixes of the names of kernels that an engine launches: TensorRT's own, and its tactics, which are kernels of its
builder resources (`sm90_xmma_gemm_…`, `cutlass_…`). PyTorch's operators outside the engines may launch kernels of the
last kind too; `operators_outside` says whether there are any."""


@dataclass(frozen=True, slots=True)
class Converted:
    """The engines and other operators of a compiled module."""

    engines: Mapping[str, bytes]
    """Serialised engines by name; empty bytes for an engine that was loaded from a file."""
    outside: Mapping[str, int] = field(default_factory=dict)
    """Number of each operator that PyTorch runs, by name."""


def read_converted(module: "fx.GraphModule") -> Converted:
    """Find the engines and all other operators of a compiled module, or of one that was loaded from a file.

    In a compiled module an engine is a submodule `_run_on_acc_N`; in a loaded one, a call of
    `tensorrt.execute_engine`.
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
        elif node.op in ("call_function", "call_method"):
            name = str(node.target)
            if "execute_engine" in name:
                engines[node.name] = b""
            elif "getitem" not in name:
                outside[name.removesuffix(".default")] += 1
    return Converted(engines, dict(outside))


def prove(
    converted: Converted, log: PartitionLog, operators: Counter[str], hashed: str, **facts: str | int | float | bool
) -> Proof:
    """The proof of a compiled module: its engines, and the operators inside and outside of them, by name.

    `operators` are those of the graph that was compiled; those that PyTorch runs are subtracted from them.
    """
    outside = Counter(converted.outside) | log.unconverted
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
        operators_inside=operators - outside,
        operators_outside=outside,
        facts={"engines": len(converted.engines), **facts},
        graph_hash=hashed,
        artifact_bytes=len(data) or None,
    )


def trace_engines(call: Callable[[], Any]) -> Trace:
    """Trace device kernels by name; TensorRT's own are recognised by the prefixes of their names."""
    return trace_operators(call, _OWN_KERNELS)
