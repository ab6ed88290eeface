"""Turns plain numbers that differ from call to call, such as a timestep, into tensors if the module accepts these.

A compiler builds a separate program for each value of a number, but one program for all values of a tensor.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from bakeoff.backends.torch_internals import watch_dispatch
from bakeoff.models.lookup import one_line
from bakeoff.models.signature import (
    Constant,
    Node,
    Signature,
    TensorLeaf,
    describe_output,
    flatten,
    map_constants,
    rebuild,
)
from bakeoff.models.words import counted
from bakeoff.worker.brought.hidden_state import copied
from bakeoff.worker.reference.error import apart

_ANY = Constant("a number")
_FROM_VALUES = (torch.tensor, torch.as_tensor, torch.asarray)
_TO_VALUES = (Tensor.tolist, Tensor.numpy, Tensor.__array__)
Facts = tuple[tuple[str, tuple[int, ...], torch.dtype], ...]
"""Name, shape and dtype of each tensor."""


def facts_of(tensors: Mapping[str, Tensor]) -> Facts:
    return tuple((key, tuple(tensor.shape), tensor.dtype) for key, tensor in tensors.items())


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """Arguments of a call as they were when it began."""

    signature: Signature
    tensors: dict[str, Tensor]
    fractions: tuple[str, ...] = ()
    """Names of tensors made from Python floats; no variant casts them below fp32, because it would not cast numbers."""

    @property
    def facts(self) -> Facts:
        return facts_of(self.tensors)

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments."""
        args = tuple(rebuild(node, self.tensors) for node in self.signature.args)
        return args, {key: rebuild(node, self.tensors) for key, node in self.signature.kwargs.items()}


@dataclass(frozen=True, slots=True)
class _CallResult:
    """Outputs of a trial call, or its error."""

    form: tuple[Node, Facts] | None = None
    """Structure, names, shapes and dtypes of the outputs; None if the call raised."""
    outputs: Mapping[str, Tensor] = field(default_factory=dict)
    reads: int = 0
    """Number of times that a tensor's value was read as a Python number."""
    error: str = ""


def without_numbers(signature: Signature) -> Signature:
    """Return the signature with all numbers replaced by one placeholder, so that calls can be compared without them."""
    return map_constants(signature, (), lambda _, node: _ANY if _is_number(node) else node)


def as_tensors(
    module: nn.Module, calls: Sequence[RecordedCall], names: Sequence[str]
) -> tuple[list[RecordedCall], list[str]]:
    """Return the calls in order, with numbers that differ between them as 0-d tensors, and notes on these numbers.

    The module is called with the number and with the tensor, and must give the same outputs. If it does not, the number
    stays, and for each form of outputs only calls with one of its values are kept. `names` are the names of the
    positional parameters.
    """
    forms = [without_numbers(call.signature) for call in calls]
    made: dict[int, RecordedCall | None] = {}
    notes: list[str] = []
    for first, form in enumerate(forms):
        if form in forms[:first]:
            continue
        alike = [index for index, other in enumerate(forms) if other == form]
        given = _alike_as_tensors(module, [calls[index] for index in alike], names, notes)
        made |= zip(alike, given, strict=True)
    return [call for _, call in sorted(made.items()) if call is not None], notes


def _alike_as_tensors(
    module: nn.Module, calls: Sequence[RecordedCall], names: Sequence[str], notes: list[str]
) -> Sequence[RecordedCall | None]:
    """Apply `as_tensors` to calls of one form apart from numbers; None stands for a call that is left out."""
    differing = _differing(calls, names)
    if not differing:
        return calls
    ran = [_run(module, call) for call in calls]
    refused: dict[str, str] = {}
    for path, dtype in differing.items():
        try:
            given = [_put(call, names, path, dtype) for call in calls]
        except RuntimeError as error:
            refused[path] = f"is none of torch's integers ({one_line(error)})"
            continue
        problems = (_problem(wanted, _run(module, one)) for wanted, one in zip(ran, given, strict=True))
        problem = next(filter(None, problems), "")
        if problem:
            refused[path] = problem
        else:
            calls = given
    tensors = [path for path in differing if path not in refused]
    if tensors:
        made = "a tensor" if len(tensors) == 1 else "tensors"
        notes.append(f"{', '.join(tensors)} became {made}: one program for all values")
    if not refused:
        return calls
    kept = _first_of_each_form(calls, ran)
    left = {repr(call.signature) for call, is_kept in zip(calls, kept, strict=True) if not is_kept}
    if left:
        sets = counted(len(left), "set that differs", "sets that differ")
        what, why = ", ".join(refused), "; ".join(f"as a tensor {path} {problem}" for path, problem in refused.items())
        notes.append(
            f"{sets} in {what} alone left out, each a program of its own: {why}; "
            f"let the module compute with {what} as a tensor, and one program does for all"
        )
    return [call if is_kept else None for call, is_kept in zip(calls, kept, strict=True)]


