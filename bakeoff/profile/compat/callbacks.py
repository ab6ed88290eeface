"""What callbacks of decorators tell about a call; an error of a callback is told instead of raised."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bakeoff.profile.plain import error_text


@dataclass(frozen=True, slots=True)
class Told:
    """What a callback told of a call; nothing where it raised, and then `error` says what."""

    data: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


def tell(callback: Callable[..., Any] | None, *args: Any, **kwargs: Any) -> Told:
    """Call a callback that returns a mapping. Never raises."""
    if callback is None:
        return Told()
    try:
        return Told(dict(callback(*args, **kwargs)))
    except Exception as error:  # noqa: BLE001  # somebody's callback may raise anything, and must not end the pipeline
        return Told(error=error_text(error))


def tell_event(
    callback: Callable[..., Any] | None, function: Callable[..., Any], result: Any, args: Any, kwargs: Mapping[str, Any]
) -> Told:
    """Data of an event after a call: `callback(result, *args, **kwargs)`.

    A callback that does not take the positional arguments gets them by the names of the function's parameters.
    """
    if callback is None or takes(callback, (result, *args), kwargs):
        return tell(callback, result, *args, **kwargs)
    named = _by_name(function, args, kwargs)
    if named is not None and takes(callback, (result,), named):
        return tell(callback, result, **named)
    return tell(callback, result, *args, **kwargs)


def takes(callback: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call with these arguments fits its signature; True where it has none."""
    try:
        inspect.signature(callback).bind(*args, **kwargs)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def is_method(function: Callable[..., Any]) -> bool:
    """Whether its first parameter is `self` or `cls`: what decorators see of a method while its class is made."""
    try:
        return next(iter(inspect.signature(function).parameters), "") in ("self", "cls")
    except (TypeError, ValueError):
        return False


def _by_name(function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Arguments by name, without `self`; None of a function with `*args`."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[is_method(function) :]
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_POSITIONAL for each in parameters) or len(args) > len(parameters):
        return None
    return {each.name: value for each, value in zip(parameters, args, strict=False)} | dict(kwargs)
