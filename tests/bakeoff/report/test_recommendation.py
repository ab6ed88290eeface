"""What a table recommends: only what a final between its two best rows decided."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from answers import as_text
from comparisons import final, kept, said
from few_records import ms, stored
from pages import tables_text
from records import clock, measurement, record

from bakeoff.machine.identity import Machine
from bakeoff.record.finalists import finalists
from bakeoff.record.finding import Finding
from bakeoff.record.objective import Goal, Objective
from bakeoff.record.schema import Record, Source
from bakeoff.record.store import Stored
from bakeoff.record.verdict import decide
from bakeoff.report.columns import cells, table_rows
from bakeoff.report.groups import USUAL, drift
from bakeoff.report.recommendation import decision, deployment
from bakeoff.report.wording import sure_text

EAGER, SLOW, FAST = record("eager", ms(10.0)), record("inductor", ms(5.0)), record("inductor[freezing]", ms(2.0))
QUANTISED = record("int8", ms(1.0), quantisation="dynamic")


def deployed(text: str) -> list[str]:
    return re.findall(r"[Dd]eploy (\S+ \S+)[,:]", text)


class TestWithoutAFinal:
    @pytest.mark.parametrize(
        ("rows", "facts"),
        [
            ((), ()),
            ((record("eager", ms(10.0), "unstable", "x"), record("inductor", status="crashed")), ()),
            ((EAGER, record("inductor", ms(5.0), "unstable", "drift")), ("eager fp32", "only row")),
            ((SLOW, record("eager", status="oom")), ("inductor fp32", "5.950 ms [5.500, 6.400]")),
            ((EAGER, SLOW), ("5.950 ms [5.500, 6.400]", "10.95 ms [10.50, 11.40]")),
            ((EAGER, record("inductor", ms(9.9))), ("10.85 ms", "10.95 ms")),
        ],
        ids=["no rows", "no ok row", "a faster one is unstable", "one ok row", "intervals apart", "intervals overlap"],
    )
    def test_nothing_is_deployed(self, rows: Sequence[Record], facts: Sequence[str]) -> None:
        text = said(rows)
        assert deployed(text) == []
        assert all(fact in text for fact in facts), text

    def test_two_rows_get_the_command_that_decides(self) -> None:
        command = "bakeoff compare 'toy:tiny.world/inductor/fp32@cpu' 'toy:tiny.world/eager/fp32@cpu'"
        assert said([EAGER, SLOW]).endswith(f": {command}")
        threads = [replace(made, threads=3) for made in (EAGER, SLOW)]
        assert said(threads).endswith(f": {command} --threads 3")
        others = [replace(made, batch=2, weight_seed=5, checkpoint="w.pt 1234") for made in (EAGER, SLOW)]
        assert said(others).endswith(
            ": bakeoff sweep toy --preset tiny --workload world --backends 'inductor,eager' --dtype fp32 --device cpu "
            "--batch 2 --seed 5 --checkpoint FILE"
        )

    def test_rows_further_apart_than_sweeps_drift_are_called_far_ahead(self) -> None:
        near, far = record("inductor", ms(5.9)), record("inductor", ms(4.9))
        assert said([EAGER, near]).startswith("Not decided: inductor fp32 has the lowest median, 6.850 ms")
        text = said([EAGER, far])
        assert text.startswith("inductor fp32 is far ahead (1.87x): it has the lowest median, 5.850 ms")
        assert "Sweeps drift by 1.7x; a final would confirm it: bakeoff compare " in text
        assert "faster" not in text
        assert as_text(deployment(stored(EAGER, far), drift=1.88)).startswith("Not decided: ")

    @pytest.mark.parametrize("goal", ["latency", "throughput"])
    def test_rows_whose_intervals_overlap_are_not_far_ahead(self, goal: Goal) -> None:
        """By the clock of the objective: the other one's intervals are apart."""
        wide = [1, 1.3, 1.7, 2.2, 2.8, 3.4, 4, 4.6, 5.2, 5.8, 6.2, 6.8, 7.6, 9, 11, 12, 13, 14, 15, 16]
        narrow = [1.0] * 20
        for samples, word in ((wide, "Not decided: "), (narrow, "is far ahead (10.95x)")):
            one, other = (samples, narrow) if goal == "latency" else (narrow, samples)
            made = replace(measurement(one), throughput=clock(other))
            fast = replace(record("inductor"), measurement=made, objective=Objective(goal))
            eager = replace(EAGER, measurement=replace(EAGER.measurement, throughput=clock(ms(10.0))))
            assert word in said([replace(eager, objective=Objective(goal)), fast])

    def test_a_row_that_is_faster_at_each_speed_of_the_machine_is_named_without_a_race(self) -> None:
        """As of a small model on a machine with two speeds: every row was unstable, and no table had an answer."""
        finding = (Finding("bimodal", "x"),)
        rows = [
            record(name, made=measurement([fast] * 45 + [slow] * 15, "unstable", "x", findings=finding))
            for name, fast, slow in (("eager", 0.834, 1.41), ("inductor", 0.49, 0.827))
        ]
        text = said(rows)
        assert "0.4900 | 0.8270 ms" in text
        assert "0.8340 | 1.4100 ms" in text
        assert not text.startswith("Not decided")
        assert text.endswith("'toy:tiny.world/inductor/fp32@cpu' 'toy:tiny.world/eager/fp32@cpu'")
        rows[1] = record("inductor", made=measurement([0.49] * 45 + [0.9] * 15, "unstable", "x", findings=finding))
        assert said(rows).startswith("Not decided"), "its slower speed is above the other's faster one"

    def test_one_row_has_nothing_to_be_compared_with(self) -> None:
        assert "bakeoff compare" not in said([SLOW])
        assert "inductor fp32" in said([SLOW])


