"""Which units are steady, what was compiled in them, and the account of their time."""

from dataclasses import replace
from itertools import accumulate, count
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="workers need it")

from mixes import loop_of

from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.process.phases import UnitStamp
from bakeoff.record.codec import encode_json
from bakeoff.record.pipeline import Sustained
from bakeoff.record.session import UnitKind
from bakeoff.worker.pipeline.account import Segment, UnitSample
from bakeoff.worker.pipeline.units import Pace, TimedUnits, UnitLog, check_account

NAMELESS, GLUE = Segment("unattributed", "unattributed"), Segment("glue", "glue")
DENOISE, CONTEXT = Segment("denoise", "phase", "wm", "denoise"), Segment("denoise", "phase", "wm", "context")


def loop(**changes: object) -> Loop:
    return replace(loop_of("toy_loops:Toy"), **changes)  # type: ignore[arg-type]


def sample(unit: int, wall_ns: int = 1000, session: int = 0) -> UnitSample:
    segments = {NAMELESS: wall_ns - 610, GLUE: 10, DENOISE: 500, CONTEXT: 100}
    calls = {("wm", "denoise"): 2, ("wm", "context"): 1}
    return UnitSample(session, unit, 1, wall_ns, 5000 + unit * 2000, segments, calls, 64)


class Compiler:
    """Counters of two programs that share some, as those of torch.compile."""

    def __init__(self) -> None:
        self.own = {"wm.denoise": 1, "wm.context": 1}
        self.shared = 0

    def __call__(self) -> list[dict[str, int]]:
        return [dict(self.own), dict.fromkeys(self.own, self.shared)]


def test_units_are_steady_once_windows_are_full_and_times_agree() -> None:
    log = UnitLog(loop(opening=(loop().steady,), filling=3), Compiler(), 0.05)
    walls = [9000, 9000, 9000, 2000, 1500, 1200, *[1000] * 6]
    kinds = [log.add(sample(unit, wall)) for unit, wall in enumerate(walls)]
    assert kinds == ["opening", *["filling"] * 10, "steady"], "until the medians of two windows of three agree"
    assert log.settled


def test_units_that_never_agree_are_steady_after_a_while_and_it_is_said() -> None:
    log = UnitLog(loop(filling=2), Compiler(), 0.05)
    kinds = [log.add(sample(unit, 1000 * 2**unit)) for unit in range(30)]
    assert kinds.index("steady") == 2 + 20
    assert not log.settled


def test_units_after_a_pause_do_not_count_and_may_not_compile() -> None:
    compiler, samples = Compiler(), map(sample, count())
    log = UnitLog(loop(filling=0), compiler, 0.05)
    runner: Any = SimpleNamespace(at_end=False, outputs={}, unit=lambda: next(samples))
    unused: Any = None
    timed = TimedUnits(runner, log, unused, "cpu", unused)
    blocks = [timed.turn(3, 2) for _ in range(8)]
    assert [(len(one.samples_ns), one.resumed, one.kind) for one in blocks] == [
        *[(1, 0, "filling")] * 6,
        *[(5, 2, "steady")] * 2,
    ]
    assert log.kinds[6:11] == ["resuming", "resuming", "steady", "steady", "steady"]
    assert len(log.steady) == 6
    compiler.own["wm.denoise"] += 1
    timed.turn(1, 1)
    assert log.kinds[int(next(iter(log.moved)))] == "resuming"
    assert log.recompiled == ("wm.denoise",)


def test_a_session_that_is_opened_anew_fills_again_and_need_not_settle_again() -> None:
    log = UnitLog(loop(filling=2), Compiler(), 0.05)
    first = [log.add(sample(unit)) for unit in range(10)]
    second = [log.add(sample(unit, session=1)) for unit in range(4)]
    assert first[-1] == "steady"
    assert second == ["filling", "filling", "steady", "steady"]


def test_compiling_delays_steady_units_and_the_program_is_named() -> None:
    compiler = Compiler()
    log = UnitLog(loop(filling=0), compiler, 0.05)
    for unit in range(5):
        log.add(sample(unit))
    compiler.own["wm.context"] += 1
    compiler.shared += 1
    kinds = [log.add(sample(unit)) for unit in range(5, 14)]
    assert log.moved == {"5": ("wm.context",)}, "the other one only shares a counter"
    assert kinds == [*["filling"] * 7, "steady", "steady"]
    assert log.recompiled == ()
    compiler.shared += 1
    assert log.add(sample(14)) == "steady"
    assert log.recompiled == ("wm.denoise", "wm.context"), "nothing tells them apart"


