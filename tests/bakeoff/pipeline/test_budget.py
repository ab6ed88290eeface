"""The solver of budgets against the comparison of all mixes, and what it says where none fits."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import inf, isclose

import numpy as np
import pytest

from bakeoff.models.errors import BakeoffError
from bakeoff.pipeline.budget import Base, Choice, solve, undominated
from bakeoff.record.objective import OF_BUDGET, Limit, Objective, parse_objective
from bakeoff.record.pipeline import Forecast

BASE = Base(frames=2, between_ms=3.0, process_bytes=300)


def choice(slot: str, name: object, ms: float, **figures: object) -> Choice:
    made = Choice(f"{slot}={name}/fp32", ms, ms * 0.99, ms * 1.02, np.full(8, ms), 100, 10.0, 30.0, 1.0)
    return replace(made, **figures)  # type: ignore[arg-type]


def drawn_instance(seed: int) -> tuple[dict[str, list[Choice]], Objective]:
    """Two or three slots with up to six choices, of few distinct figures, so that there are ties and dominated ones."""
    draw = random.Random(seed)
    uniform = [draw.random() for _ in range(40)]
    slots = {}
    for slot in ("wm", "image", "audio")[: draw.randint(2, 3)]:
        slots[slot] = [
            choice(
                slot,
                name,
                ms := draw.randint(2, 9) * 1.0,
                drawn_ms=np.array([ms * (0.9 + draw.choice((0.2, 0.5)) * each) for each in uniform]),
                memory_bytes=draw.choice((None, 100, 200, 300)),
                build_s=draw.choice((None, 5.0, 10.0)),
                sqnr_db=draw.choice((None, 20.0, 30.0, 40.0)),
                joules=draw.choice((None, 1.0, 2.0)),
            )
            for name in range(draw.randint(1, 6))
        ]
    limits = {
        "fps": f"fps>={draw.choice((60, 100, 140, 180))}",
        "p99": f"p99<={draw.randint(12, 30)}ms",
        "memory": f"memory{draw.choice(('<', '<='))}{draw.choice((600, 700, 800))}MiB",
        "sqnr": f"sqnr>={draw.choice((20, 30))}",
        "build": f"build<={draw.choice((15, 20, 30))}s",
    }
    text = [draw.choice(("mean", "p99", "memory", "energy")), *draw.sample(list(limits.values()), draw.randint(0, 4))]
    made = parse_objective(",".join(text), OF_BUDGET)
    # memory in bytes of the instance
    mib = [
        replace(limit, number=limit.number / (1 << 20)) if limit.figure == "memory" else limit for limit in made.limits
    ]
    return slots, replace(made, limits=tuple(mib))


def surpassed(one: Choice, others: Sequence[Choice], drawn: bool) -> bool:
    def costs(each: Choice) -> list[float]:
        unknown = [inf if value is None else value for value in (each.memory_bytes, each.build_s, each.joules)]
        noise = inf if each.sqnr_db is None else -each.sqnr_db
        return [each.ms, each.low_ms, each.high_ms, *unknown, noise, *(each.drawn_ms if drawn else ())]

    return any(
        all(a <= b for a, b in zip(costs(other), costs(one), strict=True)) and costs(other) != costs(one)
        for other in others
    )


def value_of(figure: str, mix: Sequence[Choice]) -> float:
    """A figure of a mix by its definition; infinite, or for lower limits minus infinite, if a choice lacks it."""
    match figure:
        case "mean":
            return sum(each.ms for each in mix) + BASE.between_ms
        case "fps":
            return BASE.frames * 1000 / value_of("mean", mix)
        case "p99":
            units = sorted(sum(times) for times in zip(*(each.drawn_ms for each in mix), strict=True))
            return units[-(-99 * len(units) // 100) - 1] + BASE.between_ms
        case "memory":
            found = [each.memory_bytes for each in mix]
            return inf if None in found else sum(filter(None, found)) + BASE.process_bytes
        case "sqnr":
            return min(-inf if each.sqnr_db is None else each.sqnr_db for each in mix)
        case "build":
            return sum(inf if each.build_s is None else each.build_s for each in mix)
    return sum(inf if each.joules is None else each.joules for each in mix)


def name_of(mix: Sequence[Choice]) -> str:
    return ",".join(each.text for each in mix)


@pytest.mark.parametrize("seed", range(200))
def test_it_finds_what_a_comparison_of_all_mixes_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For odd seeds, dominated choices are dropped as where there are very many mixes."""
    monkeypatch.setattr("bakeoff.pipeline.budget._EVERY_MIX", 0 if seed % 2 else 100_000)
    slots, objective = drawn_instance(seed)
    every = list(product(*slots.values()))
    fitting = [
        mix
        for mix in every
        if value_of(objective.goal, mix) < inf
        and all(limit.allows(value_of(limit.figure, mix)) for limit in objective.limits)
    ]
    found = solve(slots, objective, BASE)
    candidates = found.budget.candidates
    assert bool(candidates) == bool(fitting)
    if fitting:
        assert not found.binding
        best = min(value_of(objective.goal, mix) for mix in fitting)
        spread = objective.goal in ("mean", "p99")

        def end(mix: Sequence[Choice], name: str) -> float:
            over = sum(getattr(each, name) - each.ms for each in mix) if spread else 0.0
            return value_of(objective.goal, mix) + over

        drawn = objective.goal == "p99" or any(limit.figure == "p99" for limit in objective.limits)
        kept = [
            mix
            for mix in fitting
            if seed % 2 == 0
            or not any(surpassed(each, slots[slot], drawn) for slot, each in zip(slots, mix, strict=True))
        ]
        assert min(value_of(objective.goal, mix) for mix in kept) == best
        first = next(mix for mix in kept if value_of(objective.goal, mix) == best)
        tied = {name_of(mix) for mix in kept if end(mix, "low_ms") <= end(first, "high_ms") + 1e-9}
        assert {each.slots for each in candidates[: found.budget.tied]} <= tied
        assert found.budget.tied == min(len(tied), 20)
        by_name = {name_of(mix): mix for mix in kept}
        least = min(value_of("build", by_name[name]) for name in tied)
        assert value_of("build", by_name[candidates[0].slots]) == least
        for each in candidates:
            assert isclose(each.ms, value_of("mean", by_name[each.slots]))
            assert isclose(each.p99_ms, value_of("p99", by_name[each.slots]))
    _check_binding(found.binding, every, objective, bool(fitting))
    _check_front(found.budget.front, every)


