"""Frames and blocks a second of a record."""

from bakeoff.record.account import Rates, rates
from bakeoff.record.session import SESSION_SCHEMA, RangeTotal, SessionRecord, UnitKind, UnitTotals


def record(*units: UnitTotals) -> SessionRecord:
    return SessionRecord(
        schema=SESSION_SCHEMA,
        name="t2v",
        status="ok",
        started_at="2026-01-01T00:00:00+00:00",
        started_wall_ns=1,
        ns=10**10,
        tags={},
        settings={},
        environment={},
        ranges=(RangeTotal((), "session", 1, 10**10, 10**10),),
        units=units,
    )


def totals(kind: UnitKind, count: int, frames: int, wall_ns: int) -> UnitTotals:
    return UnitTotals(kind, count, frames, 0, wall_ns, 1, wall_ns)


def test_rates_are_of_steady_units() -> None:
    assert rates(record(totals("opening", 1, 9, 10**9), totals("steady", 10, 30, 2 * 10**9))) == Rates(
        15.0, 5.0, "steady"
    )


def test_without_steady_units_rates_are_of_all_and_say_so() -> None:
    found = rates(record(totals("opening", 1, 9, 10**9), totals("compiling", 1, 12, 2 * 10**9)))
    assert found == Rates(7.0, 2 / 3, "all")


def test_frames_that_were_not_told_are_not_zero_a_second() -> None:
    assert rates(record(totals("steady", 4, 0, 2 * 10**9))) == Rates(None, 2.0, "steady")
