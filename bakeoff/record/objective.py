"""A sweep's objective: the goal that its rows are ranked by, and limits that a row must meet to be recommended."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from bakeoff.models.errors import BakeoffError

Goal = Literal["latency", "throughput"]
Figure = Literal["p95", "p99", "memory"]
Unit = Literal["us", "ms", "s", "MiB", "GiB"]

EXAMPLES: Final = (
    "give latency or throughput, and limits such as p95<20ms, p99<=33ms or memory<=8GiB, separated by commas"
)
PERCENTILES: Final[Mapping[str, float]] = {"p95": 0.95, "p99": 0.99}
"""For each figure of the latency clock, the share of calls that take at most this long."""
_MS: Final[Mapping[str, float]] = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_BYTES: Final[Mapping[str, float]] = {"MiB": float(1 << 20), "GiB": float(1 << 30)}
_LARGEST = 1e9
_SHOWN = 60
"""Most characters of typed text that a message repeats."""
_LIMIT = re.compile(
    r"(?P<figure>[a-z0-9]{1,20}) ?(?P<sign><=|<) ?(?P<number>[0-9]{1,20}(?:\.[0-9]{1,20})?) ?(?P<unit>[a-z]{1,20})",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Limit:
    """Upper limit of a row's figure. Raises BakeoffError for a number or a unit that the figure cannot have."""

    figure: Figure
    number: float
    unit: Unit
    strict: bool = False
    """The figure must be below the number; otherwise it may be equal."""

    def __post_init__(self) -> None:
        if self.unit not in self._units():
            text = f"{self.figure} is not in {self.unit}; give it in {' or '.join(self._units())}"
            raise BakeoffError(f"the limit {self}: {text}", "bad-option")
        if not 0 < self.number <= _LARGEST:
            text = f"a limit is above 0 and at most {_LARGEST:,.0f}"
            raise BakeoffError(f"the limit {self}: {text}", "bad-option")

    def __str__(self) -> str:
        return f"{self.figure}{'<' if self.strict else '<='}{self.number_text}"

    @property
    def number_text(self) -> str:
        """The number with its unit, as in `33ms`."""
        return f"{self.number:.12g}{self.unit}"

    @property
    def most(self) -> float:
        """The limit in milliseconds, or in bytes for memory."""
        return self.number * self._units()[self.unit]

    def allows(self, value: float) -> bool:
        return value < self.most if self.strict else value <= self.most

    def _units(self) -> Mapping[str, float]:
        return _BYTES if self.figure == "memory" else _MS


@dataclass(frozen=True, slots=True)
class Objective:
    """Rule for the row to ship: the best by the goal among the rows that meet all limits."""

    goal: Goal = "latency"
    limits: tuple[Limit, ...] = ()
    """At most one for each figure."""

    def __str__(self) -> str:
        return ",".join([self.goal, *map(str, self.limits)])


LATENCY: Final = Objective()
"""The default objective, and that of records that state none."""


def parse_objective(text: str) -> Objective:
    """Parse an objective such as `throughput,p99<=33ms,memory<=8GiB`, in any order; the default goal is latency.

    Raises BakeoffError for any other text.
    """
    goal: Goal | None = None
    limits: dict[str, Limit] = {}
    for part in text.split(","):
        item = part.strip(" ")
        name = item.lower()
        if name in get_args(Goal):
            if goal is not None:
                raise _refused(text, "there is one goal, and this has several")
            goal = "throughput" if name == "throughput" else "latency"
            continue
        limit = _limit(text, item)
        if limit.figure in limits:
            raise _refused(text, f"{limit.figure} has two limits")
        limits[limit.figure] = limit
    ordered = (limits[figure] for figure in get_args(Figure) if figure in limits)
    return Objective(goal or "latency", tuple(ordered))


def _limit(text: str, item: str) -> Limit:
    match = _LIMIT.fullmatch(item)
    if match is None:
        raise _refused(text, f"{_quoted(item)} is neither a goal nor a limit")
    figure, unit = match["figure"].lower(), match["unit"].lower()
    units: dict[str, Unit] = {name.lower(): name for name in get_args(Unit)}
    if figure not in get_args(Figure):
        raise _refused(text, f"there is no limit of {_quoted(figure)}")
    if unit not in units:
        raise _refused(text, f"{_quoted(unit)} is not a unit of {', '.join(get_args(Unit))}")
    found = next(name for name in get_args(Figure) if name == figure)
    try:
        return Limit(found, float(match["number"]), units[unit], match["sign"] == "<")
    except BakeoffError as error:
        raise _refused(text, str(error)) from error


def _refused(text: str, why: str) -> BakeoffError:
    return BakeoffError(f"--objective {_quoted(text)}: {why}; {EXAMPLES}", "bad-option")


def _quoted(text: str) -> str:
    """Return typed text in quotes, cut after 60 characters."""
    return f"'{text}'" if len(text) <= _SHOWN else f"'{text[:_SHOWN]}...'"
