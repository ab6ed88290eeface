"""What recording costs, by its own account and by the clock, and what happens when it costs too much."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recording import MS, Clock, codes, make_profiler, opened, own_times, range_at, record_of

from bakeoff.profile import NO_SESSION, Profiler, current, phase
from bakeoff.profile.cost import range_cost
from bakeoff.profile.ranges import Range
from bakeoff.profile.recording import Recording


def slow_down(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let every range take this much longer to open."""
    enter = Range.__enter__

    def slow(self: Range) -> Range:
        time.sleep(seconds)
        return enter(self)

    monkeypatch.setattr(Range, "__enter__", slow)


def test_ranges_that_cost_a_millisecond_are_found_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_down(monkeypatch, 0.001)
    with opened(make_profiler(tmp_path)) as session:
        for _ in range(100):
            with session.unit(frames=3), session.phase("denoise"):
                for index in range(4):
                    with session.step(index):
                        time.sleep(0.0005)
    record = record_of(session)
    assert record.cost is not None
    assert record.cost.range_ns > MS
    assert record.cost.ns == record.cost.range_ns * record.cost.ranges > record.ns * 0.01
    assert record.cost.dropped == ("step", "phase")
    assert codes(record) == ["left-out"]
    assert "ranges of kind step are left out" in record.findings[0].text
    assert "ranges of kind phase are left out" in record.findings[1].text
    assert record.units[0].count == 100  # units are never left out
    assert 0 < range_at(record, "unit", "denoise", "step").calls < 400
    assert sum(own_times(record).values()) == record.ns


def recorded(ranges: int, elapsed_ns: int) -> Recording:
    """A recording that took this long and had so many ranges."""
    clock = Clock()
    made = Recording(clock)
    made.range_ns, made.overhead_limit = MS, 0.01
    made.begin()
    made.count = ranges
    clock.ns += elapsed_ns
    return made


@pytest.mark.parametrize(
    ("ranges", "elapsed_ms", "dropped"),
    [
        (100, 10_000, None),  # 1 %, which is the limit
        (101, 10_000, "step"),
        (9, 10, None),  # 90 %, but less than 10 ms
        (1_000, 1_000_000, None),
    ],
)
def test_the_limit_is_a_share_of_the_session(ranges: int, elapsed_ms: int, dropped: str | None) -> None:
    recording = recorded(ranges, elapsed_ms * MS)
    recording.check_cost()
    assert recording.dropped == ([] if dropped is None else [dropped])
    assert recording.has_steps == (dropped is None)
    assert recording.has_phases


@pytest.fixture
def unlimited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profiler:
    """One that leaves out nothing: ranges with nothing in them are above any limit."""
    made = make_profiler(tmp_path)
    monkeypatch.setattr(made, "range_ns", lambda: 1.0)
    return made


def test_a_range_costs_what_it_is_said_to_cost(unlimited: Profiler) -> None:
    told = range_cost()
    with opened(unlimited) as session:
        started = time.perf_counter_ns()
        for _ in range(500):
            with session.unit(1), session.phase("a"):
                for index in range(6):
                    with session.step(index):
                        pass
        seen = (time.perf_counter_ns() - started) / 4_000
    assert 0.2 < told / seen < 5


class Empty:
    """The least that Python can do for `with`: a method that makes the context, and both of its own."""

    def phase(self, _name: str) -> "Empty":
        return self

    def __enter__(self) -> "Empty":
        return self

    def __exit__(self, *_: object) -> None:
        return None


def nothing() -> None:
    return None


def in_empty_contexts(work: Callable[[], Any], calls: int = 500, rounds: int = 100) -> float:
    """Cost of a call in empty contexts, each beyond a call of `nothing`. All three are timed in turn; the least time is
    taken of each, because what else the machine does only adds to it."""
    empty = Empty()

    def context() -> None:
        with empty.phase("denoise"):
            pass

    least = [float("inf")] * 3
    for _ in range(rounds):
        for index, each in enumerate((nothing, context, work)):
            started = time.perf_counter_ns()
            for _ in range(calls):
                each()
            least[index] = min(least[index], (time.perf_counter_ns() - started) / calls)
    return (least[2] - least[0]) / (least[1] - least[0])


@pytest.mark.alone
def test_off_a_range_costs_about_an_empty_context() -> None:
    def off() -> None:
        with NO_SESSION.phase("denoise"):
            pass

    def found() -> None:
        current()

    assert in_empty_contexts(off) < 2
    assert in_empty_contexts(found) < 2


@pytest.mark.alone
def test_off_a_decorated_function_costs_about_an_empty_context_more() -> None:
    assert in_empty_contexts(phase("a")(nothing)) < 2


@pytest.mark.alone
def test_on_a_range_costs_a_few_microseconds(unlimited: Profiler) -> None:
    """20 empty contexts; each takes 0.1 to 0.2 us."""
    with opened(unlimited) as session, session.unit():

        def on() -> None:
            with session.phase("denoise"):
                pass

        cost = in_empty_contexts(on)
    assert session.dropped == []
    assert cost < 20
