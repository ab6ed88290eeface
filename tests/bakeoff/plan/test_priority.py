"""The order of rows by what they are likely to tell, and how long they are expected to take, from made records."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records import measurement, record

from bakeoff.machine import build_cache, paths
from bakeoff.machine.identity import Machine, this_machine
from bakeoff.models.errors import BakeoffError
from bakeoff.plan import costs as plan_costs
from bakeoff.plan.costs import GUESS, Costs, RowEstimate, finals_of, pair_of
from bakeoff.plan.dry_run import estimate
from bakeoff.plan.history import History, _expected, _tables, by_priority, history_of, known_history
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request, parse_time_limit, time_limit_text
from bakeoff.plan.rows import Row
from bakeoff.record.schema import BuildCost
from bakeoff.record.store import Stored, save
from bakeoff.report.pages import plan as plan_page
from bakeoff.report.render import terminal

BACKENDS = ("eager", "inductor[]", "inductor[freezing]", "openvino[]", "onnxruntime[]")
NONE = history_of(())


def plan_of(*backends: str, **asked: Any) -> Plan:
    defaults: dict[str, Any] = {"dtypes": ("fp32",), "device": "cpu", "threads": 1}
    return make_plan(Request("toy", backends=backends or BACKENDS, **{**defaults, **asked}))


def here() -> Machine:
    return this_machine("cpu")


def twin() -> Machine:
    return replace(here(), id="another")


def stranger() -> Machine:
    return Machine("stranger", "of-another-class", "Other CPU")


def stored(
    backend: str, ms: float, machine: Machine | None = None, workload: str = "world", number: int = 0, **changes: Any
) -> Stored:
    """A record of toy:tiny.WORKLOAD that took `ms`; 0 for a row that failed."""
    given = {"wall_s": 20.0, **changes}
    if not ms:
        given["made"] = measurement(status="build_failed", reason="it broke")
    made = record(backend, [ms] * 20 if ms else (), machine=machine or here(), **given)
    made = replace(made, variant=replace(made.variant, workload=workload))
    return Stored(f"{workload}-{backend}-{number}-{ms}", made)


def history(*entries: Stored) -> History:
    return history_of(entries)


def expected(row: Row, known: History) -> RowEstimate:
    return Costs(known).of(row)


def speedups(plan: Plan, known: History) -> list[float | None]:
    return [_expected(row, _tables(known.records, "latency")) for row in plan.rows]


def order(plan: Plan, known: History) -> list[str]:
    return [row.variant.backend for row in by_priority(plan.rows, known, "latency")]


class TestOrder:
    def test_eager_fp32_is_first_wherever_it_stands_and_however_slow_it_is(self) -> None:
        plan = plan_of("openvino[]", "inductor[]", "eager")
        assert order(plan, NONE) == ["eager", "openvino", "inductor"]
        assert order(plan, history(stored("eager", 90), stored("openvino", 10))) == ["eager", "openvino", "inductor"]

    def test_what_was_fastest_on_this_machine_follows(self) -> None:
        known = history(
            stored("eager", 100), stored("inductor", 60), stored("inductor[freezing]", 30), stored("openvino", 80),
            stored("onnxruntime", 31),
        )  # fmt: skip
        assert order(plan_of(), known) == ["eager", "inductor[freezing]", "onnxruntime", "inductor", "openvino"]

    @pytest.mark.parametrize(
        ("ms", "wall_s", "first"),
        [(32, 10.0, "onnxruntime"), (34, 5.0, "inductor[freezing]"), (90, 10.0, "inductor[freezing]")],
        ids=["nearly as good", "slower", "far slower"],
    )
    def test_a_row_that_takes_long_comes_later_than_a_cheap_one_that_is_nearly_as_good(
        self, ms: float, wall_s: float, first: str
    ) -> None:
        slow, cheap = stored("inductor[freezing]", 30, wall_s=200.0), stored("onnxruntime", ms, wall_s=wall_s)
        backends = ("inductor[freezing]", "onnxruntime[]")
        for asked in (backends, backends[::-1]):
            assert order(plan_of("eager", *asked), history(stored("eager", 100), slow, cheap))[:2] == ["eager", first]

    def test_an_unknown_row_is_between_the_good_and_the_bad_and_a_failed_one_last(self) -> None:
        known = history(
            stored("eager", 100), stored("inductor", 30, wall_s=100.0), stored("inductor[freezing]", 0),
            stored("openvino", 95, wall_s=100.0),
        )  # fmt: skip
        assert order(plan_of(), known) == ["eager", "inductor", "onnxruntime", "openvino", "inductor[freezing]"]

    def test_this_machine_counts_before_its_class_and_that_before_others(self) -> None:
        plan = plan_of("eager", "inductor[]", "openvino[]")
        inductor_wins = (stored("eager", 100), stored("inductor", 20), stored("openvino", 80))
        openvino_wins = (stored("eager", 100), stored("inductor", 80), stored("openvino", 20))

        def on(machine: Machine, entries: tuple[Stored, ...]) -> tuple[Stored, ...]:
            return tuple(replace(entry, record=replace(entry.record, machine=machine)) for entry in entries)

        first, second = ["eager", "inductor", "openvino"], ["eager", "openvino", "inductor"]
        assert order(plan, history(*on(here(), inductor_wins), *on(twin(), openvino_wins))) == first
        assert order(plan, history(*on(here(), openvino_wins), *on(twin(), inductor_wins))) == second
        assert order(plan, history(*on(twin(), openvino_wins), *on(stranger(), inductor_wins))) == second
        assert order(plan, history(*on(stranger(), openvino_wins))) == second
        moved = replace(here(), machine_class="after a move")
        assert order(plan, history(*on(twin(), openvino_wins), *on(moved, inductor_wins))) == second

    def test_backends_that_win_elsewhere_are_taken_for_a_model_without_records(self) -> None:
        known = history(*(
            stored(backend, ms, workload=workload)
            for workload in ("audio", "video")
            for backend, ms in (("eager", 100), ("inductor", 70), ("openvino", 20), ("onnxruntime", 0))
        ))  # fmt: skip
        plan = plan_of("eager", "onnxruntime[]", "inductor[]", "openvino[]")
        assert speedups(plan, known) == [1.0, None, pytest.approx(1 / 0.7), 5.0]
        assert order(plan, known) == ["eager", "openvino", "onnxruntime", "inductor"]

    def test_a_table_without_eager_is_compared_with_its_slowest_row(self) -> None:
        plan = plan_of("inductor[]", "openvino[]")
        two = history(stored("inductor", 80), stored("openvino", 20))
        assert speedups(plan, two) == [1.0, 4.0]
        assert speedups(plan, history(stored("openvino", 20))) == [None, None]

    def test_the_newest_record_counts(self) -> None:
        plan = plan_of("eager", "openvino[]")
        found = history(stored("eager", 100), stored("openvino", 0), stored("openvino", 50, number=1))
        assert speedups(plan, found) == [1.0, 2.0]
        missing = stored("openvino", 0, number=2)
        missing = replace(missing, record=replace(missing.record, measurement=measurement(status="unavailable")))
        assert speedups(plan, history(*found.records, missing)) == [1.0, 2.0]

    def test_quantised_rows_without_weights_count_half(self) -> None:
        known = history(stored("eager", 100), stored("openvino", 30), stored("int8+inductor", 29))
        plan = plan_of("eager", "int8+inductor", "openvino[]")
        assert order(plan, known) == ["eager", "openvino", "int8+inductor"]
        shipped = replace(plan, rows=tuple(replace(row, checkpoint="mine") for row in plan.rows))
        assert order(shipped, known) == ["eager", "int8+inductor", "openvino"]

    def test_subjects_alternate(self) -> None:
        plan = plan_of("inductor[]", "eager", "openvino[]", batches=(1, 4))
        known = history(stored("eager", 100), stored("openvino", 20), stored("inductor", 90))
        found = [(row.subject.batch, row.variant.backend) for row in by_priority(plan.rows, known, "latency")]
        assert found == [
            (1, "eager"), (4, "eager"), (1, "openvino"), (4, "openvino"), (1, "inductor"), (4, "inductor"),
        ]  # fmt: skip

    def test_every_variant_is_measured_once_before_one_is_measured_again(self) -> None:
        plan = plan_of("eager", "inductor[]", "openvino[]", processes=2)
        known = history(stored("eager", 100), stored("openvino", 20), stored("inductor", 90))
        rows = by_priority(plan.rows, known, "latency")
        assert [(row.process, row.variant.backend) for row in rows] == [
            (1, "eager"), (1, "openvino"), (1, "inductor"), (2, "eager"), (2, "openvino"), (2, "inductor"),
        ]  # fmt: skip

    def test_published_records_count_beside_those_of_another_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        published, own = tmp_path / "published", tmp_path / "own"
        old = [save(published, stored(backend, ms).record) for backend, ms in (("eager", 100), ("openvino", 20))]
        new = save(own, stored("inductor", 30).record)
        shutil.copytree(published, own, dirs_exist_ok=True)
        monkeypatch.setattr(paths, "published_runs", lambda: published)
        for folder, ids in ((tmp_path / "nowhere", old), (published, old), (own, [*old, new])):
            assert sorted(entry.id for entry in known_history(folder).records) == sorted(ids)
        assert order(plan_of(), known_history(tmp_path / "nowhere"))[:2] == ["eager", "openvino"]


def built(cache: str, build_s: float, warm_s: float | None = None, **changes: Any) -> Any:
    """A record of toy's inductor row that took 15 s beside its build."""
    made = measurement([10.0] * 20, build=BuildCost(cache, build_s, warm_s))  # type: ignore[arg-type]
    return stored("inductor", 10, made=made, phase_s={"build": build_s}, wall_s=15 + build_s, **changes)


