"""A variant: one configuration to measure, printed and parsed as one string that identifies it.

`component:preset.workload/backend[options](+backend[options])/dtype@device`, for example
`wm:200m.step/inductor[freezing]/bf16@cpu`.
"""

import re
from dataclasses import dataclass
from typing import Any

from bakeoff.models.errors import BakeoffError
from bakeoff.models.options import Optioned, OptionValue, changed_options, written_option
from bakeoff.models.types import Device, Dtype, parse_device, parse_dtype

_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]*"
_DOTTED = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_OPTIONS = r"(?:\[[A-Za-z0-9_.,=+-]*\])?"
_USE = rf"{_DOTTED}{_OPTIONS}"
_VARIANT = re.compile(
    rf"(?P<component>{_DOTTED}):(?P<preset>{_NAME})\.(?P<workload>{_NAME})"
    rf"/(?P<backends>{_USE}(?:\+{_USE})*)/(?P<dtype>{_NAME})@(?P<device>{_NAME})"
)
_TITLE = re.compile(rf"(?P<component>{_DOTTED}):(?P<preset>{_NAME})\.(?P<workload>{_NAME})(?:,? .*)?")


@dataclass(frozen=True, slots=True)
class BackendUse:
    """A backend with the options that differ from its defaults, in the order in which it declares them."""

    name: str
    options: tuple[tuple[str, OptionValue], ...] = ()

    def __str__(self) -> str:
        if not self.options:
            return self.name
        return f"{self.name}[{','.join(written_option(name, value) for name, value in self.options)}]"


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration to measure. Two variants with the same string are the same variant."""

    component: str
    preset: str
    workload: str
    backends: tuple[BackendUse, ...]
    dtype: Dtype
    device: Device

    def __str__(self) -> str:
        return f"{self.subject}/{self.backend}/{self.dtype}@{self.device}"

    @property
    def subject(self) -> str:
        """Component, preset and workload: what all rows of one table compute."""
        return f"{self.component}:{self.preset}.{self.workload}"

    @property
    def backend(self) -> str:
        return "+".join(str(use) for use in self.backends)

    @property
    def slug(self) -> str:
        """The variant as part of a file name, at most 120 characters long."""
        return re.sub(r"[^A-Za-z0-9.=-]+", "_", str(self)).strip("_")[:120]


def parse_variant(text: str) -> Variant:
    """Parse a variant's string. Options are not checked, and their values remain text.

    Raises BakeoffError for text in another form, or for an unknown dtype or device.
    """
    match = _VARIANT.fullmatch(text.strip())
    if match is None:
        raise BakeoffError(
            f"'{text}' is not a variant; write component:preset.workload/backend[options]/dtype@device",
            code="bad-variant",
        )
    parts = match.groupdict()
    return Variant(
        parts["component"],
        parts["preset"],
        parts["workload"],
        tuple(_parse_use(use) for use in split_outside_brackets(parts["backends"], "+")),
        parse_dtype(parts["dtype"]),
        parse_device(parts["device"]),
    )


def split_title(text: str) -> tuple[str, str, str]:
    """Return component, preset and workload from the start of a table's title; for other text, it and two ""."""
    match = _TITLE.fullmatch(text.strip())
    return (match["component"], match["preset"], match["workload"]) if match is not None else (text, "", "")


def split_outside_brackets(text: str, separator: str) -> list[str]:
    """Split the text at each `separator` outside square brackets, and strip the parts."""
    return [part.strip() for part in re.split(re.escape(separator) + r"(?![^\[]*\])", text)]


def _parse_use(text: str) -> BackendUse:
    name, pairs = parse_use(text)
    return BackendUse(name, tuple((pairs or {}).items()))


def parse_use(text: str) -> tuple[str, dict[str, OptionValue] | None]:
    """Split `name[options]` into the name and its options as text (True for an option without a value).

    The options are None if there are no brackets. Raises BakeoffError for a bracket that is not closed, an option
    without a name, or an option that is given twice.
    """
    name, bracket, rest = text.partition("[")
    if not bracket:
        return name, None
    if not rest.endswith("]"):
        raise BakeoffError(f"'{text}': the bracket is not closed; write {name}[option,option=value]", code="bad-option")
    pairs: dict[str, OptionValue] = {}
    for item in filter(None, rest[:-1].split(",")):
        option, equals, value = item.partition("=")
        if not option:
            raise BakeoffError(
                f"'{text}': '{item}' has no option name; write {name}[option={value}]", code="bad-option"
            )
        if option in pairs:
            raise BakeoffError(f"'{text}': option '{option}' is given twice; keep one", code="bad-option")
        pairs[option] = value if equals else True
    return name, pairs


def use_of(backend: Optioned, options: Any) -> BackendUse:
    """Return the backend with the `options` (an instance of its dataclass) that differ from the defaults."""
    return BackendUse(backend.name, changed_options(options))