def _check_binding(
    binding: Sequence[object], every: Sequence[Sequence[Choice]], objective: Objective, fits: bool
) -> None:
    met = {limit: [mix for mix in every if limit.allows(value_of(limit.figure, mix))] for limit in objective.limits}
    expected: dict[Limit, tuple[float, bool]] = {}
    if not fits and not [mix for mix in every if all(mix in own for own in met.values())]:
        for kept in (True, False):
            for limit in objective.limits:
                others = [own for other, own in met.items() if other != limit]
                able = [mix for mix in every if all(mix in own for own in others)] if kept else every
                able = able if kept or not met[limit] else []
                values = [value for mix in able if abs(value := value_of(limit.figure, mix)) < inf]
                if values:
                    expected[limit] = (max(values) if limit.sign == ">" else min(values), kept)
            if any(
                kept and [m for m in every if all(m in own for o, own in met.items() if o != limit)] for limit in met
            ):
                break
    assert {each.limit: (pytest.approx(each.value), each.others_kept) for each in binding} == expected  # type: ignore[attr-defined]


def _check_front(front: Sequence[Forecast], every: Sequence[Sequence[Choice]]) -> None:
    def cost(mix: Sequence[Choice]) -> tuple[float, float, float]:
        return value_of("mean", mix), value_of("memory", mix), -value_of("sqnr", mix)

    costs = {cost(mix) for mix in every}
    expected = {
        one
        for one in costs
        if not any(one != other and all(a <= b for a, b in zip(other, one, strict=True)) for other in costs)
    }
    found = [
        (
            each.ms,
            inf if each.memory_bytes is None else each.memory_bytes,
            inf if each.sqnr_db is None else -each.sqnr_db,
        )
        for each in front
    ]
    assert found == sorted(found)
    assert len(found) == len(expected)
    assert np.allclose(found, sorted(expected))


def test_a_choice_that_is_better_in_one_figure_is_kept() -> None:
    plain = choice("wm", "a", 5.0)
    for better in (
        {"memory_bytes": 50},
        {"build_s": 5.0},
        {"sqnr_db": 31.0},
        {"joules": 0.5},
        {"drawn_ms": np.full(8, 4.0)},
    ):
        other = replace(choice("wm", "b", 6.0), **better)
        assert undominated([plain, other], drawn=True) == [plain, other]
    assert undominated([plain, choice("wm", "b", 6.0)], drawn=True) == [plain]
    assert undominated([plain, choice("wm", "b", 6.0, drawn_ms=np.full(8, 4.0))], drawn=False) == [plain]
    assert len(undominated([plain, choice("wm", "b", 5.0)], drawn=True)) == 2  # equals


def test_the_fewest_build_seconds_decide_where_no_difference_is_predicted() -> None:
    slots = {
        "wm": [
            choice("wm", "fast", 100.0, build_s=60.0),
            choice("wm", "near", 102.0),
            choice("wm", "far", 110.0, build_s=1.0),
        ]
    }
    found = solve(slots, parse_objective("mean", OF_BUDGET)).budget
    assert [each.slots for each in found.candidates] == ["wm=near/fp32", "wm=fast/fp32", "wm=far/fp32"]
    assert found.tied == 2
    slots = {"wm": [choice("wm", "fast", 100.0, build_s=0.4), choice("wm", "near", 101.0, build_s=0.3)]}
    found = solve(slots, parse_objective("mean", OF_BUDGET)).budget
    assert [each.slots for each in found.candidates] == ["wm=fast/fp32", "wm=near/fp32"], "no second apart"


def test_too_many_mixes_are_refused_in_one_sentence() -> None:
    slots = {
        slot: [choice(slot, n, 100.0 - n, build_s=float(n), drawn_ms=np.full(8, 100.0 - n)) for n in range(101)]
        for slot in ("wm", "image", "audio")
    }
    with pytest.raises(BakeoffError, match=r"1,030,301 mixes are more than the 1,000,000 .* --classes"):
        solve(slots, parse_objective("mean", OF_BUDGET))
