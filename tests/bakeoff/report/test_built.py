"""Rows that were built for GPUs which this machine lacks: alone, beside timed rows, and on every page."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answers import as_text
from ceilings import CEILINGS
from few_records import THREE, at, records_of, stored
from pages import PAGES, tables_text
from records import measurement
from rich.console import Console

from bakeoff.cli.ended import exit_code, print_done
from bakeoff.cli.progress import TerminalProgress, standings
from bakeoff.record.finalists import objective_of
from bakeoff.record.floor import floors
from bakeoff.record.objective import Objective
from bakeoff.record.schema import BuildCost, ProofRecord, Record, Source
from bakeoff.report import exports, notes, selection
from bakeoff.report.document import Document
from bakeoff.report.groups import baselines, stale_reasons, tables
from bakeoff.report.pages import sweep
from bakeoff.report.pages.batch_curve import batch_curves
from bakeoff.report.recommendation import decision, deployment, how_to_decide
from bakeoff.report.render import markdown, terminal
from bakeoff.sweeps.run import SweepResult
from bakeoff.sweeps.time_limit import OutOfTime
from bakeoff.variant import parse_variant


def built(second: int, target: str = "sm89", outside: dict[str, int] | None = None, **changes: Any) -> Record:
    facts = {
        "target": target, "engines": 1 + len(outside or {}), "engine_s": 301.5, "engine_peak_bytes": 11 << 30,
        "tensorrt_rtx": "1.7.1", "precisions": "fp16, fp32",
    }  # fmt: skip
    proof = ProofRecord(
        operators_inside={"Conv": 300, "MatMul": 287 - sum((outside or {}).values())},
        operators_outside=outside or {},
        facts=facts,
    )
    made = measurement(status="built", build=BuildCost("none", 412.4, artifact_bytes=231 << 20), proof=proof)
    variant = parse_variant(f"toy:tiny.world/tensorrt-rtx[target={target}]/fp16@cpu")
    return at(second, made=made, **{"variant": variant, "baseline": False, **changes})


BUILT = (built(11, outside={"NonZero": 1, "Resize": 2}), built(12, "sm120"))
ALONE, MIXED = stored(*BUILT), stored(*THREE, *BUILT)
CRASHED, MISSING = at(13, "aoti", (), "crashed", "signal 11"), at(14, "openvino", (), "unavailable", "no openvino")
TABLE = """
Built for other GPUs
variant       dtype  target  in engines  outside              size MiB  build s
------------  -----  ------  ----------  -------------------  --------  -------
tensorrt-rtx  fp16   sm89    584 of 587  2 Resize, 1 NonZero     231.0      412
tensorrt-rtx  fp16   sm120   587 of 587  none                    231.0      412
"""


def at_80_columns(*rows: Any, **given: Any) -> str:
    return terminal.render(Document("", sweep.newest_tables(rows, **given)), 80)


def test_a_sweep_that_only_built_says_for_what_and_how_to_export_one() -> None:
    found = at_80_columns(*ALONE)
    assert TABLE in found
    assert max(map(len, found.splitlines())) <= 80
    said, command = found.split("\n\n")[1:3]
    assert said == "Built for sm89, sm120 and not timed: no such GPU is here. Export one with:"
    assert command == "bakeoff export 'toy:tiny.world/tensorrt-rtx/fp16@cpu' --for sm89"
    for wrong in ("no row is ok", "compare", "Deploy", "selftest", "Stale", "status"):
        assert wrong not in found


@pytest.mark.parametrize("outside", [{"NonZero": 1}, {f"Operator{number}": number + 1 for number in range(9)}])
def test_a_table_fits_80_columns_whatever_is_outside(outside: dict[str, int]) -> None:
    found = at_80_columns(*stored(built(1, "sm120", outside)))
    assert max(map(len, found.splitlines())) <= 80
    assert f"{587 - sum(outside.values())} of 587" in found


def test_weights_of_a_file_are_asked_for() -> None:
    (row,) = stored(built(1, checkpoint="weights.safetensors, sha256 f00d"))
    assert as_text(deployment([row])).endswith("--for sm89 --checkpoint FILE")


def test_options_other_than_the_target_are_told() -> None:
    variant = parse_variant("toy:tiny.world/int8-static+tensorrt-rtx[strong,target=sm89]/fp16@cpu")
    (row,) = stored(built(1, variant=variant))
    assert "int8-static+tensorrt-rtx[strong]  fp16   sm89" in tables_text([row])
    assert "'toy:tiny.world/int8-static+tensorrt-rtx[strong]/fp16@cpu' --for sm89" in as_text(deployment([row]))


def test_beside_timed_rows_they_have_a_table_of_their_own_and_change_nothing_else() -> None:
    timed, mixed = at_80_columns(*stored(*THREE)), at_80_columns(*MIXED)
    assert TABLE in mixed
    ordinary, _, notes = mixed.partition(TABLE)
    assert ordinary.strip() == timed[: len(ordinary.strip())]
    assert "tensorrt" not in ordinary + notes
    assert decision(MIXED, ()) == decision(stored(*THREE), ())
    assert set(baselines(MIXED)) == {"fp32"}
    assert as_text(deployment(MIXED)) == as_text(deployment(stored(*THREE)))


def test_rows_that_cannot_run_leave_a_sweep_one_that_only_built_and_failed_ones_do_not() -> None:
    assert as_text(deployment(stored(*BUILT, MISSING))).startswith("Built for sm89, sm120 ")
    assert as_text(deployment(stored(*BUILT, CRASHED))) == "Deploy nothing from this table: no row can be ranked."
    assert as_text(deployment(stored(MISSING))) == "Deploy nothing from this table: no row can be ranked."
    assert as_text(deployment(stored(THREE[0], *BUILT))).startswith("Built for sm89, sm120 "), "eager is a baseline"
    found = at_80_columns(*stored(*BUILT, MISSING))
    assert TABLE in found
    assert "1 row cannot run here (1 unavailable): openvino fp32 (why: " in found


def test_other_code_makes_no_row_stale() -> None:
    later, edited = "2026-02-02T03:04:05.000000Z", Source("edited", (("tensorrt-rtx", "new"),), "other")
    rows = stored(*THREE, replace(BUILT[0], source=edited, created=later), replace(BUILT[1], versions={"torch": "3"}))
    assert set(stale_reasons(rows)) == {None}
    assert stale_reasons(rows[3:]) == [None, None]
    assert set(stale_reasons(stored(*BUILT, MISSING))) == {None}
    (table,) = tables(rows)
    assert (len(table.rows), table.stale, table.built) == (3, (), rows[3:])


def test_its_objective_is_not_that_of_the_timed_rows() -> None:
    row = built(30, objective=Objective("throughput"))
    assert objective_of(stored(*THREE, row)) == THREE[0].objective


def test_tables_of_them_do_not_count_among_those_that_lack_a_final() -> None:
    other = [replace(each, batch=2) for each in THREE]
    alone = replace(BUILT[0], batch=4)
    asked = how_to_decide(tables(stored(*THREE, *other, alone)), ())
    assert asked[0].text.startswith("2 of 2 tables")
    assert how_to_decide(tables(ALONE), ()) == ()


def test_no_floor_of_this_machine_and_no_curve_is_theirs() -> None:
    assert floors(built(1, minimum_bytes=1 << 30), CEILINGS) == ()
    assert batch_curves(stored(built(1), built(2, batch=4))) == []


def test_progress_ranks_them_last_and_gives_them_no_place() -> None:
    ((found, _),) = standings([BUILT[0], *THREE])
    assert [row.status for row in found] == ["ok", "ok", "parity_failed", "built"]
    file = io.StringIO()
    with TerminalProgress((), Console(file=file, width=80, force_terminal=True, color_system="standard")) as progress:
        progress.tell("[1/1] tensorrt-rtx fp16", "built", "")
    assert "\x1b[32mbuilt" in file.getvalue()


def test_a_time_limit_that_ran_out_does_not_count_them_among_the_variants_to_measure() -> None:
    rows = stored(*THREE[:2], *BUILT)
    (made, *_) = notes.out_of_time(OutOfTime(60.0, 61.0, (), ()), rows, "bakeoff sweep toy --resume")
    assert "2 of 2 variants measured" in str(made)


@pytest.mark.parametrize("rows", [BUILT, (*THREE, *BUILT)], ids=["alone", "mixed"])
@pytest.mark.parametrize("page", [name for name in PAGES if name not in ("readme", "plots", "recommendation")])
def test_every_page_has_them(page: str, rows: tuple[Record, ...]) -> None:
    found = PAGES[page](records_of(*rows))
    assert "sm89" in found
    assert "sm120" in found
    assert page == "json" or "Built for other GPUs" in found


@pytest.mark.parametrize("page", ["readme", "plots"])
def test_pages_of_times_are_as_without_them(page: str) -> None:
    assert PAGES[page](records_of(*THREE, *BUILT)) == PAGES[page](records_of(*THREE))
    assert "sm89" not in PAGES[page](records_of(*BUILT))


def test_pages_cite_their_records() -> None:
    for page in ("results", "whole", "history"):
        assert set(markdown.citations(PAGES[page](records_of(*BUILT)))) == {"id-0", "id-1"}
    assert selection.shorts(records_of(*BUILT)) == []


def test_the_history_has_a_line_on_a_sweep_that_only_built() -> None:
    line = next(line for line in PAGES["history"](records_of(*BUILT)).splitlines() if line.startswith("- 2026"))
    assert line.endswith("built for sm89, sm120")
    assert "built for" not in PAGES["history"](records_of(*THREE, *BUILT))


def test_data_of_the_rows_has_what_was_built() -> None:
    first, *_ = (row for row in json.loads(PAGES["json"](records_of(*THREE, *BUILT))) if row["status"] == "built")
    assert (first["latency"], first["stale"], first["floor"]) == (None, None, None)
    assert first["built"] | {"engine_s": 0} == {
        "target": "sm89",
        "engines": 3,
        "engine_s": 0,
        "engine_peak_bytes": 11 << 30,
        "tensorrt_rtx": "1.7.1",
        "precisions": "fp16, fp32",
        "operators_inside": {"Conv": 300, "MatMul": 284},
        "operators_outside": {"NonZero": 1, "Resize": 2},
        "engine_bytes": 231 << 20,
    }


def test_csv_has_them() -> None:
    for rows in (BUILT, (*THREE, *BUILT)):
        text = exports.as_csv(exports.flat_rows(records_of(*rows)))
        found = [row for row in csv.DictReader(text.splitlines()) if row["status"] == "built"]
        assert [row["backend"] for row in found] == ["tensorrt-rtx[target=sm89]", "tensorrt-rtx[target=sm120]"]
        assert [(row["reason"], row["build_s"], row["median_ms"], row["stale"]) for row in found] == [
            ("", "412.4", "", "")
        ] * 2


def test_a_record_that_lacks_the_facts_breaks_no_page() -> None:
    bare = replace(BUILT[0], measurement=measurement(status="built"))
    hostile = replace(
        BUILT[0].measurement.proof or ProofRecord(), facts={"engine_peak_bytes": "many", "target": "a|b\n"}
    )
    strange = replace(BUILT[1], measurement=replace(BUILT[1].measurement, proof=hostile))
    for name in PAGES:
        assert PAGES[name](records_of(*THREE, bare, strange)) is not None
        assert PAGES[name](records_of(bare)) is not None


@pytest.mark.parametrize("strict", [False, True])
def test_a_sweep_that_only_built_succeeded(strict: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = SweepResult("sweep", ALONE, ())
    assert exit_code(done, strict) == 0
    assert exit_code(SweepResult("sweep", stored(*THREE[:2], *BUILT), ()), strict) == 0
    assert exit_code(SweepResult("sweep", stored(MISSING), ()), strict) == 3
    assert exit_code(SweepResult("sweep", stored(*BUILT, CRASHED), ()), strict) == int(strict)
    print_done(done, 2, tmp_path, "bakeoff sweep toy --resume")
    found = capsys.readouterr().out
    assert "2 of 2 variants recorded" in found
    assert "Built for sm89, sm120 " in found
