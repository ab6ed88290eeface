"""Solves a frame budget: from what records say of each slot's choices, which mix meets the limits and is the best.

Then `confirm` lets the best candidates run.
All mixes are compared, so the answer is exact for what the records say. Where there are very many, choices that another
of the same slot surpasses in every figure are dropped first; they cannot be the best.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bakeoff.models.component import Quantisation
from bakeoff.models.errors import BakeoffError
from bakeoff.record.budget import Binding, Solution, shipped
from bakeoff.record.objective import Limit, Objective
from bakeoff.record.pipeline import Budget, Forecast
from bakeoff.record.store import StoredPipeline

MOST_MIXES: Final = 1_000_000
_EVERY_MIX: Final = 100_000
"""Largest number of mixes of which none is dropped, so that those that come next are candidates too."""
MOST_CANDIDATES: Final = 20
_MOST_OF_FRONT: Final = 40
_MOST_ROUNDS: Final = 3
_CHUNK: Final = 2_000
"""Mixes whose drawn units are added up at a time."""
_MS, _LOW, _HIGH, _MEMORY, _BUILD, _NOISE, _JOULES, _P99 = range(8)
"""Columns of the figures, all of which are better if smaller; `_NOISE` is the negative SQNR. Unknown is infinite."""
_COLUMNS: Final[Mapping[str, int]] = {
    "mean": _MS, "fps": _MS, "p99": _P99, "memory": _MEMORY, "energy": _JOULES, "sqnr": _NOISE, "build": _BUILD,
}  # fmt: skip
"""Column of each goal and of each limit's figure."""
Figures = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One way to fill a slot, with what the records of all of its programs say. None: a record lacks the figure."""

    text: str
    """As in a mix: `wm=inductor/bf16`."""
    ms: float
    """Time of the slot in a steady unit: calls times median, over its programs."""
    low_ms: float
    high_ms: float
    drawn_ms: Figures
    """Times of the slot in drawn units. All choices are drawn with the same random numbers."""
    memory_bytes: int | None
    """Memory beyond the process."""
    build_s: float | None
    sqnr_db: float | None
    joules: float | None
    exportable: bool = False
    """Whether the last backend has an artifact format."""
    records: tuple[str, ...] = ()

    @property
    def figures(self) -> tuple[float, ...]:
        known = (self.memory_bytes, self.build_s, None if self.sqnr_db is None else -self.sqnr_db, self.joules)
        return (self.ms, self.low_ms, self.high_ms, *(inf if value is None else value for value in known))


@dataclass(frozen=True, slots=True)
class Base:
    """What a mix takes apart from its slots."""

    frames: int = 1
    """Video frames of a steady unit."""
    between_ms: float = 0.0
    between_from: str = ""
    process_bytes: int = 0


def solve(
    slots: Mapping[str, Sequence[Choice]],
    objective: Objective,
    base: Base = Base(),
    classes: tuple[Quantisation, ...] | None = None,
) -> Solution:
    """Return the mixes that meet the objective's limits, the best first; without any, the limits that prevent it.

    Mixes whose interval overlaps that of the best by the goal are tied with it, and the one that builds in the fewest
    whole seconds comes first, the best of several. Raises BakeoffError if more than a million mixes would have to be
    compared.
    """
    goal = _COLUMNS[objective.goal]
    with_p99 = _P99 in {goal, *(_COLUMNS[limit.figure] for limit in objective.limits)}
    kept, count = list(slots.values()), prod(map(len, slots.values()))
    if count > _EVERY_MIX:
        kept = [undominated(choices, with_p99) for choices in kept]
    compared = prod(map(len, kept))
    if compared > MOST_MIXES:
        text = f"{compared:,} mixes are more than the {MOST_MIXES:,} that are compared; allow fewer with --classes"
        raise BakeoffError(text, "bad-option")
    mixes = _mixes(kept, base, with_p99)
    meets = [mixes.meets(limit) for limit in objective.limits]
    meets_all = np.logical_and.reduce([np.isfinite(mixes.figures[:, goal]), *meets])
    ordered, tied = _ranked(mixes, np.flatnonzero(meets_all), goal)
    budget = Budget(
        objective=objective,
        classes=classes,
        frames=base.frames,
        mixes=count,
        candidates=tuple(map(mixes.forecast, ordered[:MOST_CANDIDATES])),
        tied=min(tied, MOST_CANDIDATES),
        front=tuple(mixes.forecast(place) for place in _front(mixes.figures)[:_MOST_OF_FRONT]),
        between_ms=base.between_ms,
        between_from=base.between_from,
        records=tuple(sorted({name for own in kept for choice in own for name in choice.records})),
    )
    return Solution(
        budget, () if np.logical_and.reduce(meets).any() else tuple(_binding(mixes, objective.limits, meets))
    )


def undominated(choices: Sequence[Choice], drawn: bool) -> list[Choice]:
    """Return the choices that no other surpasses: at most equal in every figure and less in one. With `drawn`, every
    drawn unit is such a figure."""
    rows = np.array([[*choice.figures, *(choice.drawn_ms if drawn else ())] for choice in choices])
    return [
        choice
        for choice, row in zip(choices, rows, strict=True)
        if not ((rows <= row).all(axis=1) & (rows < row).any(axis=1)).any()
    ]


@dataclass(frozen=True, slots=True, eq=False)
class _Mixes:
    """Every mix of the slots' choices."""

    slots: Sequence[Sequence[Choice]]
    base: Base
    places: NDArray[np.intp]
    """For each mix, the place of its choice in each slot."""
    figures: Figures
    """A row for each mix, with a column for each figure; that of `_P99` is 0 if it is not asked for."""

    def meets(self, limit: Limit) -> NDArray[np.bool_]:
        """Return which mixes meet a limit; one whose figure is unknown does not."""
        values, bound = self.figures[:, _COLUMNS[limit.figure]], self.turned(limit, limit.bound)
        return np.isfinite(values) & (values < bound if limit.strict else values <= bound)

    def turned(self, limit: Limit, value: float) -> float:
        """Return a value of the limit's own figure as one of its column, or the other way round."""
        if limit.figure == "fps":
            return self.base.frames * 1000 / value
        return -value if limit.figure == "sqnr" else value

    def p99(self, places: NDArray[np.intp]) -> Figures:
        """Return the 99th percentile of the drawn units of the mixes with these choices, by nearest rank."""
        units = np.sum(
            [[choices[at].drawn_ms for at in own] for choices, own in zip(self.slots, places.T, strict=True)], 0
        )
        found: Figures = np.quantile(units, 0.99, axis=1, method="inverted_cdf") + self.base.between_ms
        return found

    def forecast(self, place: int) -> Forecast:
        ms, low, high, memory, build, noise, joules = map(float, self.figures[place, :_P99])
        return Forecast(
            slots=",".join(choices[at].text for choices, at in zip(self.slots, self.places[place], strict=True)),
            ms=ms,
            low_ms=low,
            high_ms=high,
            p99_ms=float(self.p99(self.places[place : place + 1])[0]),
            memory_bytes=round(memory) if isfinite(memory) else None,
            build_s=build if isfinite(build) else None,
            sqnr_db=-noise if isfinite(noise) else None,
            joules=joules if isfinite(joules) else None,
        )


