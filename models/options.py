"""Options of backends and pipelines, fields of frozen dataclasses: reads them from typed names and values."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, Protocol, get_args, get_origin, get_type_hints

import msgspec

from bakeoff.models.errors import BakeoffError, meant

OptionValue = str | int | float | bool


class Optioned(Protocol):
    """Owner of options, each with a default: a backend."""

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> type:
        """A frozen dataclass."""


def written_option(option: str, value: OptionValue) -> str:
    """Return an option as typed: only the name for True; numbers without a plus sign, which would separate backends."""
    if value is True:
        return option
    text = str(value).replace("e+", "e") if isinstance(value, float) else str(value)
    return f"{option}={'false' if value is False else text}"


def changed_options(options: Any) -> tuple[tuple[str, OptionValue], ...]:
    """Return the options that differ from the defaults, in the order of their declaration."""
    defaults = type(options)()
    return tuple(
        (field.name, getattr(options, field.name))
        for field in fields(options)
        if getattr(options, field.name) != getattr(defaults, field.name)
    )


def options_of(owner: Optioned, pairs: Mapping[str, OptionValue]) -> Any:
    """Return the owner's options, as `read_options` does."""
    return read_options(owner.name, owner.options, pairs)


def read_options(owner: str, options: type, pairs: Mapping[str, OptionValue]) -> Any:
    """Return a dataclass of options from names and values; text is converted to the field's type.

    Raises BakeoffError for an unknown option, or for a value that is not of the field's type.
    """
    hints = get_type_hints(options)
    values = {}
    for name, value in pairs.items():
        if name not in hints:
            text = f"{owner} has no option '{name}'{meant(name, hints)}; known: {', '.join(hints) or 'none'}"
            raise BakeoffError(text, "bad-option")
        try:
            values[name] = msgspec.convert(value, type=hints[name], strict=False)
        except msgspec.ValidationError as error:
            asked = f"{owner}[{written_option(name, value)}]"
            raise BakeoffError(f"{asked}: {name} must be {_accepted(hints[name])}", code="bad-option") from error
    return options(**values)


def _accepted(kind: Any) -> str:
    """Return the values that an option of this type takes, for error messages."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(str(value) for value in get_args(kind))
    if get_args(kind):
        return " or ".join(_accepted(part) for part in get_args(kind) if part is not type(None))
    names = {bool: "true or false", int: "an integer", float: "a number", str: "text"}
    return names.get(kind, str(kind))
