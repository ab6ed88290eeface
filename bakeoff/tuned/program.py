"""`TunedProgram`: one program of an artifact, the calls that fit it, and the comparison of its first call."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from bakeoff.export import Program
from bakeoff.export.manifest import FLOATS
from bakeoff.export.manifest import Program as About
from bakeoff.models.errors import BakeoffError, a_type
from bakeoff.models.signature import (
    Constant,
    Entries,
    Fields,
    Items,
    Node,
    Signature,
    TensorLeaf,
    fields_of,
    flatten,
    flatten_call,
)

Slot = str | tuple[str, int | str]
"""A parameter's name; for `*args` and `**kwargs`, with the argument's position or keyword."""


class Unfit(Exception):
    """A call that no program of an artifact can compute; the message says why."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """How one recorded call passed its arguments: by position or by keyword."""

    parameters: inspect.Signature | None
    """Signature of the function; None if Python does not know it."""
    slots: Mapping[Slot, int | str]
    """Position or keyword that each argument had in the recorded call."""
    count: int
    """Number of positional arguments."""
    keys: frozenset[str]

    def arrange(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return a call's arguments arranged as in the recorded call.

        Raises Unfit if a recorded argument is missing and has no default, or if an argument that was not recorded has
        another value than its default.
        """
        if len(args) == self.count and kwargs.keys() == self.keys:
            return args, kwargs
        if self.parameters is None:
            raise Unfit("its arguments are passed in another way than the recorded ones")
        try:
            given = _by_slot(self.parameters, args, kwargs)
        except TypeError as error:
            raise Unfit(f"its arguments do not fit the function: {error}") from None
        for slot, value in given.items():
            if slot not in self.slots and not _is_default(self.parameters, slot, value):
                raise Unfit(f"{_name(slot)} is given, which the recorded call lacks")
        positional: list[Any] = [None] * self.count
        named: dict[str, Any] = {}
        for slot, where in self.slots.items():
            value = given[slot] if slot in given else _default(self.parameters, slot)
            if isinstance(where, int):
                positional[where] = value
            else:
                named[where] = value
        return positional, named


def arguments_of(function: Callable[..., Any], recorded: Signature) -> Arguments:
    """Return how a recorded call passed its arguments to a function.

    Raises BakeoffError if the function does not accept them.
    """
    keys = {key: key for key in recorded.kwargs}
    try:
        parameters = inspect.signature(function)
    except (ValueError, TypeError):  # written in C
        return Arguments(None, {}, len(recorded.args), frozenset(keys))
    try:
        slots = _by_slot(parameters, range(len(recorded.args)), keys)
    except TypeError as error:
        name = getattr(function, "__name__", "the function")
        raise BakeoffError(
            f"the recorded call does not fit {name}{parameters}: {error}; say with where= which module it is for",
            "bad-input",
        ) from None
    return Arguments(parameters, slots, len(recorded.args), frozenset(keys))


