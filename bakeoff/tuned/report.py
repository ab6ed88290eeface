"""What became of the calls of an object that artifacts were applied to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from bakeoff.models.words import counted

if TYPE_CHECKING:
    from bakeoff.tuned.module import Tuned


@dataclass(frozen=True, slots=True)
class Comparison:
    """A program's outputs against the original's, in the first call of its kind."""

    artifact: str
    program: str
    errors: Mapping[str, float]
    """Relative L2 of each output; empty where they could not be compared."""
    limits: Mapping[str, float]
    """What they may be at most."""
    refusal: str
    """Why the program is not used; "" where it is."""


@dataclass(frozen=True, slots=True)
class PlaceReport:
    """The calls of one module or method since it was tuned."""

    place: str
    artifacts: tuple[str, ...]
    tuned: int
    """Calls that a program computed."""
    original: int
    """Calls that the original computed."""
    reasons: Mapping[str, int]
    """Why they did, to their number."""
    first_calls: tuple[Comparison, ...]

    @classmethod
    def of(cls, place: str, artifacts: tuple[str, ...], tuned: "Tuned") -> "PlaceReport":
        compared = tuple(
            Comparison(program.folder, program.program.about.name, one.errors, one.limits, one.refusal)
            for program in tuned.programs
            for one in program.first_calls.values()
        )
        return cls(place, artifacts, tuned.tuned, tuned.reasons.total(), dict(tuned.reasons), compared)


@dataclass(frozen=True, slots=True)
class Report:
    places: tuple[PlaceReport, ...]

    def __str__(self) -> str:
        return "\n".join(line for place in self.places for line in _lines(place))

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def _lines(place: PlaceReport) -> list[str]:
    lines = [
        f"{place.place}: {place.tuned} of {counted(place.tuned + place.original, 'call')} tuned "
        f"({', '.join(place.artifacts)})",
        *(f"  {count} ran the original: {reason}" for reason, count in place.reasons.items()),
    ]
    for one in place.first_calls:
        if one.errors and not one.refusal:
            worst = max(one.errors, key=lambda name: one.errors[name] / one.limits[name])
            figure = f"{worst} {one.errors[worst]:.2e} relative L2, limit {one.limits[worst]:.2e}"
            lines.append(f"  {one.program} against the original in its first call: {figure}")
    return lines
