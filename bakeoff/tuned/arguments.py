"""Arguments of a call, passed by position or by name, brought into the way in which they were recorded."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bakeoff.models.errors import BakeoffError
from bakeoff.models.signature import Signature

Slot = str | tuple[str, int | str]
"""A parameter's name, with the place or the key of an argument where the parameter takes any number of them."""


class Unfit(Exception):
    """A call that no program of an artifact can compute; the message says why."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """How the arguments of one recorded call were passed."""

    parameters: inspect.Signature | None
    """Of the function; None where Python does not know them."""
    slots: Mapping[Slot, int | str]
    """To the place of a positional argument of the recorded call, or the key of a keyword argument."""
    count: int
    """Of positional arguments."""
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
    """How a recorded call passed its arguments to a function.

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
