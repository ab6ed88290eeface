"""One program of an artifact: the calls that it can compute, the comparison of its first call, and its calls."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from bakeoff.export import Program
from bakeoff.export.manifest import FLOATS, Manifest
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
"""A parameter's name, with the place or the key of an argument where the parameter takes any number of them."""


class Unfit(Exception):
    """A call that no program of an artifact can compute; the message says why."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Form in which the arguments of one recorded call were passed."""

    parameters: inspect.Signature | None
    """Signature of the function; None where Python does not know it."""
    slots: Mapping[Slot, int | str]
    """To the place of a positional argument of the recorded call, or the key of a keyword argument."""
    count: int
    """Number of positional arguments."""
    keys: frozenset[str]

    def arrange(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments as the recorded call passed them. Raises Unfit where one lacks, or has another than its default
        value without being recorded."""
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

    Raises BakeoffError where the function does not take them.
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
"""The program and the original may each differ from the reference by the manifest's limit."""
_ROUNDINGS = 8
"""Relative L2 that is granted to the original for its own precision, in epsilons of its coarsest dtype: 6 % in bf16,
where a network has 1 to 3 % (models without normalisation more). In fp32 the limits above are larger."""
Kind = tuple[torch.dtype | None, ...]
"""Dtypes of the caller's tensors, and autocast's, where it is on: they decide the dtypes that the original returns."""


@dataclass(frozen=True, slots=True)
class FirstCall:
    """Comparison of a call that the program and the original both computed."""

    make: Callable[[Mapping[str, Tensor]], Any]
    """From outputs by name to what the original returns, of the classes that it returned."""
    dtypes: Mapping[str, torch.dtype]
    errors: Mapping[str, float]
    """Relative L2 of the program's outputs against the original's."""
    limits: Mapping[str, float]
    """Largest allowed errors."""
    refusal: str = ""
    """Reason why the program is not used; "" where it is."""


@dataclass(slots=True)
class TunedProgram:
    """An opened program of an artifact and the calls that it was exported for."""

    folder: str
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
        """Return the tensors of a call in the order of the program's inputs. Raises Unfit where it is another call."""
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
        """Return what the original would, computed by the program."""
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
        """Compute a call by the program and by the original.

        Returns the original's result, and the comparison. `roundings` is the epsilon of the coarsest
        dtype that the original computes in. Raises what either raises.
        """
        outputs = self._outputs(tensors)
        before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        result = original()
        nothing = FirstCall(dict, {}, {}, {})
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
        """The comparison of outputs with the original's result. Raises Unfit where the result is another tree."""
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
        first = FirstCall(make, dtypes, errors, limits)
        if errors[worst] <= limits[worst]:
            return first
        differs = f"{worst} differs from the original's by {errors[worst]:.2e} relative L2, over {limits[worst]:.2e}"
        return replace(first, refusal=differs)


def call_of(about: About) -> tuple[Signature, Node]:
    """Return how the module is called and what it returns: by the manifest, else plain tensors and a tuple."""
    call = about.call or Signature(tuple(TensorLeaf(port.name) for port in about.inputs), {})
    return call, about.result or Items("tuple", tuple(TensorLeaf(port.name) for port in about.outputs))


def limits_in(manifest: Manifest, about: About) -> dict[str, float]:
    return {port.name: manifest.sample.limits[f"{about.name}/{port.name}"] for port in about.outputs}


def maker(node: Node, like: Any) -> Callable[[Mapping[str, Tensor]], Any]:
    """A function from the tensors of a tree to a value of the classes of `like`, a value that is such a tree.

    Nothing that the tree names is imported. What it makes raises TypeError where a class does not take its parts.
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
    """The paths of a tree's classes with the classes of a value that is such a tree."""
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
    """Return whether a class has the name of this path; its module may have another name here, such as `__main__`."""
    return kind.__qualname__ == path.partition(":")[2]


def _error(name: str, output: Tensor, wanted: object) -> float:
    """Relative L2. Raises Unfit where the two cannot be compared."""
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
