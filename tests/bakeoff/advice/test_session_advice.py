"""Each rule for sessions fires on its numbers and on nothing else."""

import re
from collections.abc import Callable
from dataclasses import replace
from math import exp, sin
from typing import Any

import pytest
from sessions import GPU, MS, NAMELESS, UNIT, monitored, session_record

from bakeoff.advice.evidence import Advice
from bakeoff.advice.session import advise_session
from bakeoff.record.monitor import MonitorCost, Point, SeriesRecord, ThrottleTime
from bakeoff.record.session import RecordingCost, SessionRecord

CALM = session_record()
NS = CALM.ns


def with_monitor(**changes: Any) -> SessionRecord:
    return replace(CALM, monitored=monitored(NS, **changes))


def cost(wall_ns: int) -> MonitorCost:
    return MonitorCost(wall_ns, wall_ns // 1000, 90, {"gpu": 0.5}, {"gpu": 0.5}, {"gpu": 300_000})


def memory(peak: float) -> SessionRecord:
    used = SeriesRecord("gpu.memory", "MiB", GPU, (Point(0, peak / 2, peak / 2, peak, 5),))
    return with_monitor(series=(used,))


def units_of(time_ns: Callable[[int], float]) -> SessionRecord:
    points = tuple(Point(place * UNIT, *(3 * [time_ns(place)]), 1) for place in range(60))
    return replace(CALM, series=(SeriesRecord("unit", "ns", "process", points),))


def without_context(record: SessionRecord) -> SessionRecord:
    """As if nobody had named the phase."""
    return context_of(0, record)


def context_of(ns: int, record: SessionRecord = CALM) -> SessionRecord:
    """With a phase of this length, so that the rest of its time has no name; without it for 0."""
    spans = [
        replace(
            unit,
            spans=tuple(
                replace(s, ns=ns) if s.name == "context" else s for s in unit.spans if ns or s.name != "context"
            ),
        )
        for unit in record.spans
    ]
    (context,) = (each for each in record.ranges if each.path[-1:] == ("context",))
    short = replace(context, total_ns=context.calls * ns, own_ns=context.calls * ns)
    ranges = [
        short
        if each is context
        else replace(each, own_ns=each.own_ns + context.own_ns - short.own_ns)
        if each.path == context.path[:-1]
        else each
        for each in record.ranges
        if ns or each is not context
    ]
    return replace(record, spans=tuple(spans), ranges=tuple(ranges))


def crowded(load: float, wall_ns: int = 60_000 * MS) -> SessionRecord:
    """With this load average on 2 cores."""
    series = tuple(
        SeriesRecord(name, unit, "machine", (Point(0, value, value, value, 5),))
        for name, unit, value in (("cpu.load", "", load), ("cpu.process", "%", 33.0))
    )
    record = with_monitor(series=series, cost=cost(wall_ns))
    return replace(record, environment={"cores": "2"})


def using(mib_of: Callable[[float], float], name: str = "cpu.process_memory", points: int = 30) -> SessionRecord:
    """120 units, one of them opening, whose memory is `mib_of` the share of the time that has passed."""
    record = session_record(120)
    values = [(place / (points - 1), mib_of(place / (points - 1))) for place in range(points)]
    used = tuple(Point(round(part * record.ns), value, value, value, 1) for part, value in values)
    source = GPU if name == "gpu.memory" else "process"
    return replace(record, monitored=monitored(record.ns, series=(SeriesRecord(name, "MiB", source, used),)))


FIRES = {
    "memory-grows": (using(lambda part: 253.6 + 131.3 * part), None),
    "glue": (without_context(CALM), 17.0),
    "compiling": (session_record(compiling=(1, 12)), None),
    "trend": (units_of(lambda place: UNIT + place * 0.5 * MS + place % 3), None),
    "vram": (memory(0.95 * 81_920), None),
    "throttled": (with_monitor(throttled=(ThrottleTime(GPU, "hardware thermal slowdown", 0.3),)), None),
    "power-cap": (with_monitor(throttled=(ThrottleTime(GPU, "power cap", 0.02),)), None),
    "too-slow": (replace(CALM, tags={"target_fps": 130}), None),
    "contention": (crowded(12.0), None),
}
RESTS = {
    "memory-grows": using(lambda part: 253.6 + 28 * part),
    "glue": context_of(8 * MS),
    "compiling": session_record(compiling=(0,)),
    "trend": units_of(lambda place: UNIT + (place * 7919 % 13) * MS),
    "vram": memory(0.89 * 81_920),
    "throttled": with_monitor(throttled=(ThrottleTime(GPU, "hardware thermal slowdown", 0.01),)),
    "power-cap": with_monitor(throttled=(ThrottleTime(GPU, "power cap", 0.009),)),
    "too-slow": replace(CALM, tags={"target_fps": 100}),
    "contention": crowded(2.5),
}


def only(record: SessionRecord) -> Advice:
    (found,) = advise_session(record)
    return found


def test_a_calm_session_has_no_advice() -> None:
    assert advise_session(CALM) == ()
    assert advise_session(session_record(0)) == ()


@pytest.mark.parametrize("code", FIRES)
def test_a_rule_fires_on_its_numbers(code: str) -> None:
    record, gain = FIRES[code]
    found = only(record)
    assert found.code == code
    assert found.gain_ms == (None if gain is None else pytest.approx(gain))
    assert any(map(str.isdigit, found.evidence)), "nothing fires without a number"
    assert found.says


@pytest.mark.parametrize("code", RESTS)
def test_a_rule_rests_short_of_them(code: str) -> None:
    assert code not in [one.code for one in advise_session(RESTS[code])]


def test_a_load_says_nothing_of_a_short_session() -> None:
    assert advise_session(crowded(12.0, wall_ns=10_000 * MS)) == ()
    assert only(crowded(12.0)).evidence == "a load of 12.0 on the machine's 2 cores; this process had 0.33 of a core"


def test_a_load_is_held_against_the_cores_of_the_machine_and_not_those_that_the_process_may_use() -> None:
    """A load of 49.9 on 1 core was that of the machine beside a taskset of the process."""
    held = {"cores": "1", "cores_of_machine": "8"}
    assert advise_session(replace(crowded(9.0), environment=held)) == ()
    found = only(replace(crowded(49.9), environment=held))
    assert found.evidence == (
        "a load of 49.9 on the machine's 8 cores; this process had 0.33 of a core and may use 1 of them"
    )


class TestGlue:
    def test_it_can_gain_no_more_than_what_has_no_name(self) -> None:
        found = only(without_context(CALM))
        assert found.gain_ms == pytest.approx((NAMELESS + 14 * MS) / MS)
        assert found.strength == "notice"

    def test_a_session_that_names_no_phase_is_not_told(self) -> None:
        spans = tuple(replace(unit, spans=()) for unit in CALM.spans)
        ranges = [each for each in CALM.ranges if len(each.path) < 3]
        ranges = [replace(each, own_ns=each.total_ns) if each.kind == "unit" else each for each in ranges]
        assert advise_session(replace(CALM, spans=spans, ranges=tuple(ranges))) == ()

    def test_phases_that_were_left_out_are_not_missed(self) -> None:
        record = replace(without_context(CALM), cost=RecordingCost(800.0, 10, ("step", "phase")))
        assert advise_session(record) == ()


class TestCompiling:
    def test_units_that_were_not_kept_count(self) -> None:
        found = only(session_record(100, compiling=range(30, 50)))
        assert found.evidence.startswith("20 of 100 units")


class TestTrend:
    def test_slow_first_units_are_none(self) -> None:
        """Those that were compiling are left out."""
        record = session_record(60, compiling=(0, 1, 2))
        assert "trend" not in [one.code for one in advise_session(record)]

    def test_units_that_become_faster_are_still_settling(self) -> None:
        assert "settling" in only(units_of(lambda place: UNIT - place * MS + place % 3)).says

    def test_other_advice_is_named_as_the_cause(self) -> None:
        load = crowded(12.0)
        slower = replace(FIRES["trend"][0], monitored=load.monitored, environment=load.environment)
        (trend,) = [one for one in advise_session(slower) if one.code == "trend"]
        assert trend.evidence.endswith("a load of 12.0 on the machine's 2 cores; this process had 0.33 of a core")
        assert "mend that first" in trend.says
        assert "growing memory" in only(FIRES["trend"][0]).says


class TestMemory:
    @pytest.mark.parametrize("total", ["", "nan", "inf", "-1", "0", "much"])
    def test_without_the_devices_memory_nothing_is_said(self, total: str) -> None:
        record = replace(memory(90_000.0), environment={"gpu_memory_mib": total})
        assert advise_session(record) == ()
        assert advise_session(replace(record, environment={})) == ()


class TestGrowing:
    def test_it_says_how_much_a_unit_and_where_to_look(self) -> None:
        found = only(FIRES["memory-grows"][0])
        rate = re.match(
            r"cpu\.process_memory grew by (1\.\d\d) MiB a unit, 1\d\d MiB over 119 steady units", found.evidence
        )
        assert rate is not None
        assert float(rate[1]) == pytest.approx(131.3 / 120, abs=0.06)
        assert "tracemalloc" in found.says
        on_gpu = only(using(lambda part: 40_000 + 4_000 * part, "gpu.memory"))
        assert on_gpu.evidence.endswith(f"({GPU})")
        assert "memory_snapshot" in on_gpu.says

    @pytest.mark.parametrize(
        "mib_of",
        [
            lambda part: 250 + 4_000 * min(part, 0.03),
            lambda part: 250 + 500 * min(part, 0.4),
            lambda part: 250 + 300 * (1 - exp(-8 * part)),
            lambda part: 250 + 500 * (part > 0.55),
            lambda part: 250 + 500 * (part > 0.99),
            lambda part: 400 - 130 * part,
            lambda part: 300 + 60 * sin(12 * part),
            lambda part: 60_000 + 500 * part,
        ],
        ids=["opening", "first part", "settles", "one step", "end", "falls", "waves", "small share"],
    )
    def test_a_warm_up_is_none(self, mib_of: Callable[[float], float]) -> None:
        assert advise_session(using(mib_of)) == ()

    def test_what_opening_units_take_is_left_out(self) -> None:
        """Memory that grows while most of the units compile, and no more."""
        record = session_record(120, compiling=range(100))
        grown = using(lambda part: 250 + 300 * min(part, 0.96)).monitored
        assert [one.code for one in advise_session(replace(record, monitored=grown))] == ["compiling"]

    def test_few_samples_or_units_tell_nothing(self) -> None:
        record, _ = FIRES["memory-grows"]
        assert advise_session(using(lambda part: 253.6 + 131.3 * part, points=7)) == ()
        assert advise_session(replace(session_record(10), monitored=record.monitored)) == ()
