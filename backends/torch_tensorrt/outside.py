"""Operators that PyTorch runs although TensorRT could: the `outside` option of both backends.

torch_tensorrt calls them `torch_executed_ops` and takes operators or their qualified names with the overload
(`torch.ops.aten.cumsum.default`); any other name has no effect there and raises nothing
(dynamo/partitioning/_adjacency_partitioner.py, OpSupportTester; conversion/_ConverterRegistry.py; 2.11 to 2.14). They
are names of the lowered graph, in which torch_tensorrt has decomposed some operators already.
"""

import difflib
from collections.abc import Collection, Mapping

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.torch_internals import operator_names


def executed_operators(outside: str) -> dict[str, frozenset[str]]:
    """Each operator named in `outside`, as the option `outside=NAME`, with the qualified names of its overloads.

    Names are joined by `+`; `aten.cumsum` names all overloads, `aten.mean.dim` a single one. Raises Unsupported for a
    name that torch does not have.
    """
    return {f"outside={name}": _overloads(name) for name in outside.split("+") if name}


def _overloads(name: str) -> frozenset[str]:
    namespace, _, rest = name.partition(".")
    operator, _, overload = rest.partition(".")
    found = {
        tuple(known.replace("::", ".").split(".")) for known in operator_names() if known.startswith(f"{namespace}::")
    }
    # The dispatcher names the default overload by the operator alone.
    full = {parts if len(parts) == 3 else (*parts, "default") for parts in found}
    matching = {parts for parts in full if parts[1] == operator and overload in ("", parts[2])}
    if not matching:
        known = sorted({".".join(parts[:2]) for parts in full} | {".".join(parts) for parts in full})
        near = ", ".join(difflib.get_close_matches(name, known, 3)) or "none; write it as aten.cumsum or aten.mean.dim"
        raise Unsupported(f"outside={name}: torch has no such operator; near: {near}")
    return frozenset(f"torch.ops.{'.'.join(parts)}" for parts in matching)


def check_outside(asked: Mapping[str, Collection[str]], unconverted: Collection[str]) -> None:
    """Raise Unsupported for an option that has no effect: no operator it names is among those that PyTorch runs.

    `asked` maps an option as it is typed to the qualified names of operators.
    """
    running = {qualified(name) for name in unconverted}
    for option, names in asked.items():
        if not running.intersection(names):
            have = ", ".join(sorted(unconverted)) or "no operator"
            raise Unsupported(
                f"{option}: the graph that torch_tensorrt lowered has no such operator, so nothing would change "
                f"(PyTorch runs {have}); name an operator of that graph"
            )


def qualified(name: str) -> str:
    """The qualified name of an operator as a PartitionLog names it: `aten.cumsum` is its default overload."""
    return f"torch.ops.{name}" if name.count(".") > 1 else f"torch.ops.{name}.default"
