"""What the two TensorRT back ends share: loading torch_tensorrt, settings that its version has, what it converted.

`import torch_tensorrt` needs a GPU and TensorRT's libraries; without them it prints to stdout and raises a bare
Exception (torch_tensorrt/__init__.py), so it happens in a worker and nowhere else. Its versions differ: 2.11 and 2.12
have `use_explicit_typing` and `enabled_precisions`, 2.13 has neither and ignores both. Precision is the module's own,
which was cast before; TensorRT keeps it (strong typing).
"""

import contextlib
import hashlib
import logging
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bakeoff.backends.backend import BuildContext, Proof, Requirement, Unavailable, Unsupported
from bakeoff.backends.tracing import Trace, trace_operators

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import fx

INSTALL = "on a host with an NVIDIA GPU: pip install 'bakeoff[tensorrt]'"
REQUIRES = (Requirement("torch_tensorrt", INSTALL), Requirement("tensorrt", INSTALL))
LEVELS = range(6)
"""Optimisation levels of TensorRT's builder."""
_TELLER = "torch_tensorrt.dynamo._DryRunTracker"
_OWN_KERNELS = ("__myl", "trt", "void nvinfer1", "void cask", "void genericReformat")
"""How the names of device kernels begin that TensorRT brings; those of cuBLAS and cuDNN it may use as well."""
_TOTAL = re.compile(r"The graph consists of (\d+) Total Operators, of which (\d+) operators are supported")
_LEFT = re.compile(r"^Node: (\S+), with layer location: ", re.MULTILINE)
_ENGINE = re.compile(r"TRT Engine #\d+ - Submodule name: (\S+)\n.*\n\s*Number of Operators in Engine: (\d+)")


def load_library() -> Any:
    """The torch_tensorrt module. Raises Unavailable with the library's own reason where it does not load."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            import torch_tensorrt
    except Exception as error:  # it raises nothing narrower
        found = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unavailable(f"torch_tensorrt {version('torch_tensorrt')} does not load: {found}; {INSTALL}") from error
    return torch_tensorrt


def settings(wanted: Mapping[str, Any], known: Collection[str], context: BuildContext) -> dict[str, Any]:
    """What torch_tensorrt is to be called with: what was asked for, and what each build here gets.

    `known` are the settings that this version has. It raises for none that it does not know but drops them
    (dynamo/utils.py, parse_dynamo_kwargs; dynamo/_compiler.py takes any keyword), so that Unsupported is raised here.
    """
    chosen: dict[str, Any] = {
        **wanted,
        "pass_through_build_failures": True,  # else a build that fails is PyTorch's own graph, in silence
        "disable_tf32": context.dtype != "tf32",
        "timing_cache_path": str(context.cache_dir / "timing.bin"),
    }
    if "use_explicit_typing" in known:
        # Before 2.13. Its decompositions take attention apart in ways that TensorRT has no converter for.
        chosen |= {"use_explicit_typing": True, "decompose_attention": True}
    strangers = sorted(chosen.keys() - set(known))
    if strangers:
        raise Unsupported(f"torch_tensorrt {version('torch_tensorrt')} has no setting {', '.join(strangers)}")
    return chosen


@dataclass(slots=True)
class Told:
    """What torch_tensorrt says of its partitions while it compiles."""

    text: str = ""

    @property
    def operators(self) -> tuple[int, int] | None:
        """In the graph, and of these convertible."""
        found = _TOTAL.search(self.text)
        return (int(found[1]), int(found[2])) if found else None

    @property
    def left(self) -> Counter[str]:
        """Operators that PyTorch runs, by name."""
        names = (name.removeprefix("torch.ops.").removesuffix(".default") for name in _LEFT.findall(self.text))
        return Counter(names)

    @property
    def engines(self) -> dict[str, int]:
        """Operators of each engine."""
        return {name: int(count) for name, count in _ENGINE.findall(self.text)}


@contextlib.contextmanager
def listening() -> Iterator[Told]:
    """Hear what torch_tensorrt logs of its partitions, for debugging only by its own choice (_DryRunTracker.py)."""
    told = Told()

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.text += record.getMessage()

    teller, ear = logging.getLogger(_TELLER), Ear()
    before = teller.level, teller.propagate
    teller.addHandler(ear)
    teller.setLevel(logging.DEBUG)
    teller.propagate = False
    try:
        yield told
    finally:
        teller.removeHandler(ear)
        teller.setLevel(before[0])
        teller.propagate = before[1]


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
    converted: Converted, told: Told, inside: Counter[str], hashed: str, **facts: str | int | float | bool
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


def trace_engines(call: "Callable[[], Any]") -> Trace:
    """Device kernels by name; TensorRT's own are told by how their names begin."""
    return trace_operators(call, _OWN_KERNELS)


def cache_settings(cache_dir: Path) -> dict[str, Any]:
    """Its engine cache, which keeps refittable engines alone and tells graphs apart by operators and shapes.

    It looks past an operator's arguments (dynamo/_engine_cache.py, canonicalize_graph): only one variant may share it.
    """
    return {
        "immutable_weights": False,
        "cache_built_engines": True,
        "reuse_cached_engines": True,
        "engine_cache_dir": str(cache_dir / "engines"),
    }


def objection(level: int, min_block_size: int) -> str:
    if level not in LEVELS:
        return f"optimization_level={level}: TensorRT has {LEVELS[0]} to {LEVELS[-1]}"
    return "" if min_block_size >= 1 else f"min_block_size={min_block_size}: give 1 or more operators"
