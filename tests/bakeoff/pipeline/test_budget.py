"""The solver of budgets against the comparison of all mixes by definition, and what it says where none fits."""

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import inf

import pytest

from bakeoff.models.errors import BakeoffError
from bakeoff.pipeline.budget import contenders, solve
from bakeoff.record.objective import OF_BUDGET, Objective, parse_objective
from bakeoff.record.pipeline import Budget, Forecast

PROCESS_BYTES, FRAMES = 300, 2


def budget(objective: str | Objective = "mean") -> Budget:
    asked = parse_objective(objective, OF_BUDGET) if isinstance(objective, str) else objective
    return Budget(asked, None, FRAMES, 0, ())


def drawn_instance(seed: int) -> tuple[list[list[Forecast]], Objective]:
    """Two or three slots with up to six choices, of few distinct figures, so that there are ties."""
    draw = random.Random(seed)
    slots = [
        [
            Forecast(
                f"{slot}={name}/fp32",
                draw.randint(2, 9) * 1.0,
                draw.choice((None, 100, 200, 300)),
                draw.choice((None, 20.0, 30.0, 40.0)),
            )
            for name in range(draw.randint(1, 6))
        ]
        for slot in ("wm", "image", "audio")[: draw.randint(2, 3)]
    ]
    limits = {
        "mean": f"mean<={draw.choice((12, 16, 20))}ms",
        "fps": f"fps>={draw.choice((60, 100, 140, 180))}",
        "p99": f"p99<={draw.randint(12, 30)}ms",
        "memory": f"memory{draw.choice(('<', '<='))}{draw.choice((600, 700, 800))}MiB",
        "sqnr": f"sqnr>={draw.choice((20, 30))}",
    }
    asked = parse_objective(",".join(["mean", *draw.sample(list(limits.values()), draw.randint(0, 4))]), OF_BUDGET)
    # memory in bytes of the instance
    in_bytes = (replace(one, number=one.number / (1 << 20)) if one.figure == "memory" else one for one in asked.limits)
    return slots, replace(asked, limits=tuple(in_bytes))


def value_of(figure: str, mix: Sequence[Forecast]) -> float:
    """A figure of a mix by its definition; infinite, or for lower limits minus infinite, if a choice lacks it."""
    match figure:
        case "mean":
            return sum(each.ms for each in mix)
        case "fps":
            return FRAMES * 1000 / value_of("mean", mix)
        case "memory":
            known = [each.memory_bytes for each in mix]
            return inf if None in known else sum(filter(None, known)) + PROCESS_BYTES
        case "sqnr":
            return min(-inf if each.sqnr_db is None else each.sqnr_db for each in mix)
    return 0.0  # a p99, which only a run tells, prevents nothing


@pytest.mark.parametrize("seed", range(200))
def test_it_finds_what_a_comparison_of_all_mixes_finds(seed: int) -> None:
    slots, objective = drawn_instance(seed)
    every = list(product(*slots))
    fitting = [mix for mix in every if all(limit.allows(value_of(limit.figure, mix)) for limit in objective.limits)]
    found, misses = solve(slots, budget(objective), PROCESS_BYTES)
    assert found.mixes == len(every)
    by_name = {",".join(each.slots for each in mix): mix for mix in every}
    for each in (*found.candidates, *misses):
        mix = by_name[each.slots]
        assert each.ms == value_of("mean", mix)
        assert (inf if each.memory_bytes is None else each.memory_bytes) == value_of("memory", mix)
        assert (-inf if each.sqnr_db is None else each.sqnr_db) == value_of("sqnr", mix)
    wanted = fitting or every
    shown = found.candidates if fitting else misses
    assert [each.ms for each in shown] == sorted(value_of("mean", mix) for mix in wanted)[:8]
    assert {each.slots for each in shown} <= {",".join(each.slots for each in mix) for mix in wanted}
    assert bool(found.candidates) == bool(fitting)
    assert not (found.candidates and misses)


def test_a_mix_whose_interval_contains_a_limit_is_a_candidate() -> None:
    slots = [[Forecast(f"wm={ms}", ms, None, None) for ms in (10.0, 11.0, 13.0)]]
    assert [each.ms for each in solve(slots, budget("mean<=10.5ms"), spread=0.1)[0].candidates] == [10.0, 11.0]
    assert [each.ms for each in solve(slots, budget("mean<=10.5ms"))[0].candidates] == [10.0]


def test_what_records_do_not_tell_from_the_fastest_is_timed_again() -> None:
    def timed_again(*times: float, spread: float = 0.1) -> list[float]:
        slots = [[Forecast(f"wm={ms}", ms, None, None) for ms in times]]
        return [each.ms for each in contenders(solve(slots, budget(), spread=spread)[0])]

    assert timed_again(10.0, 11.0, 12.0, 13.0) == [10.0, 11.0, 12.0]
    assert timed_again(10.0, 15.0, 16.0) == [10.0, 15.0], "two run, whatever their promises"
    assert timed_again(10.0, 10.1, 10.2, 10.3, 10.4) == [10.0, 10.1, 10.2, 10.3]
    assert timed_again(10.0) == [10.0]


def test_too_many_mixes_are_refused_in_one_sentence() -> None:
    slots = [[Forecast(f"{slot}={n}", 1.0, None, None) for n in range(60)] for slot in ("wm", "image", "audio")]
    with pytest.raises(BakeoffError, match=r"216,000 mixes are more than the 200,000 .* --classes"):
        solve(slots, budget())