class TestSeconds:
    def row(self, backend: str = "inductor[]", **asked: Any) -> Row:
        return plan_of(backend, **asked).rows[0]

    def seconds(self, *entries: Stored, row: Row | None = None) -> float:
        return expected(row or self.row(), history(*entries)).seconds

    def warm(self, row: Row) -> None:
        row.cache_folder.mkdir(parents=True)
        build_cache.mark_finished(row.cache_folder)

    def test_are_a_guess_without_records(self) -> None:
        eager, inductor = (expected(row, NONE) for row in plan_of("eager", "inductor[]").rows)
        assert (eager.source, inductor.source) == (GUESS, GUESS)
        assert 0 < eager.seconds < inductor.seconds

    def test_of_a_build_that_searches_kernels_are_guessed_as_more(self) -> None:
        plain, *searching = plan_of("inductor[]", "inductor[mode=max-autotune]", "aoti[max_autotune]").rows
        for row in searching:
            assert expected(row, NONE).seconds > 2 * expected(plain, NONE).seconds

    def test_are_those_of_the_newest_record_whose_cache_was_in_the_same_state(self) -> None:
        row = self.row()
        cold, warm = built("cold", 40.0), built("warm", 9.0, number=1)
        assert expected(row, history(cold, warm)) == RowEstimate(15 + 40, cold.id)
        self.warm(row)
        assert expected(row, history(warm, cold)) == RowEstimate(15 + 9, warm.id)
        assert self.seconds(built("cold", 40.0, 8.0), row=row) == pytest.approx(15 + 8), "as its own warm build"

    def test_of_later_processes_are_warm(self) -> None:
        plan = plan_of("inductor[]", processes=2)
        known = history(built("cold", 40.0, 9.0))
        assert [expected(row, known).seconds for row in plan.rows] == [55, 24]

    def test_are_of_this_machine_and_of_this_configuration_first(self) -> None:
        elsewhere = stored("inductor", 10, stranger(), wall_s=500.0)
        same_class = stored("inductor", 10, twin(), wall_s=300.0)
        mine = stored("inductor", 10, wall_s=30.0, config_id=self.row().config_id)
        newer = stored("inductor", 10, number=1, wall_s=60.0, config_id="other weights")
        assert self.seconds(elsewhere) == 500
        assert self.seconds(same_class, elsewhere) == 300
        assert self.seconds(mine, newer, elsewhere, same_class) == 30
        assert self.seconds(newer, elsewhere, same_class) == 60

    def test_of_a_new_model_are_guessed_by_its_backends(self) -> None:
        found = expected(self.row(), history(*(
            stored("inductor", 10, workload="audio", wall_s=wall_s, number=round(wall_s)) for wall_s in (20, 30, 90)
        )))  # fmt: skip
        assert found == RowEstimate(30.0, GUESS)