def _by_slot(parameters: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[Slot, Any]:
    found: dict[Slot, Any] = {}
    for name, value in parameters.bind(*args, **kwargs).arguments.items():
        kind = parameters.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            found |= {(name, place): part for place, part in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            found |= {(name, key): part for key, part in value.items()}
        else:
            found[name] = value
    return found


def _default(parameters: inspect.Signature, slot: Slot) -> Any:
    found = parameters.parameters[slot].default if isinstance(slot, str) else inspect.Parameter.empty
    if found is inspect.Parameter.empty:
        raise Unfit(f"{_name(slot)} is missing, which the recorded call has")
    return found


def _is_default(parameters: inspect.Signature, slot: Slot, value: Any) -> bool:
    found = parameters.parameters[slot].default if isinstance(slot, str) else inspect.Parameter.empty
    plain = isinstance(value, str | int | float | bool)
    return value is found or (plain and type(value) is type(found) and value == found)


def _name(slot: Slot) -> str:
    return slot if isinstance(slot, str) else str(slot[1]) if isinstance(slot[1], str) else f"{slot[0]}[{slot[1]}]"


_LIMITS_APART = 2
"""Factor on the manifest's limit, since program and original may each differ from the reference by that much."""
_ROUNDINGS = 8
"""Relative L2 error allowed for the original's own precision, in epsilons of its coarsest dtype: 6 % in bf16, in which
networks have errors of 1 to 3 % (models without normalisation more). In fp32 the manifest's limits are larger."""
Kind = tuple[torch.dtype | None, ...]
"""Dtypes of a call's tensors, then autocast's dtype or None: they decide the dtypes that the original returns."""


@dataclass(frozen=True, slots=True)
class FirstCall:
    """Comparison of a program's outputs with the original's, in the first call with given dtypes."""

    program: str
    make: Callable[[Mapping[str, Tensor]], Any]
    """Builds the original's result from outputs by name, with the classes that the original returned."""
    dtypes: Mapping[str, torch.dtype]
    errors: Mapping[str, float]
    """Relative L2 error of each output of the program against the original's."""
    limits: Mapping[str, float]
    """Largest allowed errors."""
    refusal: str = ""
    """Reason why the program is not used; "" if it is used."""


@dataclass(slots=True)
class TunedProgram:
    """An opened program of an artifact and the calls that it was exported for."""

    program: Program
    call: Signature
    result: Node
    arguments: Arguments
    limits: Mapping[str, float]
    """Limits of the manifest: largest relative L2 of each output against the reference."""
    first_calls: dict[Kind, FirstCall] = field(default_factory=dict)
    _inputs: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...] = field(init=False)
    _index: int = field(init=False)

    def __post_init__(self) -> None:
        self._inputs = tuple((port.name, getattr(torch, port.dtype), port.shape) for port in self.program.about.inputs)
        self._index = torch.cuda.current_device() if self.device == "cuda" else 0

    @property
    def device(self) -> str:
        return self.program.device

    def fit(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
        """Return a call's tensors in the order of the program's inputs.

        Raises Unfit if the call does not fit the program.
        """
        args, kwargs = self.arguments.arrange(args, kwargs)
        try:
            found = flatten_call(self.call, args, kwargs)
        except BakeoffError as error:
            raise Unfit(str(error)) from None
        for node, value in self._pairs(args, kwargs):
            for path, kind in _classes(node, value):
                if not _is_named(kind, path):
                    raise Unfit(f"an argument is {a_type(kind)} where {path} was recorded")
        for name, dtype, shape in self._inputs:
            self._check(name, found[name], dtype, shape)
        return {name: found[name] for name, _, _ in self._inputs}

    def _pairs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Node, Any]]:
        yield from zip(self.call.args, args, strict=True)
        for key, node in self.call.kwargs.items():
            yield node, kwargs[key]

    def _check(self, name: str, tensor: object, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        if not isinstance(tensor, Tensor) or type(tensor) not in (Tensor, torch.nn.Parameter):
            raise Unfit(f"{name} is {a_type(type(tensor))}, not a plain tensor")
        if tensor.shape != shape:
            raise Unfit(f"{name} has the shape {list(tensor.shape)}, it was exported for {list(shape)}")
        if tensor.dtype != dtype and not (_short(tensor.dtype) in FLOATS and _short(dtype) in FLOATS):
            raise Unfit(f"{name} is {_short(tensor.dtype)}, it was exported for {_short(dtype)}")
        if tensor.device.type != self.device or (tensor.device.index or 0) != self._index:
            raise Unfit(f"{name} is on {tensor.device}, it was exported for {self.device}")

    def run(self, tensors: Mapping[str, Tensor], first: FirstCall) -> Any:
        """Run the program and return its outputs with the structure, classes and dtypes of the original's result."""
        outputs = self._outputs(tensors)
        cast = {name: tensor.to(first.dtypes[name]) for name, tensor in outputs.items()}
        return first.make(cast)

    def _outputs(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with torch.no_grad():
            return self.program(**{name: tensors[name].detach().to(dtype) for name, dtype, _ in self._inputs})

    def compare(
        self,
        tensors: Mapping[str, Tensor],
        roundings: float,
        original: Callable[[], Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> tuple[Any, FirstCall]:
        """Compute a call by the program and by the original; return the original's result and the comparison.

        `roundings` is the epsilon of the coarsest dtype that the original computes in. Raises whatever the program or
        the original raises.
        """
        outputs = self._outputs(tensors)
        before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        result = original()
        nothing = FirstCall(self.program.about.name, dict, {}, {}, {})
        try:
            after = self.fit(args, kwargs)
            kept = all(after[name] is tensor and torch.equal(before[name], tensor) for name, tensor in tensors.items())
        except Unfit:
            kept = False
        if not kept:
            return result, replace(nothing, refusal="the original changes its arguments, which a program does not")
        try:
            return result, self._compared(outputs, result, roundings)
        except Unfit as unfit:
            return result, replace(nothing, refusal=str(unfit))

    def _compared(self, outputs: Mapping[str, Tensor], result: Any, roundings: float) -> FirstCall:
        """Compare the program's outputs with the original's result.

        Raises Unfit if the result has another structure.
        """
        wanted: dict[str, Any] = {}
        try:
            flatten(self.result, result, wanted)
        except BakeoffError:
            raise Unfit("the original returns another structure than the recorded one") from None
        for path, kind in _classes(self.result, result):
            if not _is_named(kind, path):
                raise Unfit(f"the original returns {a_type(kind)} where {path} was recorded")
        errors = {name: _error(name, outputs[name], value) for name, value in wanted.items()}
        dtypes = {name: value.dtype for name, value in wanted.items()}
        make = maker(self.result, result)
        try:
            make(wanted)
        except TypeError as error:
            raise Unfit(f"what the original returns cannot be made again: {error}") from None
        limits = {name: max(_LIMITS_APART * self.limits[name], _ROUNDINGS * roundings) for name in errors}
        worst = max(errors, key=lambda name: errors[name] / limits[name])
        first = FirstCall(self.program.about.name, make, dtypes, errors, limits)
        if errors[worst] <= limits[worst]:
            return first
        differs = f"{worst} differs from the original's by {errors[worst]:.2e} relative L2, over {limits[worst]:.2e}"
        return replace(first, refusal=differs)


def call_of(about: About) -> tuple[Signature, Node]:
    """Return a program's call and result: the manifest's, else positional plain tensors and a tuple of tensors."""
    call = about.call or Signature(tuple(TensorLeaf(port.name) for port in about.inputs), {})
    return call, about.result or Items("tuple", tuple(TensorLeaf(port.name) for port in about.outputs))


def maker(node: Node, like: Any) -> Callable[[Mapping[str, Tensor]], Any]:
    """Return a function that builds the tree `node` from tensors by name, with the classes found in the example `like`.

    No class that the tree names is imported. The function raises TypeError if a class does not accept its parts.
    """
    kind = type(like)
    match node:
        case TensorLeaf(name):
            return lambda tensors: tensors[name]
        case Constant():
            return lambda _tensors: like
        case Items(_, items):
            parts = [maker(part, inner) for part, inner in zip(items, like, strict=True)]
            return lambda tensors: kind(make(tensors) for make in parts)
        case Entries(entries):
            held = {key: maker(entries[key], inner) for key, inner in like.items()}
            return lambda tensors: kind({key: make(tensors) for key, make in held.items()})
        case Fields(_, entries):
            named = {key: maker(entries[key], inner) for key, inner in (fields_of(like) or {}).items()}
            return lambda tensors: kind(**{key: make(tensors) for key, make in named.items()})


def _classes(node: Node, value: Any) -> Iterator[tuple[str, type]]:
    """Yield the recorded path of each class in a tree, with the class that `value` has in its place."""
    match node:
        case Items(_, items):
            for part, inner in zip(items, value, strict=True):
                yield from _classes(part, inner)
        case Entries(entries):
            for key, part in entries.items():
                yield from _classes(part, value[key])
        case Fields(path, entries):
            yield path, type(value)
            fields = fields_of(value) or {}
            for key, part in entries.items():
                yield from _classes(part, fields[key])


def _is_named(kind: type, path: str) -> bool:
    """Return whether a class has the name in a path MODULE:NAME; modules may differ, as with `__main__`."""
    return kind.__qualname__ == path.partition(":")[2]


def _error(name: str, output: Tensor, wanted: object) -> float:
    """Return the relative L2 error of an output. Raises Unfit if the two cannot be compared or are not finite."""
    if not isinstance(wanted, Tensor):
        raise Unfit(f"the original returns {a_type(type(wanted))} as {name}, not a tensor")
    if output.shape != wanted.shape or output.device != wanted.device:
        raise Unfit(f"the original returns {name} as {list(wanted.shape)} on {wanted.device}")
    found, reference = output.detach().double(), wanted.detach().double()
    distance, norm = float((found - reference).norm()), float(reference.norm())
    error = distance / norm if norm else float(distance > 0)
    if not error < float("inf"):
        raise Unfit(f"{name} is not finite in the first call")
    return error


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
