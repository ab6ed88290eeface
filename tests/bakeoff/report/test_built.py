"""Rows that were built for GPUs which this machine lacks: alone, beside timed rows, and on every page."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from answers import as_text
from ceilings import CEILINGS
from few_records import THREE, at, records_of, stored
from pages import PAGES
from records import measurement

from bakeoff.cli.ended import exit_code, print_done
from bakeoff.record.floor import floors
from bakeoff.record.schema import BuildCost, ProofRecord, Record, Source
from bakeoff.report.document import Document
from bakeoff.report.groups import baselines, stale_reasons, tables
from bakeoff.report.pages import sweep
from bakeoff.report.pages.batch_curve import batch_curves
from bakeoff.report.recommendation import decision, deployment
from bakeoff.report.render import terminal
from bakeoff.sweeps.run import SweepResult
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


def test_no_floor_of_this_machine_and_no_curve_is_theirs() -> None:
    assert floors(built(1, minimum_bytes=1 << 30), CEILINGS) == ()
    assert batch_curves(stored(built(1), built(2, batch=4))) == []


@pytest.mark.parametrize("rows", [BUILT, (*THREE, *BUILT)], ids=["alone", "mixed"])
@pytest.mark.parametrize("page", [name for name in PAGES if name not in ("readme", "recommendation")])
def test_every_page_has_them(page: str, rows: tuple[Record, ...]) -> None:
    found = PAGES[page](records_of(*rows))
    assert "sm89" in found
    assert "sm120" in found
    assert page in ("json", "history") or "Built for other GPUs" in found


def test_readme_is_as_without_them() -> None:
    assert PAGES["readme"](records_of(*THREE, *BUILT)) == PAGES["readme"](records_of(*THREE))
    assert "sm89" not in PAGES["readme"](records_of(*BUILT))


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


@pytest.mark.parametrize("strict", [False, True])
def test_a_sweep_that_only_built_succeeded(strict: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = SweepResult("sweep", ALONE, ())
    assert exit_code(done, strict) == 0
    assert exit_code(SweepResult("sweep", stored(*THREE[:2], *BUILT), ()), strict) == 0
    assert exit_code(SweepResult("sweep", stored(MISSING), ()), strict) == 3
    assert exit_code(SweepResult("sweep", stored(*BUILT, CRASHED), ()), strict) == int(strict)
    print_done(done, 2, tmp_path, "bakeoff sweep toy --resume")
    found = capsys.readouterr().out
    assert "2 of 2 rows recorded" in found
    assert "Built for sm89, sm120 " in found