class TestFitting:
    def costs(self, *seconds: float) -> tuple[Plan, Costs]:
        """Rows that take so long; negative: by a guess."""
        plan = plan_of(*BACKENDS[: len(seconds)])
        entries = [
            stored(row.variant.backend, 10, workload="world" if wall_s > 0 else "audio", wall_s=abs(wall_s))
            for row, wall_s in zip(plan.rows, seconds, strict=True)
        ]
        return plan, Costs(history(*entries))

    @pytest.mark.parametrize(
        ("left_s", "seconds", "chosen"),
        [
            (100, (20, 30, 40), [0, 1, 2]),
            (60, (20, 50, 40), [0, 2]),
            (30, (20, 50, 40), [0]),
            (10, (20, 50, 40), []),
            (90, (20, -50, 40), [0, 1]),
            (45, (20, -50, -40), [0, 1]),  # half of the guess fits, and nothing is left for another
            (44, (20, -50, -40), [0, 2]),
            (19, (40, -50, -40), []),
            (30.0, (30,), [0]),
            (29.9, (30,), []),
        ],
    )
    def test_passes_over_what_is_too_long(self, left_s: float, seconds: tuple[float, ...], chosen: list[int]) -> None:
        plan, costs = self.costs(*seconds)
        assert [plan.rows.index(row) for row in costs.fitting(plan.rows, left_s)] == chosen

    @pytest.mark.parametrize(
        ("left_s", "sides", "chosen"),
        [
            (100, (0, 1), [0, 1]),
            (99, (0, 1), [0, 1, 2]),  # the final and its two rows do not fit: as without one
            (90, (0,), [0]),
            (69, (0,), [0, 1]),
            (100, (), [0, 1]),
            (69, (), []),
            (49, (), [0]),
        ],
    )
    def test_keeps_time_for_a_final(
        self, monkeypatch: pytest.MonkeyPatch, left_s: float, sides: tuple[int, ...], chosen: list[int]
    ) -> None:
        """It takes 50 s; the rows that are not of the pair are measured."""
        plan, costs = self.costs(20, 30, 40)
        monkeypatch.setattr(plan_costs, "FINAL_S", 50.0)
        measured = plan_of(*BACKENDS[3:]).rows[: 2 - len(sides)]
        found = costs.fitting(plan.rows, left_s, [[*(plan.rows[place] for place in sides), *measured]])
        assert [plan.rows.index(row) for row in found] == chosen

    def test_keeps_time_for_the_finals_of_as_many_subjects_as_can_have_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(plan_costs, "FINAL_S", 50.0)
        plan = plan_of("eager", "openvino[]", batches=(1, 4))
        costs = Costs(history(*(stored(row.variant.backend, 10) for row in plan.rows[:2])))
        rows = sorted(plan.rows, key=lambda row: row.subject.batch)
        finals = finals_of(rows)
        assert costs.fitting(rows, 180, finals) == tuple(rows), "80 s of rows and two finals"
        assert costs.fitting(rows, 120, finals) == tuple(rows[:3]), "70 s before the first final"
        assert costs.fitting(rows, 80, finals) == tuple(rows), "no final"

    def test_a_final_ahead_is_between_the_best_and_what_comes_next(self) -> None:
        never, first, second, third = plan_of("canaries:BF16_ONLY", "eager", "openvino[]", "inductor[]").rows
        assert pair_of((never, first, second)) == [first, second]
        assert pair_of((never, first), (second,)) == [second, first]
        assert pair_of((first,), (second, third)) == [second, third]
        assert pair_of((never, second), (second,)) == [], "another build of the same variant"


