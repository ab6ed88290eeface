"""Where the time of units goes: each nanosecond once, and all of it."""

import random
from dataclasses import replace

import pytest
from sessions import MS, session_record

from bakeoff.record.account import Account, account, rates
from bakeoff.record.session import RangeTotal, SessionRecord, violation


def made(record: SessionRecord) -> Account:
    found = account(record)
    assert found is not None
    return found


def by_name(found: Account) -> dict[str, float]:
    """Milliseconds a unit."""
    return {line.name: line.ns / found.units / MS for line in found.lines}


EXPECTED = {"denoise": 50.0, "context": 14.0, "decode": 30.0, "decode / all_reduce": 3.0, "unattributed": 3.0}


def test_steps_count_for_their_phase_and_a_collective_for_itself() -> None:
    found = made(session_record())
    assert by_name(found) == EXPECTED
    assert [line.thousandths for line in found.lines] == [500, 140, 300, 30, 30]
    assert [line.kind for line in found.lines] == ["phase", "phase", "phase", "collective", "unattributed"]


def test_kept_units_and_totals_say_the_same() -> None:
    record = session_record(20)
    totals, kept = made(record), made(replace(record, spans=record.spans[1:]))
    assert (totals.of, totals.units, kept.of, kept.units) == ("steady units", 19, "kept steady units", 19)
    assert by_name(totals) == by_name(kept)
    assert [line.calls for line in totals.lines] == [line.calls for line in kept.lines]


def test_a_compiling_unit_is_no_part_of_it() -> None:
    assert by_name(made(session_record(30, compiling=(1,)))) == EXPECTED


def test_it_is_of_the_units_that_rates_are_of() -> None:
    """However few others there are; units that lie between the first and the last are not kept in full."""
    for record in (session_record(120), session_record(400), session_record(120, compiling=(1,))):
        found, rate = made(record), rates(record)
        assert (found.of, by_name(found)) == ("steady units", EXPECTED)
        assert rate.of == "steady"
        assert rate.bps == pytest.approx(found.units * 1e9 / found.ns)
        assert {line.calls for line in found.lines} == {found.units}


def test_a_phase_of_the_opening_alone_is_no_line() -> None:
    record = session_record(120)
    opening, *others = record.spans
    spans = tuple(replace(span, name="prompt") if span.name == "context" else span for span in opening.spans)
    (context,) = (each for each in record.ranges if each.path[-1:] == ("context",))
    rest = context.total_ns * 119 // 120
    split = (
        replace(context, calls=119, total_ns=rest, own_ns=rest),
        RangeTotal((*context.path[:-1], "prompt"), "phase", 1, 14 * MS, 14 * MS),
    )
    ranges = tuple(one for each in record.ranges for one in (split if each is context else (each,)))
    found = made(replace(record, ranges=ranges, spans=(replace(opening, spans=spans), *others)))
    assert (found.of, by_name(found)) == ("steady units", EXPECTED)


def test_units_that_were_not_kept_cannot_be_subtracted() -> None:
    found = made(session_record(100, compiling=range(30, 50)))
    assert (found.of, found.units, by_name(found)) == ("kept steady units", 22, EXPECTED)


def test_without_a_steady_unit_it_is_of_all() -> None:
    record = session_record(3, compiling=(1, 2))
    assert (made(record).of, made(record).units, rates(record).of) == ("all units", 3, "all")


def test_lines_add_up_whatever_the_nesting() -> None:
    """Trees drawn at random, with ranges that overlap their parent's end."""
    for seed in range(50):
        drawn = random.Random(seed)
        ranges = list(_tree(drawn, ("unit",), "unit", 4))
        record = session_record(0, ranges=tuple(ranges), ns=ranges[0].total_ns)
        found = made(record)
        assert sum(line.ns for line in found.lines) == found.ns == ranges[0].total_ns
        assert sum(line.thousandths for line in found.lines) == 1000


def _tree(drawn: random.Random, path: tuple[str, ...], kind: object, levels: int) -> list[RangeTotal]:
    below: list[RangeTotal] = []
    direct = 0
    for place in range(drawn.randint(0, 3) if levels else 0):
        name = f"{drawn.choice('abc')}{place}"
        inner = _tree(drawn, (*path, name), drawn.choice(("stage", "phase", "step", "collective")), levels - 1)
        direct += inner[0].total_ns
        below += inner
    own = drawn.randint(-20, 1_000) if below else drawn.randint(1, 1_000)
    total = max(1, direct + own)
    return [RangeTotal(path, kind, 3, total, total - direct), *below]  # type: ignore[arg-type]


def test_units_of_several_stages_are_one_account() -> None:
    ranges = [
        RangeTotal((), "session", 1, 300, 20),
        *(RangeTotal((stage,), "stage", 1, 140, 40) for stage in ("warm", "run")),
        *(RangeTotal((stage, "unit"), "unit", 2, 100, 30) for stage in ("warm", "run")),
        *(RangeTotal((stage, "unit", "a"), "phase", 2, 70, 70) for stage in ("warm", "run")),
    ]
    found = made(session_record(0, ranges=tuple(ranges), ns=300))
    assert (found.units, {line.name: line.ns for line in found.lines}) == (4, {"a": 140, "unattributed": 60})


def test_impossible_records_are_told() -> None:
    record = session_record()
    root, *others = record.ranges
    off_by_one = replace(record, ranges=(replace(root, own_ns=root.own_ns + 1), *others))
    assert "add up to" in str(violation(off_by_one))
    wrong = (
        replace(record, ns=-1),
        replace(record, units=(replace(record.units[0], count=0),)),
        replace(record, steps=(replace(record.steps[0], calls=0),)),
        replace(record, spans=(replace(record.spans[0], ns=-5),)),
        replace(record, ranges=(replace(root, calls=-1), *others)),
        replace(record, series=(replace(record.series[0], points=(replace(record.series[0].points[0], count=0),)),)),
    )
    assert all(violation(each) for each in wrong)
