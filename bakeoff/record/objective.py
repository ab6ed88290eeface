"""An objective: the goal by which rows of a sweep or mixes of a pipeline are ranked, and limits that they must meet."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from bakeoff.models.errors import BakeoffError

Goal = Literal["latency", "throughput", "mean", "p99", "memory", "energy"]
"""Former records have the last three."""
Figure = Literal["p95", "p99", "memory", "mean", "fps", "sqnr", "first", "build"]
"""Former records have `build`."""
Unit = Literal["us", "ms", "s", "MiB", "GiB", "dB", ""]

PERCENTILES: Final[Mapping[str, float]] = {"p95": 0.95, "p99": 0.99}
"""For each figure of the latency clock, the share of calls that take at most this long."""
_MS: Final[Mapping[str, float]] = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "p95": _MS,
    "p99": _MS,
    "memory": {"MiB": float(1 << 20), "GiB": float(1 << 30)},
    "mean": _MS,
    "fps": {"": 1.0},
    "sqnr": {"dB": 1.0, "": 1.0},
    "first": _MS,
    "build": {"s": 1.0},
}
"""Units of each figure, with their factors to milliseconds, bytes, frames a second, decibels and seconds."""
_AT_LEAST: Final = ("fps", "sqnr")
"""Figures that have a lower limit; the others have an upper one."""
_LARGEST = 1e9
_SHOWN = 60
"""Most characters of typed text that a message repeats."""
_LIMIT = re.compile(
    r"(?P<figure>[a-z0-9]{1,20}) ?(?P<sign>[<>]=?) ?(?P<number>[0-9]{1,20}(?:\.[0-9]{1,20})?) ?(?P<unit>[a-z]{0,20})",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Limit:
    """Limit of a figure, upper or lower. Raises BakeoffError for a number or a unit that the figure cannot have."""

    figure: Figure
    number: float
    unit: Unit
    strict: bool = False
    """The figure must be beyond the number; otherwise it may be equal."""

    def __post_init__(self) -> None:
        units = _UNITS[self.figure]
        if self.unit not in units:
            text = f"{self.figure} is not in {self.unit}; give it in {' or '.join(filter(None, units)) or 'no unit'}"
            raise BakeoffError(f"the limit {self}: {text}", "bad-option")
        if not 0 < self.number <= _LARGEST:
            text = f"a limit is above 0 and at most {_LARGEST:,.0f}"
            raise BakeoffError(f"the limit {self}: {text}", "bad-option")

    def __str__(self) -> str:
        return f"{self.figure}{self.sign}{'' if self.strict else '='}{self.number_text}"

    @property
    def sign(self) -> str:
        """`>` for a lower limit, `<` for an upper one."""
        return ">" if self.figure in _AT_LEAST else "<"

    @property
    def number_text(self) -> str:
        """The number with its unit, as in `33ms`."""
        return f"{self.number:.12g}{self.unit}"

    @property
    def bound(self) -> float:
        """The limit in milliseconds; in bytes for memory, seconds for a build, decibels or frames a second."""
        return self.number * _UNITS[self.figure][self.unit]

    def allows(self, value: float) -> bool:
        if value == self.bound:
            return not self.strict
        return (value > self.bound) == (self.sign == ">")


@dataclass(frozen=True, slots=True)
class Objective:
    """Rule for what to ship: the best by the goal among those that meet all limits."""

    goal: Goal = "latency"
    limits: tuple[Limit, ...] = ()
    """At most one for each figure."""

    def __str__(self) -> str:
        return ",".join([self.goal, *map(str, self.limits)])


LATENCY: Final = Objective()
"""The default objective of a sweep, and that of records that state none."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """What one command's `--objective` may ask for."""

    goals: tuple[Goal, ...]
    """The first is the default."""
    figures: tuple[Figure, ...]
    examples: str


OF_SWEEP: Final = Grammar(
    ("latency", "throughput"),
    ("p95", "p99", "memory"),
    "give latency or throughput, and limits such as p95<20ms, p99<=33ms or memory<=8GiB, separated by commas",
)
OF_BUDGET: Final = Grammar(
    ("mean",),
    ("mean", "fps", "p99", "memory", "sqnr", "first"),
    "give limits such as mean<=40ms, fps>=24, p99<=50ms, memory<=8GiB, sqnr>=30 or first<=5s, separated by commas",
)


def parse_objective(text: str, grammar: Grammar = OF_SWEEP) -> Objective:
    """Parse an objective such as `throughput,p99<=33ms,memory<=8GiB`, in any order; without a goal, it is the first of
    the grammar.

    Raises BakeoffError for any other text.
    """
    goal: Goal | None = None
    limits: dict[str, Limit] = {}
    for part in text.split(","):
        item = part.strip(" ")
        named = next((each for each in get_args(Goal) if each == item.lower()), None)
        if named is not None:
            if named not in grammar.goals:
                raise _refused(text, f"{named} is no goal here", grammar)
            if goal is not None:
                raise _refused(text, "there is one goal, and this has several", grammar)
            goal = named
            continue
        limit = _limit(text, item, grammar)
        if limit.figure in limits:
            raise _refused(text, f"{limit.figure} has two limits", grammar)
        limits[limit.figure] = limit
    ordered = (limits[figure] for figure in grammar.figures if figure in limits)
    return Objective(goal or grammar.goals[0], tuple(ordered))


def _limit(text: str, item: str, grammar: Grammar) -> Limit:
    match = _LIMIT.fullmatch(item)
    name, unit = (match["figure"].lower(), match["unit"].lower()) if match is not None else ("", "")
    figure = next((each for each in grammar.figures if each == name), None)
    if match is not None and figure is None:
        raise _refused(text, f"there is no limit of {_quoted(name)}", grammar)
    if match is None or figure is None or (not unit and "" not in _UNITS[figure]):
        raise _refused(text, f"{_quoted(item)} is neither a goal nor a limit", grammar)
    units: dict[str, Unit] = {each.lower(): each for each in get_args(Unit)}
    if unit not in units:
        raise _refused(text, f"{_quoted(unit)} is not a unit of {', '.join(filter(None, get_args(Unit)))}", grammar)
    try:
        limit = Limit(figure, float(match["number"]), units[unit], "=" not in match["sign"])
    except BakeoffError as error:
        raise _refused(text, str(error), grammar) from error
    if match["sign"][0] != limit.sign:
        way = "a lower" if limit.sign == ">" else "an upper"
        raise _refused(text, f"{_quoted(item)} is neither a goal nor a limit: {figure} has {way} limit", grammar)
    return limit


def _refused(text: str, why: str, grammar: Grammar) -> BakeoffError:
    return BakeoffError(f"--objective {_quoted(text)}: {why}; {grammar.examples}", "bad-option")


def _quoted(text: str) -> str:
    """Return typed text in quotes, cut after 60 characters."""
    return f"'{text}'" if len(text) <= _SHOWN else f"'{text[:_SHOWN]}...'"