class TestDryRun:
    def test_shows_the_order_and_what_fits(self) -> None:
        known = history(stored("eager", 100), stored("openvino", 20), stored("inductor", 50, wall_s=100.0))
        asked = Request(
            "toy", backends=("inductor[]", "eager", "openvino[]"), dtypes=("fp32",), device="cpu", threads=1
        )
        found = estimate(make_plan(replace(asked, time_limit_s=60)), known)
        lines = [(line.variant.split("/")[1], line.fits) for line in found.lines]
        assert lines == [("eager", True), ("openvino", True), ("inductor", False)]
        text = terminal.render(plan_page.document({"": found}))
        assert "within 1m about 2 of 3, in this order" in text
        assert [line.split()[2] for line in text.splitlines() if line.startswith("toy")] == ["yes", "yes", "no"]
        without = estimate(make_plan(asked), known)
        assert [line.variant.split("/")[1] for line in without.lines] == ["inductor", "eager", "openvino"]
        assert all(line.fits for line in without.lines)
        assert "within" not in terminal.render(plan_page.document({"": without}))


class TestTimeLimit:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("3m", 180), ("90s", 90), ("1h30m", 5400), ("180", 180), ("1.5h", 5400), ("2m30s", 150), ("1H 30M", 5400),
            ("1m30", 90), ("0.5s", 0.5), ("168h", 604800),
        ],
    )  # fmt: skip
    def test_is_read_as_it_is_said(self, text: str, seconds: float) -> None:
        assert parse_time_limit(text) == seconds
        assert parse_time_limit(time_limit_text(seconds)) == seconds

    @pytest.mark.parametrize(
        "text", ["", "0", "0m", "-3m", "3 minutes", "three", "m", "3x", "1:30", "nan", "inf", "1e3", "3m2h", "5.",
                 "1..5m", "169h", "99999999", "3m" * 500],
    )  # fmt: skip
    def test_what_is_no_time_is_refused_in_a_sentence(self, text: str) -> None:
        with pytest.raises(BakeoffError, match=r"--time-limit .*give") as refused:
            parse_time_limit(text)
        assert refused.value.code == "bad-option"
        assert len(str(refused.value)) < 160
