"""Finds which provider of a session runs each node, which nodes run on the CPU on purpose, and which lack a kernel.

Providers for GPUs leave nodes that compute shapes to the CPU provider although they have kernels for them, because
their tensors are in host memory (onnxruntime, core/framework/fallback_cpu_capability.cc, GetCpuPreferredNodes: all
nodes that only touch such tensors, but none with float16 or bfloat16). Such nodes are not a fallback. Here a node
counts as one of them if it produces only integers or booleans.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bakeoff.backends.onnxruntime.options import PROVIDERS

if TYPE_CHECKING:
    import onnxruntime
import re
from pathlib import Path

from bakeoff.backends.backend import Unsupported

_INDICES = frozenset(("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))
RECORDED = "session.record_ep_graph_assignment_info"
"""Session setting that `get_provider_graph_assignment_info` needs (onnxruntime_session_options_config_keys.h)."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Number of each operator by the provider that runs it, after ONNX Runtime has partitioned the graph."""

    providers: Mapping[str, int] = field(default_factory=dict)
    """Number of nodes by provider; empty if the library cannot tell (before 1.24)."""
    inside: Mapping[str, int] = field(default_factory=dict)
    """Operators on the requested provider."""
    partner: Mapping[str, int] = field(default_factory=dict)
    """Operators on another GPU provider of the session: the CUDA provider, if TensorRT's was requested."""
    shapes: Mapping[str, int] = field(default_factory=dict)
    """Operators on the CPU provider on purpose, because they compute shapes."""
    fallback: Mapping[str, int] = field(default_factory=dict)
    """Operators on the CPU provider for any other reason."""

    @property
    def outside(self) -> dict[str, int]:
        """Number of each operator that the requested provider does not run."""
        return dict(Counter(self.partner) + Counter(self.shapes) + Counter(self.fallback))

    def fell_back(self, requested: str) -> str:
        """Return what runs instead of the requested provider, as a noun phrase; "" if nothing does.

        With TensorRT's provider it is no fallback if the CUDA provider runs some nodes, only if it runs all of them.
        """
        if self.fallback:
            return f"{PROVIDERS['cpu']} for {', '.join(f'{count} {name}' for name, count in self.fallback.items())}"
        if self.partner and not self.inside:
            return f"{PROVIDERS['cuda']} for all nodes: {requested} took none"
        return ""


def read_placement(session: "onnxruntime.InferenceSession", model: Any, requested: str) -> Placement:
    """Read the placement of a session that was opened with RECORDED set; `model` is the session's model.

    If the CPU provider was requested, every node is inside, since there is no other provider.
    """
    ask = getattr(session, "get_provider_graph_assignment_info", None)  # since onnxruntime 1.24
    if ask is None:
        return Placement()
    types = element_types(model)
    integers = {node.name for node in model.graph.node if _integers(types.get(name, 0) for name in node.output)}
    return sort_nodes(
        ((node.op_type, part.ep_name, node.name in integers) for part in ask() for node in part.get_nodes()),
        requested,
    )


def sort_nodes(nodes: "Iterable[tuple[str, str, bool]]", requested: str) -> Placement:
    """Group nodes by where they run. Each is given as operator, provider, and whether it produces only integers or
    booleans."""
    groups: dict[str, Counter[str]] = {name: Counter() for name in ("inside", "partner", "shapes", "fallback")}
    providers: Counter[str] = Counter()
    for operator, provider, indices in nodes:
        providers[provider] += 1
        if provider == requested:
            group = "inside"
        elif provider != PROVIDERS["cpu"]:
            group = "partner"
        else:
            group = "shapes" if indices else "fallback"
        groups[group][operator] += 1
    return Placement(providers, **groups)


def _integers(types: "Iterable[int]") -> bool:
    import onnx

    return all(onnx.TensorProto.DataType.Name(kind).lower() in _INDICES for kind in types)


def profiled_integers(about: Mapping[str, Any]) -> bool:
    """Return whether a node in a profile produced only integers or booleans; `about` is its event's `args`."""
    produced = [kind for output in about.get("output_type_shape", ()) for kind in output]
    return bool(produced) and all(kind in _INDICES for kind in produced)


_NO_KERNEL = (
    # core/framework/session_state.cc
    re.compile(r"Could not find an implementation for (?P<operator>\w+)\(\d+\)"),
    # core/optimizer/transformer_memcpy.cc; which of both is raised depends on the graph's optimisation
    re.compile(r"Provider type for (?P<operator>\w+) node with name '[^']*' is not set"),
)
_BAD_TYPE = re.compile(r"Type 'tensor\((?P<type>\w+)\)' of input parameter \([^)]*\) of operator \((?P<operator>\w+)\)")
"""Error of onnx's schema check. If the type is the variant's, the operator allows fewer types in its opset; for any
other type, the graph was exported wrongly, and the error itself says how."""
_TYPES = {"fp16": "float16", "bf16": "bfloat16"}
"""ONNX types of dtypes that an opset may lack; every opset has fp32."""
_NO_CAPTURE = re.compile(r"cannot use the graph capture feature as requested by the user\s+as (?P<cause>[^\n]*)")
"""Error of core/session/inference_session.cc."""


def element_types(model: Any) -> Mapping[str, int]:
    """Return the element type (TensorProto.DataType) of each tensor of the model's main graph, by name."""
    graph = model.graph
    values = (*graph.input, *graph.value_info, *graph.output)
    stored = {tensor.name: tensor.data_type for tensor in graph.initializer}
    return {value.name: value.type.tensor_type.elem_type for value in values} | stored


def refusal(error: Exception, provider: str, dtype: str, path: Path) -> Unsupported | None:
    """Return an Unsupported that says why ONNX Runtime refused the model at `path`; None for any other error.

    Known causes are a kernel that the provider lacks, and a graph that cannot be captured.
    """
    for pattern in _NO_KERNEL:
        match = pattern.search(str(error))
        if match is not None:
            return Unsupported(_text(provider, dtype, _typed(match["operator"], path)))
    match = _BAD_TYPE.search(str(error))
    if match is not None and match["type"] == _TYPES.get(dtype):
        return Unsupported(_text(provider, dtype, match["operator"]))
    match = _NO_CAPTURE.search(str(error))
    if match is not None:
        return Unsupported(f"ONNX Runtime cannot capture this model: {match['cause'].strip()}; use cuda_graph=false")
    return None


def _typed(operator: str, path: Path) -> str:
    """Return an operator with the types that its first inputs have in a model, by which kernels are chosen."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    types = element_types(model)
    found = {types.get(node.input[0], 0) for node in model.graph.node if node.op_type == operator and node.input}
    names = ", ".join(sorted(onnx.TensorProto.DataType.Name(kind).lower() for kind in found if kind))
    return f"{operator} of {names}" if names else operator


def _text(provider: str, dtype: str, operators: str) -> str:
    advice = "use fp16" if dtype == "bf16" and provider != PROVIDERS["cpu"] else "use another backend, such as inductor"
    kernel = f"{dtype} kernel" if dtype in _TYPES else "kernel"  # in fp32 it is mostly one of integers that is missing
    return f"ONNX Runtime's {provider} has no {kernel} for {operators}; {advice}"
