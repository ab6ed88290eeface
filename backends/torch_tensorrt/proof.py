"""What a compiled module consists of, as proof: its engines, and the operators beside them."""

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

_OWN_KERNELS = ("__myl", "trt", "void nvinfer1", "void cask", "void genericReformat")
"""How the names of device kernels begin that TensorRT brings; those of cuBLAS and cuDNN it may use as well."""


@dataclass(frozen=True, slots=True)
class Converted:
    """What a compiled module consists of."""

    engines: Mapping[str, bytes]
    """Each serialised; empty for one that was loaded back."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Operators that PyTorch runs, by name."""


def read_converted(module: "fx.GraphModule") -> Converted:
    """Look into a compiled module, or one that was loaded back: its engines and all operators beside them.

    Before it is saved an engine is a submodule `_run_on_acc_N`; loaded back, a call of `tensorrt.execute_engine`.
    """
    from torch import fx

    engines: dict[str, bytes] = {}
    left: Counter[str] = Counter()
    for node in module.graph.nodes:
        if node.op == "call_module" and node.target != "_guards_fn":
            child = module.get_submodule(str(node.target))
            if isinstance(child, fx.GraphModule):
                inner = read_converted(child)
                engines |= {f"{node.target}.{name}": plan for name, plan in inner.engines.items()}
                left.update(inner.left)
            elif "_run_on_acc" in str(node.target):
                engines[str(node.target)] = bytes(getattr(child, "serialized_engine", None) or b"")
            else:
                left[type(child).__name__] += 1
        elif node.op in ("call_function", "call_method"):
            name = str(node.target)
            if "execute_engine" in name:
                engines[node.name] = b""
            elif "getitem" not in name:
                left[name.removesuffix(".default")] += 1
    return Converted(engines, dict(left))


def prove(
    converted: Converted, told: PartitionLog, inside: Counter[str], hashed: str, **facts: str | int | float | bool
) -> Proof:
    """The certificate of a compiled module: engines, operators converted and left, by name.

    `inside` are the operators of the graph that was handed over; what PyTorch runs is taken off.
    """
    left = Counter(converted.left) | told.left
    counted = told.operators
    if counted is not None:
        facts |= {"operators_lowered": counted[0], "operators_convertible": counted[1]}
    if told.engines:
        facts["operators_in_engines"] = sum(told.engines.values())
    plans = b"".join(converted.engines.values())
    if plans:  # two builds of one graph may differ in bits and in speed (NVIDIA/TensorRT#4730)
        facts["engines_digest"] = hashlib.sha256(plans).hexdigest()[:16]
    return Proof(
        fell_back="" if converted.engines else "PyTorch: TensorRT took no part of the graph",
        graphs=1,
        graph_breaks=0,
        operators_inside=inside - left,
        operators_outside=left,
        facts={"engines": len(converted.engines), **facts},
        graph_hash=hashed,
        artifact_bytes=len(plans) or None,
    )


def trace_engines(call: Callable[[], Any]) -> Trace:
    """Device kernels by name; TensorRT's own are told by how their names begin."""
    return trace_operators(call, _OWN_KERNELS)
