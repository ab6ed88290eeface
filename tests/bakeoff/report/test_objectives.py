"""What a table recommends where its sweep had an objective."""

from dataclasses import replace

import pytest
from comparisons import final, said
from few_records import stored
from pages import html_text, results_text, tables_text
from records import clock, measurement, record

from bakeoff.machine.identity import Machine
from bakeoff.record.finding import new_finding
from bakeoff.record.objective import Objective, parse_objective
from bakeoff.record.schema import Record
from bakeoff.record.store import Records
from bakeoff.report.pages import sweep
from bakeoff.report.wording import items_per_s, limit_text


def around(ms: float) -> list[float]:
    """400 samples within a tenth of a percent."""
    return [ms + ms * index / 400_000 for index in range(400)]


def made(backend: str, ms: float, objective: str = "latency", throughput_ms: float = 0.0, **changes: object) -> Record:
    report = measurement(around(ms), throughput=clock(around(throughput_ms or ms)))
    return record(backend, made=report, objective=parse_objective(objective), **changes)


def three(objective: str) -> list[Record]:
    return [
        made("eager", 30.0, objective),
        made("inductor", 20.0, objective),
        made("inductor[freezing]", 10.0, objective),
    ]


class TestLimits:
    def test_the_shipped_row_meets_them_and_its_headroom_is_said(self) -> None:
        eager, slow, fast = three("p99<=20ms,memory<=1GiB")
        eager_made = replace(eager, measurement=replace(eager.measurement, latency=clock(around(15.0))))
        text = said([eager_made, slow, fast], final(fast, eager_made))
        assert text.startswith("Objective latency,p99<=20ms,memory<=1GiB: Deploy inductor[freezing] fp32: ")
        assert "inductor[freezing] fp32 meets the limits: p99 10.01 ms [10.01, 10.01], 50% below 20ms; " in text
        assert "memory 500 MiB, 51% below 1GiB." in text

    def test_no_row_that_misses_them_is_in_a_final(self) -> None:
        eager, slow, fast = three("p99<=25ms")
        text = said([eager, slow, fast], final(fast, slow, eager))
        assert "Deploy inductor[freezing] fp32" in text
        alone = said([eager, slow], final(slow, eager))
        assert "inductor fp32 (20.01 ms [20.01, 20.01]) is the only row that can be recommended" in alone

    def test_where_none_meets_them_the_nearest_is_named_with_its_miss(self) -> None:
        text = said(three("p99<=8ms"))
        assert text == (
            "Objective latency,p99<=8ms: Deploy nothing from this table: no row is shown to meet p99<=8ms; the nearest "
            "is inductor[freezing] fp32: not met: p99 10.01 ms [10.01, 10.01], 25% above 8ms."
        )
        assert "memory 500 MiB, 400% above 100MiB" in said(three("memory<=100MiB"))


class TestThroughput:
    def test_has_a_final_of_its_own_goal(self) -> None:
        """inductor has the shorter call, inductor[freezing] more items a second."""
        rows = [
            made("eager", 30.0, "throughput"),
            made("inductor", 10.0, "throughput", throughput_ms=7.0),
            made("inductor[freezing]", 12.0, "throughput", throughput_ms=5.0),
        ]
        assert "inductor[freezing] fp32 has the most items a second, 199.9 [199.9, 199.9] items/s, before" in said(rows)
        by_latency = [replace(row, objective=Objective()) for row in rows]
        assert "Not decided" in said(rows, final(*by_latency[1:]))
        assert said(rows).endswith("--objective 'throughput'")
        sides = [replace(row, measurement=replace(row.measurement, latency=row.measurement.throughput)) for row in rows]
        text = said(rows, final(sides[2], sides[1], sides[0]))
        assert text.startswith("Objective throughput: Deploy inductor[freezing] fp32: ")

    def test_items_are_those_of_the_batch(self) -> None:
        rate = items_per_s(made("eager", 10.0, batch=8))
        assert rate is not None
        assert rate[0] == pytest.approx(800, rel=0.01)
        assert rate[1] < rate[0] < rate[2]
        assert items_per_s(record("eager", status="oom")) is None


class TestEager:
    def test_the_speed_up_is_always_stated_or_why_it_is_not(self) -> None:
        eager, slow, fast = three("latency")
        own = said([eager, slow], final(slow, eager))
        assert "inductor fp32: in the final it was faster than eager fp32 (1.500x [1.500, 1.500]" in own
        bare = final(fast, slow)
        assert said([eager, slow, fast], bare).endswith("not known: eager fp32 was not measured in this final.")
        told = replace(bare, findings=(new_finding("no-baseline", "eager fp32 was out: no room"),))
        assert said([eager, slow, fast], told).endswith("not known: eager fp32 was out: no room.")
        unstable = replace(eager, measurement=replace(eager.measurement, status="unstable"))
        assert "eager fp32 was unstable in this final" in said([eager, slow, fast], final(fast, slow, unstable))

    def test_what_lost_to_it_is_not_deployed(self) -> None:
        eager, slow, fast = three("latency")
        quick = replace(eager, measurement=replace(eager.measurement, latency=clock(around(5.0))))
        text = said([eager, slow, fast], final(fast, slow, quick))
        assert text.startswith("Do not deploy inductor[freezing] fp32: in the final it was faster than inductor fp32 ")
        assert " eager fp32 is 2.00x [2.00, 2.00] as fast as inductor[freezing] fp32." in text
        same = replace(slow, measurement=replace(slow.measurement, latency=clock(around(10.0))))
        assert "; deploy neither." in said([eager, same, fast], final(fast, same, quick))


def test_pages_have_the_objective_the_limits_and_the_rate() -> None:
    rows = stored(*three("throughput,p99<=25ms"))
    records = Records(rows, (), ())
    machine: Machine = rows[0].record.machine
    for text in (
        tables_text(rows),
        results_text(records, machine),
        html_text(records),
    ):
        assert "Objective throughput,p99" in text
        assert "items/s [95 %]" in text
        assert "99.95 [99.95, 99.96]" in text
        assert "20% above 25ms" in text
    (row, *_) = sweep.as_rows(rows)
    (check,) = row["limits"]  # type: ignore[misc]
    assert (check.word, limit_text(check)) == ("not met", "p99 30.03 ms [30.03, 30.03], 20% above 25ms")
