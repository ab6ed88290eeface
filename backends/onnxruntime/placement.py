"""Which provider of a session runs each node, and which nodes run on the CPU on purpose.

Providers for GPUs leave nodes that compute shapes to the CPU provider although they have kernels for them, because
their tensors are in host memory (onnxruntime, core/framework/fallback_cpu_capability.cc, GetCpuPreferredNodes: all
nodes that only touch such tensors, but none with float16 or bfloat16). Such nodes are no fallback.
Here a node counts as one of them if it produces integers or booleans only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bakeoff.backends.onnxruntime.kernels import element_types
from bakeoff.backends.onnxruntime.options import PROVIDERS

if TYPE_CHECKING:
    import onnxruntime

_INDICES = frozenset(("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))
RECORDED = "session.record_ep_graph_assignment_info"
"""Session setting that `get_provider_graph_assignment_info` needs (onnxruntime_session_options_config_keys.h)."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Number of each operator by where it runs, after ONNX Runtime's partitioning of the graph."""

    providers: Mapping[str, int] = field(default_factory=dict)
    """Number of nodes by provider; empty if the library cannot tell (before 1.24)."""
    inside: Mapping[str, int] = field(default_factory=dict)
    """On the requested provider."""
    partner: Mapping[str, int] = field(default_factory=dict)
    """On another GPU provider of the session: the CUDA provider, where TensorRT's was requested."""
    shapes: Mapping[str, int] = field(default_factory=dict)
    """On the CPU provider on purpose, as the module says."""
    fallback: Mapping[str, int] = field(default_factory=dict)
    """On the CPU provider for any other reason."""

    @property
    def outside(self) -> dict[str, int]:
        """Number of each operator that the requested provider does not run."""
        return dict(Counter(self.partner) + Counter(self.shapes) + Counter(self.fallback))

    def fell_back(self, requested: str) -> str:
        """What runs instead of the requested provider, as a noun phrase; "" if nothing does.

        TensorRT's provider does not fall back where the CUDA provider runs a part, but where that runs everything.
        """
        if self.fallback:
            return f"{PROVIDERS['cpu']} for {', '.join(f'{count} {name}' for name, count in self.fallback.items())}"
        if self.partner and not self.inside:
            return f"{PROVIDERS['cuda']} for all nodes: {requested} took none"
        return ""


def read_placement(session: "onnxruntime.InferenceSession", model: Any, requested: str) -> Placement:
    """Read the placement of a session that was opened with RECORDED set; `model` is the model that it was opened from.

    Every node is inside where the CPU provider was requested: there is no other one to run it.
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
    """The placement of nodes given as operator, provider, and whether the node produces integers or booleans only."""
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
    """Whether a node in a profile produced integers or booleans only; `about` is its event's `args`."""
    produced = [kind for output in about.get("output_type_shape", ()) for kind in output]
    return bool(produced) and all(kind in _INDICES for kind in produced)