def _differing(calls: Sequence[RecordedCall], names: Sequence[str]) -> dict[str, torch.dtype]:
    """Return the paths of numbers that are not the same in all calls, with the dtype of a tensor for them."""
    values: dict[str, list[int | float]] = {}

    def note(path: str, node: Constant) -> Node:
        if _is_number(node):
            values.setdefault(path, []).append(node.value)  # type: ignore[arg-type]  # of a number
        return node

    for call in calls:
        map_constants(call.signature, names, note)
    return {
        path: torch.float32 if any(isinstance(one, float) for one in given) else torch.int64
        for path, given in values.items()
        if len(set(given)) > 1
    }


def _is_number(node: Constant) -> bool:
    return isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _put(call: RecordedCall, names: Sequence[str], path: str, dtype: torch.dtype) -> RecordedCall:
    """Return the call with the number at `path` as a tensor. Raises RuntimeError for an integer beyond 64 bits."""
    device = next((tensor.device for tensor in call.tensors.values()), torch.device("cpu"))
    tensors: dict[str, Tensor] = {}

    def put(here: str, node: Constant) -> Node:
        if here != path:
            return node
        tensors[path] = torch.tensor(node.value, dtype=dtype, device=device)
        return TensorLeaf(path)

    signature = map_constants(call.signature, names, put)
    fractions = call.fractions if dtype == torch.int64 else (*call.fractions, path)
    return RecordedCall(signature, {**call.tensors, **tensors}, fractions)


def _problem(wanted: _CallResult, found: _CallResult) -> str:
    """Return how a call with a tensor differs from one with a number, as the end of a sentence; "" if it does not."""
    if wanted.form is None:
        return f"cannot be tried, since a call by itself raises {wanted.error}"
    if found.form is None:
        return f"raises {found.error}"
    if found.reads > wanted.reads:
        return "is read back as a number (as float(t) and `if t > 0` do)"
    if found.form != wanted.form:
        return "gives outputs of another form"
    for key, one in found.outputs.items():
        other = wanted.outputs[key]
        if not (_is_near(one, other) if one.is_floating_point() else torch.equal(one, other)):
            return f"gives another {key}"
    return ""


def _is_near(one: Tensor, other: Tensor) -> bool:
    """Return whether two outputs agree in half of their digits, or in half of fp32's digits if they have more."""
    least = max(torch.finfo(one.dtype).eps, torch.finfo(torch.float32).eps)
    return apart(one, other) <= least**0.5


def _first_of_each_form(calls: Sequence[RecordedCall], ran: Sequence[_CallResult]) -> list[bool]:
    """Return for each call whether its signature is the first one among calls of the same form."""
    forms = [(call.facts, one.form) for call, one in zip(calls, ran, strict=True)]
    return [calls[forms.index(form)].signature == call.signature for call, form in zip(calls, forms, strict=True)]


def _run(module: nn.Module, call: RecordedCall) -> _CallResult:
    """Call a copy of the module with copies of the tensors; return its outputs or its error."""
    args, kwargs = RecordedCall(call.signature, {key: one.clone() for key, one in call.tensors.items()}).arguments
    fresh = copied(module) or module
    torch.manual_seed(0)
    outputs: dict[str, Tensor] = {}
    try:
        with torch.no_grad(), _counted_reads() as reads:
            value = fresh(*args, **kwargs)
        result = describe_output(value)
        flatten(result, value, outputs)
    except Exception as error:  # noqa: BLE001  # whatever the user's code raises
        return _CallResult(error=f"{type(error).__name__}: {one_line(error)}")
    return _CallResult((result, facts_of(outputs)), outputs, len(reads))


@contextmanager
def _counted_reads() -> Iterator[list[Any]]:
    """Yield a list to which each function that reads the values of tensors within this context is added.

    These functions return Python values, or make a tensor from a list of tensors.
    """
    reads: list[Any] = []

    def note(func: Any, _arguments: list[Any], _result: Any) -> None:
        if func is torch.ops.aten._local_scalar_dense.default:
            reads.append(func)

    class Noting(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func in _TO_VALUES or (func in _FROM_VALUES and _holds_tensor(*args[:1])):
                reads.append(func)
            return func(*args, **(kwargs or {}))

    with watch_dispatch(note), Noting():
        yield reads


def _holds_tensor(value: Any = None) -> bool:
    """Return whether a value is a list or tuple that contains a tensor."""
    return isinstance(value, list | tuple) and any(isinstance(one, Tensor) for one in pytree.tree_leaves(value))