def test_the_account_has_one_line_for_a_phase_and_one_time_for_a_program() -> None:
    log = UnitLog(loop(filling=0), Compiler(), 0.05)
    log.add(sample(0))
    log.add(sample(1, 1500))
    units = log.units()
    assert units is not None
    assert [(line.name, line.kind, line.slot, line.ns) for line in units.lines] == [
        ("denoise", "phase", "wm", (600, 600)),
        ("glue", "glue", "", (10, 10)),
        ("unattributed", "unattributed", "", (390, 890)),
    ]
    assert [(one.program, one.calls, one.ns) for one in units.programs] == [
        ("denoise", (2, 2), (500, 500)),
        ("context", (1, 1), (100, 100)),
    ]
    assert units.started_ns == (0, 2000)
    assert units.copied_bytes == (64, 64)
    assert log.unattributed_share() == 0.0, "none is steady"


def test_an_account_that_does_not_add_up_is_an_error_of_the_lab() -> None:
    check_account(sample(0))
    with pytest.raises(RuntimeError, match="1001 ns, but its parts are 1000 ns"):
        check_account(replace(sample(0), wall_ns=1001))


def test_a_sustained_run_has_one_account_for_units_of_a_kind_within_a_minute_however_many_they_are() -> None:
    log = UnitLog(loop(filling=2), Compiler(), 0.05, span_ns=60_000)
    for unit in range(100_000):
        log.add(sample(unit, 1000 + unit % 3))
    units = log.units()
    assert units is not None
    first = units.kinds.index("steady")
    assert units.spans[:2] == (first, 30), "a unit begins every 2 us, and a span ends after 60"
    assert sum(units.spans) == len(units.wall_ns) == 100_000
    ends = list(accumulate(units.spans))
    walls = [sum(units.wall_ns[end - count : end]) for end, count in zip(ends, units.spans, strict=True)]
    assert [sum(each) for each in zip(*(line.ns for line in units.lines), strict=True)] == walls
    assert sum(units.copied_bytes) == 64 * 100_000
    assert {sum(one.calls) for one in units.programs} == {100_000, 200_000}
    assert log.typical_ns() == 1001


def test_a_unit_that_compiles_has_an_account_of_its_own_in_a_sustained_run() -> None:
    compiler = Compiler()
    log = UnitLog(loop(filling=0), compiler, 0.05, span_ns=10**9)
    for unit in range(20):
        compiler.shared += unit == 15
        log.add(sample(unit))
    units = log.units()
    assert units is not None
    assert units.moved.keys() == {"15"}
    assert units.spans[-3:] == (units.kinds[:15].count("steady"), 1, 4)


def test_the_record_of_100_000_units_is_small() -> None:
    log = UnitLog(loop(filling=2), Compiler(), 0.05, span_ns=60 * 10**9)
    for unit in range(100_000):
        log.add(replace(sample(unit, 6_000_000 + unit), started_ns=10**15 + unit * 6_100_000))
    assert len(encode_json(log.units())) < 4_000_000


def stamp(started_ns: int, wall_ns: int, kind: UnitKind = "steady", frames: int = 1) -> UnitStamp:
    return UnitStamp(started_ns, wall_ns, frames, kind, 0, 0)


def test_a_saturating_run_never_waits() -> None:
    pace = Pace(Sustained(25.0, False, 1))
    assert [pace.begin_ns(stamp(at, 10)) for at in (5, 15, 25)] == [0, 0, 0]


def test_a_paced_run_begins_a_unit_once_the_one_that_fills_the_buffer_before_it_is_shown() -> None:
    for buffer in (1, 2, 3):
        pace, shown = Pace(Sustained(25.0, True, buffer)), 1000 + buffer * 10_000_000
        assert pace.begin_ns(stamp(0, 1, "filling")) == 0, "warm-up"
        begins = [pace.begin_ns(stamp(1000 + place * 10_000_000, 10_000_000)) for place in range(buffer)]
        assert begins == [*[0] * (buffer - 1), shown], "at once until the buffer is full, then when unit 0 is shown"
        assert pace.begin_ns(stamp(shown, 1)) == shown + 40_000_000, "when unit 1 is shown"
        assert pace.begin_ns(stamp(shown, 1)) == shown + 80_000_000


def test_a_paced_run_counts_frames_and_goes_on_through_a_session_that_is_opened_anew() -> None:
    pace = Pace(Sustained(25.0, True, 1))
    assert pace.begin_ns(stamp(0, 7, frames=3)) == 7
    assert pace.begin_ns(stamp(7, 1, "opening", frames=2)) == 7 + 3 * 40_000_000
    assert pace.begin_ns(stamp(7, 1, "filling")) == 7 + 5 * 40_000_000