class TestWithAFinal:
    def test_the_faster_one_is_deployed_in_the_same_words_whichever_side_it_was(self) -> None:
        first, second = (said([EAGER, SLOW], final(*sides)) for sides in ((SLOW, EAGER), (EAGER, SLOW)))
        assert deployed(first) == ["inductor fp32"]
        assert first == second
        assert "faster than eager fp32 (1.840x [1.840, 1.840], " in first

    def test_no_difference_prefers_a_baseline(self) -> None:
        near = record("inductor", ms(9.99))
        assert deployed(said([EAGER, near], final(near, EAGER))) == ["eager fp32"]
        other = record("inductor[freezing]", ms(9.98))
        text = said([near, other], final(near, other))
        assert (deployed(text), "No difference shown" in text) == ([], True)

    def test_a_speed_up_is_claimed_with_the_third_side_only(self) -> None:
        text = said([EAGER, SLOW, FAST], final(SLOW, FAST))
        assert text.endswith("eager fp32 is not known: eager fp32 was not measured in this final.")
        assert " as fast as" not in text
        for sides in ((SLOW, FAST, EAGER), (FAST, SLOW, EAGER)):
            text = said([EAGER, SLOW, FAST], final(*sides))
            (claimed,) = re.findall(r"is ([0-9.]+)x \[([0-9.]+), ([0-9.]+)\] as fast as eager fp32", text)
            assert [float(figure) for figure in claimed] == pytest.approx([10.95 / 2.95] * 3, abs=0.01)

    def test_an_early_one_says_so_wherever_it_states_a_ratio(self) -> None:
        early = final(FAST, SLOW, EAGER, pairs=3)
        text = said([EAGER, SLOW, FAST], early)
        assert deployed(text) == ["inductor[freezing] fp32"]
        assert re.search(
            r"2\.017x \[[0-9.]+, [0-9.]+\] \(early verdict of 3 pairs, assumed spread\), 36 interleaved rounds in 3 p",
            text,
        )
        assert re.search(
            r"3\.71x \[2\.[0-9]+, 4\.[0-9]+\] as fast as eager fp32 \(early verdict of 3 pairs, assumed spread\)\.",
            text,
        )
        assert "early" not in said([EAGER, SLOW, FAST], final(FAST, SLOW, EAGER))

    @pytest.mark.parametrize(
        ("pairs", "sure"),
        [(1, " (interval of rounds, not of processes)"), (2, " (interval of rounds, not of processes)"), (7, "")],
    )
    def test_an_interval_of_rounds_is_none_of_processes(self, pairs: int, sure: str) -> None:
        assert sure_text(decide(final(FAST, SLOW, pairs=pairs))) == sure

    def test_an_early_one_states_no_speed_up_that_three_sets_do_not_show(self) -> None:
        near = record("eager", ms(2.45))
        text = said([SLOW, FAST], final(FAST, SLOW, near, pairs=3))
        assert deployed(text) == ["inductor[freezing] fp32"]
        assert re.search(r"inductor\[freezing\] fp32 was 1\.\d+x as fast as eager fp32 in 3 pairs", text)
        assert text.endswith("of processes: no difference shown.")

    def test_where_the_best_two_are_alike_each_is_compared_with_eager(self) -> None:
        """Such a final ends after its first pair of processes."""
        alike = record("aoti", ms(2.0))
        text = said([EAGER, alike, FAST], final(FAST, alike, EAGER, pairs=1))
        assert "No difference shown between inductor[freezing] fp32 and aoti fp32 in the final" in text
        assert text.count("as fast as eager fp32 in 1 pair of processes: no difference shown.") == 2

    def test_of_two_that_are_alike_the_one_with_the_lower_p99_is_deployed(self) -> None:
        steady, late = (record(name, [2.0] * 98 + [end] * 2) for name, end in (("aoti", 2.2), ("inductor", 9.0)))
        for sides in ((steady, late), (late, steady)):
            assert deployed(said([EAGER, steady, late], final(*sides, EAGER))) == ["aoti fp32"]
        few = record("inductor", [2.0] * 20)
        assert deployed(said([EAGER, steady, few], final(steady, few, EAGER))) == [], "its p99 is not known"

    def test_a_p99_far_above_the_median_is_said(self) -> None:
        late = record("inductor", [2.0] * 98 + [6.0] * 2)
        assert "The p99 of inductor fp32 is 3.0x its median." in said([EAGER, late], final(late, EAGER))
        assert "The p99 of" not in said([EAGER, SLOW], final(SLOW, EAGER))

    @pytest.mark.parametrize(
        "changes",
        [
            {"config_id": "another"},
            {"versions": {"bakeoff": "0.1.0", "torch": "2.12.0"}},
            {"source": Source("another", (), "instrument")},
            {"threads": 2},
            {"machine": Machine("another", "", "Test CPU, 4 cores")},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_a_final_of_anything_else_decides_nothing(self, changes: dict[str, Any]) -> None:
        for index in range(2):
            sides = [replace(made, **changes) if number == index else made for number, made in enumerate((SLOW, EAGER))]
            assert deployed(said([EAGER, SLOW], final(*sides))) == []

    def test_a_final_between_other_rows_decides_nothing(self) -> None:
        assert deployed(said([EAGER, SLOW, FAST], final(SLOW, EAGER))) == []

    def test_the_newest_counts(self) -> None:
        old = final(SLOW, record("eager", ms(1.0)))
        new = final(SLOW, EAGER, created="2026-01-02T05:00:00.000000Z")
        assert deployed(said([EAGER, SLOW], new, old)) == ["inductor fp32"]

    def test_one_in_which_a_side_failed_decides_nothing_and_says_why_in_words_and_at_the_row(self) -> None:
        failed = final(replace(FAST, measurement=replace(FAST.measurement, status="unstable", reason="stored")), SLOW)
        text = said([FAST, SLOW], failed)
        assert deployed(text) == []
        assert "their final has no verdict, inductor[freezing] fp32 was unstable: stored. Run it again with:" in text
        found = decision(stored(FAST, SLOW), kept(failed))
        assert (found.lacks_final, found.winner, found.failed) == (True, None, failed)
        reasons = [cells(("reason",), row) for row in table_rows(stored(FAST, SLOW), kept(failed))]
        assert reasons == [["in the final unstable: stored"], [""]]
        newer = final(FAST, SLOW, created="2026-01-03T04:00:00.000000Z")
        assert deployed(said([FAST, SLOW], failed, newer)) == ["inductor[freezing] fp32"]
        assert deployed(said([FAST, SLOW], replace(failed, created=newer.created), final(FAST, SLOW))) == []

    def test_a_size_far_from_the_rows_stands_beside_theirs(self) -> None:
        text = "the rows of the sweep say 1.19x, this race 2.50x"
        found = replace(final(FAST, SLOW), findings=(Finding("off-rows", text),))
        assert text in said([FAST, SLOW], found)

    def test_the_winner_is_marked_in_its_row(self) -> None:
        rows = stored(EAGER, SLOW, FAST)
        comparisons = kept(final(SLOW, FAST))
        assert [row.winner for row in table_rows(rows, comparisons)] == [False, False, True]
        assert [row.winner for row in table_rows(rows)] == [False] * 3
        text = tables_text(rows, comparisons)
        assert [line.split("  ")[0] for line in text.splitlines() if line.startswith("* ")] == [
            "* inductor[freezing] fp32"
        ]
        assert "\n* " not in tables_text(rows)
        near = record("inductor[freezing]", ms(4.99))
        assert decision(stored(SLOW, near), kept(final(SLOW, near))).winner is None


class TestQuantisedRows:
    def test_on_random_weights_are_no_finalists(self) -> None:
        rows = stored(EAGER, SLOW, QUANTISED)
        assert [entry.record for entry in finalists(rows)] == [SLOW, EAGER]
        real = [replace(made, checkpoint="w.pt 1234") for made in (EAGER, SLOW, QUANTISED)]
        assert [entry.record for entry in finalists(stored(*real))] == [real[2], real[1]]

    def test_are_named_with_the_command_that_decides(self) -> None:
        text = said([EAGER, SLOW, QUANTISED], final(SLOW, EAGER))
        assert deployed(text) == ["inductor fp32"]
        assert text.endswith("make sweep MODEL=toy CHECKPOINT=FILE")
        assert "1.950 ms" in text

    def test_slower_ones_are_not_named(self) -> None:
        slower = record("int8", ms(20.0), quantisation="dynamic")
        assert "int8" not in said([EAGER, SLOW, slower])

    def test_alone_nothing_is_deployed(self) -> None:
        text = said([QUANTISED])
        assert deployed(text) == []
        assert "CHECKPOINT=FILE" in text


def test_is_the_first_line_of_each_table() -> None:
    rows = stored(EAGER, replace(SLOW, batch=2))
    _, *parts = re.split("={20,}\n\n", tables_text(rows))
    assert len(parts) == 3, "what is said of both tables comes last"
    for part, name in zip(parts, ("eager fp32", "inductor fp32"), strict=False):
        assert name in part.splitlines()[0]


def test_tables_without_a_final_get_one_command_for_all() -> None:
    both = stored(EAGER, SLOW, *(replace(made, batch=2) for made in (EAGER, SLOW)))
    assert "--undecided" not in tables_text(both[:2])
    lines = tables_text(both, name="toy").splitlines()
    assert [line.endswith("@cpu'") for line in lines if "bakeoff compare '" in line] == [True]
    place = lines.index("bakeoff compare --undecided toy")
    assert lines[place - 2] == "2 of 2 tables have no final between their two best rows. To run them all:"
    assert "--undecided" not in tables_text(both, kept(final(EAGER, SLOW)))


class TestDrift:
    """Of an hour's sweeps of one row: the ratios of neighbouring ones count."""

    def rows(self, medians: Sequence[float], **changes: Any) -> list[Stored]:
        made = [
            replace(record("inductor", [each]), created=f"2026-01-02T03:{minute:02}:00.000000Z", sweep=f"s{minute}")
            for minute, each in enumerate(medians)
        ]
        return list(stored(*(replace(each, **changes) for each in made)))

    def test_is_the_ratio_that_one_in_twenty_exceeds(self) -> None:
        steady = [10.0, 11.0] * 10
        assert drift(self.rows(steady), record().machine) == USUAL, "19 ratios are too few"
        assert drift(self.rows([*steady, 55.0]), record().machine) == pytest.approx(1.1)
        assert drift(self.rows([*steady, 55.0, 10.0, 55.0]), record().machine) == pytest.approx(5.5)

    def test_is_of_equal_code_and_other_sweeps_on_the_machine(self) -> None:
        many = self.rows([10.0, 20.0] * 11)
        assert drift(many, record().machine) == pytest.approx(2.0)
        assert drift(many, Machine("another", "", "Test CPU, 4 cores")) == USUAL
        assert drift(self.rows([10.0, 20.0] * 11, sweep="one"), record().machine) == USUAL
        other = [
            replace(each, record=replace(each.record, versions={"torch": str(number)}))
            for number, each in enumerate(many)
        ]
        assert drift(other, record().machine) == USUAL