def _mixes(slots: Sequence[Sequence[Choice]], base: Base, with_p99: bool) -> _Mixes:
    shape = [len(choices) for choices in slots]
    places = np.indices(shape).reshape(len(shape), -1).T
    parts = [
        np.array([choice.figures for choice in choices])[own] for choices, own in zip(slots, places.T, strict=True)
    ]
    figures = np.column_stack([np.sum(parts, 0), np.zeros(len(places))])
    figures[:, _NOISE] = np.max(parts, 0)[:, _NOISE]
    figures[:, _MS : _HIGH + 1] += base.between_ms
    figures[:, _MEMORY] += base.process_bytes
    made = _Mixes(slots, base, places, figures)
    for start in range(0, len(places) if with_p99 else 0, _CHUNK):
        figures[start : start + _CHUNK, _P99] = made.p99(places[start : start + _CHUNK])
    return made


def _ranked(mixes: _Mixes, fitting: NDArray[np.intp], goal: int) -> tuple[list[int], int]:
    """Return the fitting mixes in order, those tied with the best first, and the number of the tied ones."""
    if not len(fitting):
        return [], 0
    own = mixes.figures[fitting]
    values, spread = own[:, goal], own[:, [_LOW, _HIGH]] - own[:, [_MS]]
    low, high = (values[:, None] + (spread if goal in (_MS, _P99) else 0 * spread)).T
    tied = low <= high[np.argmin(values)]
    first = min(np.flatnonzero(tied), key=lambda place: (np.rint(own[place, _BUILD]), values[place], place))
    order = sorted(range(len(fitting)), key=lambda place: (place != first, not tied[place], values[place], place))
    return fitting[order].tolist(), int(tied.sum())


def _front(figures: Figures) -> list[int]:
    """Return the mixes that no other surpasses in time, memory and SQNR together, the fastest first; one of equals."""
    memories: list[float] = []
    noises: list[float] = []
    found = []
    for place in np.lexsort((figures[:, _NOISE], figures[:, _MEMORY], figures[:, _MS])).tolist():
        memory, noise = figures[place, [_MEMORY, _NOISE]].tolist()
        at = bisect_right(memories, memory)  # of the mixes at least as fast, the last one needs the most of this memory
        if at and noises[at - 1] <= noise:
            continue
        end = next((each for each in range(at, len(noises)) if noises[each] < noise), len(noises))
        memories[at:end], noises[at:end] = [memory], [noise]
        found.append(place)
    return found


def _binding(mixes: _Mixes, limits: Sequence[Limit], meets: Sequence[NDArray[np.bool_]]) -> Iterator[Binding]:
    """Yield each limit such that a mix meets all others, with the nearest mix; if there is none, each limit that no mix
    meets even by itself."""
    others = [
        np.logical_and.reduce([np.ones(len(mixes.places), np.bool_), *meets[:at], *meets[at + 1 :]])
        for at in range(len(meets))
    ]
    kept = any(mask.any() for mask in others)
    for limit, mask, own in zip(limits, others, meets, strict=True):
        column = mixes.figures[:, _COLUMNS[limit.figure]]
        able = np.flatnonzero(np.isfinite(column) & (mask if kept else not own.any()))
        if len(able):
            nearest = int(able[np.argmin(column[able])])
            yield Binding(limit, mixes.turned(limit, float(column[nearest])), mixes.forecast(nearest), kept)


Run = Callable[[Budget, Sequence[Forecast]], Sequence[StoredPipeline]]
"""Function that runs mixes of a budget in turns and returns their records, in the order of the mixes."""


def confirm(budget: Budget, run: Run) -> tuple[StoredPipeline, ...]:
    """Run the best two candidates side by side, then the next two while none that ran can be shipped.

    Returns the records of at most three rounds.
    """
    stored: list[StoredPipeline] = []
    for number in range(_MOST_ROUNDS):
        two = budget.candidates[2 * number : 2 * number + 2]
        if not two or shipped(stored) is not None:
            break
        stored += run(replace(budget, round=number + 1), two)
    return tuple(stored)
