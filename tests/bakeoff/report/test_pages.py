"""Pages are pure functions of records: three fixed records give exact bytes, and no text in a record breaks a page."""

import json
import random
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from records import GPU_HOST, HOST, SETTLED, bakeoff, measurement, record

from bakeoff.backends import resolve_backend
from bakeoff.machine.identity import Machine
from bakeoff.models import component_names, resolve_component
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import TraceResult
from bakeoff.record.schema import (
    SCHEMA,
    Comparison,
    Finding,
    KernelTime,
    ProofRecord,
    Record,
    Round,
    Samples,
    TraceRecord,
)
from bakeoff.record.store import Records, Stored, load_all, move_former_layout, save, supersede
from bakeoff.report.columns import COLUMNS, cells, contexts
from bakeoff.report.comparable import baselines
from bakeoff.report.groups import group_key, groups, name_of, newest, title
from bakeoff.report.markdown import elsewhere, files, history, readme, results, whole
from bakeoff.report.markdown.escape import escape
from bakeoff.report.markdown.table import citations
from bakeoff.report.recommendation import recommendation
from bakeoff.report.selection import chosen, frame, shorts
from bakeoff.report.speedups import speedup
from bakeoff.report.spread import BUILDS_LEGEND, spread_text, spreads
from bakeoff.report.text import doctor, listing, table
from bakeoff.report.text import record as one
from bakeoff.sweeps.trace import with_trace

PAGES = Path(__file__).parents[2] / "golden" / "pages"
TEN = [10 + 0.1 * index for index in range(20)]  # median 10.95, interval [10.5, 11.4]
HOSTILE = "a|b \\| c \\\\| <script>x</script>\n\n# not a heading\n| x | y |\n<!-- end of results -->"


def ms(first: float) -> list[float]:
    """Twenty samples 0.1 ms apart: the median is 0.95 above the first, its interval reaches from 0.5 to 1.4 above."""
    return [first + 0.1 * index for index in range(20)]


def at(second: int, *arguments: Any, **changes: Any) -> Record:
    return record(*arguments, created=f"2026-01-02T03:04:{second:02}.000000Z", **changes)


THREE = (
    at(1, "eager", ms(10.0), note="first run"),
    at(2, "inductor", ms(5.0), findings=(Finding("busy-host", "load average 3.0 before the worker started"),)),
    at(3, "inductor[freezing]", ms(2.0), "parity_failed", "y differs by 5.00e-01 relative L2, over 2.00e-06"),
)


def stored(*records: Record) -> tuple[Stored, ...]:
    return tuple(Stored(f"id-{index}", entry) for index, entry in enumerate(records))


def texts(rows: Sequence[Stored]) -> Iterator[list[str]]:
    """All columns of each row."""
    return (cells(tuple(COLUMNS), made, context) for made, context in contexts(rows))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for entry in THREE:
        save(tmp_path / "runs", entry)
    return tmp_path / "runs"


def width(line: str) -> int:
    """Cells of a markdown row as GitHub counts them: a backslash takes the next character with it."""
    return len(re.findall(r"(?<!\\)\|", re.sub(r"\\\\", "", line.strip()))) - 1


def block(records: Records) -> str:
    """README's results of all these records."""
    return readme.render(chosen(records))


def whole_tables(records: Records) -> str:
    """The page of the whole tables behind README's results."""
    return whole.render(chosen(records))


def unbroken(text: str) -> str:
    return text.replace("<wbr>", "")


def definitions(text: str) -> dict[str, str]:
    """The addresses of README's records by their short names."""
    return dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", text, re.MULTILINE))


def folder_in(runs: Path) -> Path:
    """The only folder of records."""
    (folder,) = runs.glob("*/records")
    return folder


def tables(page: str) -> list[list[str]]:
    """The page's tables, each as its rows."""
    found: list[list[str]] = []
    before = ""
    for line in page.splitlines():
        if line.startswith("|"):
            if not before.startswith("|"):
                found.append([])
            found[-1].append(line)
        before = line
    return found


class TestThreeRecords:
    """Kept as files: stored records must stay readable and give the same pages."""

    def test_table(self) -> None:
        assert table.render(load_all(PAGES).current) + "\n" == (PAGES / "table.txt").read_text(encoding="utf-8")

    def test_history(self) -> None:
        assert history.render(load_all(PAGES)) == (PAGES / "history.md").read_text(encoding="utf-8")

    def test_readme_block(self) -> None:
        assert block(load_all(PAGES)) + "\n" == (PAGES / "readme.md").read_text(encoding="utf-8")

    def test_whole_tables(self) -> None:
        assert whole_tables(load_all(PAGES)) == (PAGES / "whole.md").read_text(encoding="utf-8")

    def test_results(self) -> None:
        records = load_all(PAGES)
        page = results.render(records, records.machines()[0])
        assert page == (PAGES / "results.md").read_text(encoding="utf-8")

    def test_no_row_vanishes(self) -> None:
        records = load_all(PAGES)
        assert (len(records.current), records.problems) == (3, ())
        for page in (table.render(records.current), history.render(records), unbroken(whole_tables(records))):
            for name in ("eager fp32", "inductor fp32", "inductor[freezing] fp32"):
                assert name in page
            assert "parity_failed" in page
        for page in (table.render(records.current), history.render(records)):
            assert "y differs by 5.00e-01 relative L2, over 2.00e-06" in page


class TestPureFunctions:
    def test_same_records_same_bytes(self, runs: Path, tmp_path: Path) -> None:
        first = load_all(runs)
        other = tmp_path / "other" / folder_in(runs).relative_to(runs)
        other.mkdir(parents=True)
        names = [path.name for path in folder_in(runs).iterdir()]
        for name in random.Random(1).sample(names, len(names)):
            shutil.copy(folder_in(runs) / name, other / name)
        second = load_all(tmp_path / "other")
        assert history.render(second) == history.render(first) == history.render(first)
        assert block(second) == block(first)
        assert whole_tables(second) == whole_tables(first)
        assert table.render(second.current) == table.render(first.current)

    def test_pages_do_not_depend_on_this_host(self, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = history.render(load_all(runs)), block(load_all(runs))
        monkeypatch.setenv("TZ", "Pacific/Kiritimati")
        monkeypatch.setenv("LC_ALL", "C")
        monkeypatch.chdir("/")
        assert (history.render(load_all(runs)), block(load_all(runs))) == before

    def test_no_records(self, tmp_path: Path) -> None:
        empty = load_all(tmp_path)
        assert "No records yet." in history.render(empty)
        assert block(empty) == f"{readme.BEGIN}\n{readme.END}"
        assert table.render(empty.current) == ""


class TestGroups:
    def test_records_that_must_not_be_compared_are_in_groups_of_their_own(self) -> None:
        base = record("eager", TEN)
        others = [
            replace(base, batch=2),
            replace(base, threads=1),
            replace(base, weight_seed=1),
            replace(base, input_seed=1),
            replace(base, checkpoint="w.pt"),
            replace(base, host=replace(HOST, cpu="Other CPU")),
            replace(base, machine=Machine("0123456789ab", "", "Test CPU, 4 cores")),
            replace(base, config={"width": 64, "length": 16}),
            replace(base, variant=replace(base.variant, preset="small")),
            replace(base, variant=replace(base.variant, workload="sound")),
        ]
        assert len(groups(stored(base, *others))) == len(others) + 1
        assert len(groups(stored(base, replace(base, note="x", sweep="y"), record("inductor", TEN)))) == 1

    def test_a_config_is_the_same_after_json(self) -> None:
        """In memory a config holds tuples, from a file lists."""
        fresh, read = record(config={"sizes": (1, 2)}), record(config={"sizes": [1, 2]})
        assert group_key(fresh) == group_key(read)

    def test_titles_name_the_subject_and_the_machine(self) -> None:
        assert title(record()) == (
            "toy:tiny.world (toy), batch 1, Test CPU, 4 cores, 4 threads, random weights, seed 0"
        )
        made = record(checkpoint="ema.pt", label="", batch=2, host=GPU_HOST)
        made = replace(made, variant=replace(made.variant, device="cuda"))
        assert title(made) == "toy:tiny.world, batch 2, Test GPU, 4 threads, ema.pt"

    def test_newest_of_each_variant(self) -> None:
        old, new = at(1, "eager", ms(10.0)), at(9, "eager", ms(20.0))
        other = at(5, "inductor", ms(5.0))
        for order in ((old, other, new), (new, other, old), (old, new, other)):
            kept = {entry.record.created for entry in newest(stored(*order))}
            assert kept == {new.created, other.created}


class TestSeveralBuilds:
    """Build 1 has a median of 5.95 ms, with processes from 3.95 to 7.95 ms; build 2 has 9.95 ms in each process."""

    BUILDS = (
        at(1, "inductor", ms(3.0)),
        at(2, "inductor", ms(9.0), build_number=2),
        at(3, "inductor", ms(5.0), process=2),
        at(4, "inductor", ms(9.0), build_number=2, process=2),
        at(5, "inductor", ms(7.0), process=3),
        at(6, "inductor", ms(9.0), build_number=2, process=3),
    )

    def test_the_row_is_the_median_process_of_the_best_build(self) -> None:
        for order in (self.BUILDS, self.BUILDS[::-1]):
            (row,) = newest(stored(*order))
            assert (row.record.build_number, row.record.process) == (1, 2)

    def test_one_lucky_process_does_not_make_a_build_the_best(self) -> None:
        lucky = at(7, "inductor", ms(1.0), build_number=2, process=4)
        (row,) = newest(stored(*self.BUILDS, lucky))
        assert (row.record.build_number, row.record.process) == (1, 2)

    @pytest.mark.parametrize("status", ["unstable", "crashed", "parity_failed"])
    def test_a_build_that_is_not_ok_is_the_row(self, status: str) -> None:
        samples = () if status == "crashed" else ms(20.0)
        bad = at(7, "inductor", samples, status, "why", build_number=3)
        (row,) = newest(stored(*self.BUILDS, bad))
        assert (row.record.build_number, row.record.status) == (3, status)

    def test_an_older_sweep_does_not_count(self) -> None:
        older = at(0, "inductor", ms(0.5), build_number=3, sweep="older")
        (row,) = newest(stored(older, *self.BUILDS))
        assert row.record.build_number == 1

    def test_spread_between_builds_and_within_them_are_separate_figures(self) -> None:
        every = stored(*self.BUILDS)
        ((_, spread),) = spreads(newest(every), every)
        assert (spread.builds, spread.processes) == (2, 6)
        assert (spread.low_ms, spread.high_ms) == pytest.approx((5.95, 9.95))
        assert spread.between == pytest.approx(4.0 / 7.95)
        assert spread.between_processes == pytest.approx((4.0 / 5.95) / 2)
        assert spread.within == pytest.approx((0.95 / 9.95 + 0.95 / 7.95) / 2)

    def test_one_process_a_build_has_no_spread_between_processes(self) -> None:
        every = stored(*self.BUILDS[:2])
        ((_, spread),) = spreads(newest(every), every)
        assert (spread.builds, spread.between_processes) == (2, None)
        assert spread.between == pytest.approx(6.0 / 6.95)

    def test_pages_show_the_spread_and_which_build_they_show(self) -> None:
        every = stored(*self.BUILDS)
        ((entry, found),) = spreads(newest(every), every)
        text = spread_text(entry.record, found)
        for figure in ("2 builds", "5.950 to 9.950 ms", "50.3%", "33.6%", "10.7%"):
            assert figure in text
        assert f"{text}\n{BUILDS_LEGEND}\n" in table.render(newest(every), (), every)
        page = history.render(Records(every, (), ()))
        assert f"- {text}\n- {escape(BUILDS_LEGEND)}\n" in page
        assert page.count("/records/id-") == len(every), "a line for every build"

    def test_processes_of_one_build_have_a_spread_without_the_legend(self) -> None:
        every = stored(*(entry for entry in self.BUILDS if entry.build_number == 1))
        text = table.render(newest(every), (), every)
        assert "inductor fp32 in 3 processes: medians 3.950 to 7.950 ms, 67.2% apart" in text
        assert BUILDS_LEGEND not in text

    def test_one_record_shows_its_build_number(self) -> None:
        assert "build 2, process 3, " in one.render(stored(*self.BUILDS)[5])

    def test_records_without_a_build_number_are_of_the_first_build(self) -> None:
        assert {entry.record.build_number for entry in load_all(PAGES).current} == {1}


class TestSpeedups:
    def test_against_the_same_dtype_and_fp32(self) -> None:
        rows = stored(
            record("eager", ms(20.0)),
            record("inductor", ms(10.0)),
            record("eager", ms(15.0), dtype="bf16"),
            record("inductor", ms(5.0), dtype="bf16"),
        )
        found = {row["variant"]: (row["vs_eager"], row["vs_eager_fp32"]) for row in table.as_rows(rows)}
        assert found["toy:tiny.world/inductor/bf16@cpu"] == (pytest.approx(15.95 / 5.95), pytest.approx(20.95 / 5.95))
        assert found["toy:tiny.world/inductor/fp32@cpu"] == (pytest.approx(20.95 / 10.95),) * 2
        assert found["toy:tiny.world/eager/fp32@cpu"] == (1.0, 1.0)

    def test_overlap_is_marked(self) -> None:
        eager = record("eager", TEN)
        assert str(speedup(record("inductor", ms(9.8)), eager)) == "1.02x ~"
        assert str(speedup(record("inductor", ms(5.0)), eager)) == "1.84x"
        assert str(speedup(record("inductor", ms(20.0)), eager)) == "0.52x"
        assert str(speedup(eager, eager)) == "1.00x"
        assert speedup(eager, None) is speedup(record(status="oom"), eager) is None

    @pytest.mark.parametrize("status", ["parity_failed", "fell_back", "unstable"])
    def test_only_ok_rows_are_ranked_or_compared_with(self, status: str) -> None:
        rows = stored(record("eager", TEN, status, "why"), record("inductor", ms(5.0)))
        assert [row["vs_eager"] for row in table.as_rows(rows)] == [None, None]
        assert baselines(rows) == {}
        rows = stored(record("eager", TEN), record("inductor", ms(5.0), status, "why"))
        assert [row["vs_eager"] for row in table.as_rows(rows)] == [1.0, None]
        assert "inductor" not in recommendation(rows)
        shown = dict(zip(COLUMNS, next(texts(rows[1:])), strict=True))
        assert (shown["median_ms"], shown["vs_eager"], shown["vs_eager_fp32"]) == ("5.950", "", "")


class TestRowsWithoutNumbers:
    @pytest.mark.parametrize("status", ["unavailable", "timeout", "oom", "crashed", "build_failed", "call_failed"])
    def test_are_shown_with_their_reason(self, status: str, tmp_path: Path) -> None:
        save(tmp_path, record("eager", TEN))
        save(tmp_path, record("inductor", status=status, reason="no kernel for conv3d"))
        records = load_all(tmp_path)
        assert f"inductor fp32: {status}: no kernel for conv3d" in table.render(records.current)
        assert "- inductor fp32: no kernel for conv3d" in history.render(records)
        assert f"| inductor fp32 | {status} | | | | |" in re.sub(" +", " ", history.render(records))
        (line,) = [line for line in whole_tables(records).splitlines() if line.startswith("| inductor fp32 ")]
        assert line.endswith(f" | {status} |  | no kernel for conv3d |")

    def test_findings_name_their_rows_unless_all_have_them(self) -> None:
        both, lone = Finding("busy", "the host was busy"), Finding("cold", "caches were cold")
        rows = stored(record("eager", TEN, findings=(both,)), record("inductor", TEN, findings=(both, lone)))
        lines = table.render(rows).splitlines()
        assert "note: the host was busy [busy]" in lines
        assert "note: caches were cold (inductor fp32) [cold]" in lines

    def test_a_finding_that_is_the_reason_of_a_status_is_shown_once_with_its_code(self) -> None:
        found = Finding("drift", "calls got slower")
        made = stored(record("eager", TEN), record("inductor", TEN, "unstable", findings=(found,), reason=found.text))
        lines = table.render(made).splitlines()
        assert [line for line in lines if found.text in line] == ["inductor fp32: unstable: calls got slower [drift]"]


class TestHostileText:
    @pytest.fixture
    def hostile(self, tmp_path: Path) -> Path:
        base = record("eager", TEN, note=HOSTILE, label=HOSTILE, checkpoint=HOSTILE, config={HOSTILE: HOSTILE})
        spoilt = replace(base, host=replace(HOST, cpu=HOSTILE), versions={HOSTILE: HOSTILE}, commit=HOSTILE)
        odd = replace(spoilt.variant, component=HOSTILE)
        save(tmp_path / "runs", spoilt)
        save(
            tmp_path / "runs",
            replace(spoilt, measurement=measurement(status="crashed", reason=HOSTILE), note="two\nlines"),
        )
        save(tmp_path / "runs", replace(spoilt, variant=odd, measurement=measurement([1.0], "parity_failed", HOSTILE)))
        supersede(tmp_path / "runs", save(tmp_path / "runs", at(9, "inductor", TEN)), HOSTILE)
        return tmp_path / "runs"

    def test_tables_and_headings_stay_intact(self, hostile: Path) -> None:
        records = load_all(hostile)
        assert (len(records.current), len(records.superseded)) == (3, 1)
        shown = replace(records, current=tuple(entry for entry in records.current if entry.record.status == "ok"))
        pages = ((history.render(records), 2), (whole_tables(records), 2), (whole_tables(shown), 1), (block(shown), 1))
        for page, count in pages:
            found = tables(page)
            assert len(found) == count
            for rows in found:
                assert {width(line) for line in rows} == {width(rows[0])}
                assert all(line.endswith("|") for line in rows)
            assert "<script" not in page
            assert page.count(readme.END) == page.count(readme.BEGIN) == (1 if page.startswith(readme.BEGIN) else 0)
            headings = [line for line in page.splitlines() if line.startswith("# ")]
            assert set(headings) <= {"# Optimization history", "# Results"}

    def test_a_stale_row_with_two_modes_stays_in_its_columns(self, tmp_path: Path) -> None:
        save(tmp_path, at(1, "inductor", [10.0] * 60 + [20.0] * 40, versions={HOSTILE: "1"}))
        save(tmp_path, at(2, "eager", TEN))
        (_, found) = tables(whole_tables(load_all(tmp_path)))
        assert " \\| " in found[2]
        assert {width(line) for line in found} == {4}

    def test_pages_survive_their_own_check(self, hostile: Path) -> None:
        (hostile.parent / "README.md").write_text(f"# mine\n\n{readme.BEGIN}\n{readme.END}\n\nafter\n")
        files.update(hostile)
        for _ in range(2):
            readme.publish(hostile, load_all(hostile))
        assert (files.check(hostile), readme.check(hostile)) == ([], None)
        text = (hostile.parent / "README.md").read_text()
        assert text.startswith("# mine\n\n")
        assert text.endswith(f"{readme.END}\n\nafter\n")

    @pytest.mark.parametrize(
        ("text", "escaped"),
        [
            ("plain [a, b] `c` 5 > 4", "plain [a, b] `c` 5 > 4"),
            ("a|b", "a\\|b"),
            ("a\\|b", "a\\\\\\|b"),
            ("<b>", "&lt;b>"),
            ("two\n\n  lines\t.", "two lines ."),
            ("\u2028\u2029\x0b\x0c\x1c", ""),
        ],
    )
    def test_escape(self, text: str, escaped: str) -> None:
        assert escape(text) == escaped


class TestHistoryPage:
    def test_superseded_records_are_listed_and_not_shown(self, runs: Path) -> None:
        bad = load_all(runs).current[1]
        supersede(runs, bad.id, "another program ran")
        page = history.render(load_all(runs))
        assert f"- `{bad.id}`: another program ran" in page.partition("## Superseded")[2]
        assert f"/{bad.id}.json)" not in page
        assert bad.id not in block(load_all(runs))
        assert bad.id not in whole_tables(load_all(runs))

    def test_check(self, runs: Path) -> None:
        assert len(files.check(runs)) == 3
        paths = files.update(runs)
        machine = folder_in(runs).parent
        assert paths == [runs / history.NAME, machine / "RESULTS.md", machine / history.NAME]
        for path in paths:
            assert files.check(runs) == []
            text = path.read_text()
            path.write_text(text.replace("10.95", "9.95"))
            (problem,) = files.check(runs)
            assert str(path) in problem
            path.write_text(text)
        save(runs, at(9, "inductor", ms(4.0)))
        assert len(files.check(runs)) == 3
        files.update(runs)
        assert files.check(runs) == []
        cited = next(folder_in(runs).glob("*freezing*.json"))
        cited.unlink()
        assert all(cited.stem in problem for problem in files.check(runs))

    def test_check_lists_every_file_that_cannot_be_read(self, runs: Path) -> None:
        for index in range(9):
            (folder_in(runs) / f"torn{index}.json").write_text("{")
        assert [problem.count(".json") for problem in files.check(runs)] == [1] * 9

    def test_check_of_pages_whose_records_are_gone(self, runs: Path) -> None:
        """The page of a machine that has no record left cites what is missing."""
        save(runs, replace(at(40, "eager", ms(9.0)), host=replace(HOST, cpu="Another CPU")))
        files.update(runs)
        (gone,) = [entry for entry in load_all(runs).current if entry.machine.name.startswith("Another")]
        (runs / gone.folder / f"{gone.id}.json").unlink()
        files.update(runs)
        problems = files.check(runs)
        assert len(problems) == 2
        assert all(gone.id in problem for problem in problems)

    def test_superseding_a_cited_record_is_stale_not_missing(self, runs: Path) -> None:
        files.update(runs)
        name = load_all(runs).current[0].id
        supersede(runs, name, "busy")
        problems = files.check(runs)
        assert len(problems) == 3
        assert name not in "".join(problems)

    def test_each_sweep_is_an_entry_of_its_component_and_machine(self, runs: Path) -> None:
        save(
            runs, replace(at(30, "eager", ms(9.0), note="after the change"), sweep="20260103T000000-fedcba", commit="")
        )
        save(runs, replace(at(40, "eager", ms(9.0)), host=replace(HOST, cpu="Another CPU")))
        records = load_all(runs)
        another, test = records.machines()
        page = history.render_machine(records, test)
        assert [line for line in page.splitlines() if line.startswith("## ")] == ["## toy"]
        assert page.count("\n#### ") == 2
        assert "sweep 20260103T000000-fedcba, outside a checkout" in page
        assert "> after the change\n" in page
        assert history.render_machine(records, another).count("\n#### ") == 1

    def test_the_page_of_all_machines_opens_with_the_one_that_measured_last(self, runs: Path) -> None:
        save(runs, replace(at(40, "eager", ms(9.0)), host=replace(HOST, cpu="Another CPU")))
        records = load_all(runs)
        another, test = records.machines()
        page = history.render(records)
        assert re.findall(r"^- (.+) \(\w{6}\): (\d) record", page, re.MULTILINE) == [
            (another.name, "1"),
            (test.name, "3"),
        ]
        assert len(citations(page)) == 1, "the history of the last machine alone"
        files.update(runs)
        for path in [*runs.glob("*.md"), *runs.glob("*/*.md")]:
            for target in re.findall(r"\]\(([^)]+)\)", path.read_text()):
                assert (path.parent / unquote(target)).is_file(), f"{path}: {target}"

    def test_what_others_published_is_quoted_and_not_divided_by(self) -> None:
        base = at(1, "eager", ms(10.0))
        made = [replace(base, variant=replace(base.variant, component=name)) for name in ("wm", "matrix-vae")]
        page = history.render(Records(stored(*made), (), ()))
        (lines,) = tables(page.partition(elsewhere.HEADING)[2])
        found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
        assert [row[1:] for row in found] == [["29.00", "3.10"], ["294", "not stated"]]
        assert "x" not in "".join(cell for row in found for cell in row[1:]), "no ratio"
        assert elsewhere.HEADING not in history.render(Records(stored(base), (), ()))

    def test_a_machine_that_only_compared_has_a_history(self, tmp_path: Path) -> None:
        sides = tuple(replace(made, measurement=replace(made.measurement, latency=None)) for made in THREE[:2])
        rounds = tuple(Round((0, 1), (Samples([300]), Samples([100]))) for _ in range(20))
        name = save(tmp_path, Comparison(SCHEMA, THREE[0].created, "", "interleaved", 1, sides, rounds))
        assert len(files.update(tmp_path)) == 3
        assert citations((tmp_path / history.NAME).read_text()) == [name]

    def test_records_of_the_former_layout_are_cited_where_they_lie(self, runs: Path) -> None:
        folder = folder_in(runs)
        folder.rename(runs / "records")
        folder.parent.rmdir()
        files.update(runs)
        for page in (runs / history.NAME, *runs.glob("*/*.md")):
            targets = re.findall(r"\]\(([^)]+\.json)\)", page.read_text())
            assert len(targets) == 3
            assert all((page.parent / unquote(target)).is_file() for target in targets)
        assert move_former_layout(runs) == 3
        files.update(runs)
        assert files.check(runs) == []
        assert len(list(runs.glob("*/RESULTS.md"))) == 1

    def test_only_pages_of_the_given_machines_are_written(self, runs: Path) -> None:
        save(runs, replace(at(40, "eager", ms(9.0)), host=replace(HOST, cpu="Another CPU")))
        another, test = load_all(runs).machines()
        files.update(runs)
        for path in runs.glob("*/*.md"):
            path.write_text("mine")
        written = files.update(runs, machines=[test.id])
        assert [path.parent.name for path in written] == [runs.name, test.folder, test.folder]
        assert (runs / another.folder / "RESULTS.md").read_text() == "mine"
        (runs / another.folder / history.NAME).unlink()
        assert len(files.update(runs, machines=[test.id])) == 5, "pages that are missing are written"

    def test_figures_are_those_of_the_samples(self, runs: Path) -> None:
        """Mean, Min, Max, Std and calls a second as written in the table, against the record itself."""
        page = history.render(load_all(runs))
        for entry in load_all(runs).current:
            (line,) = [line for line in page.splitlines() if f"/{entry.id}.json)" in line]
            found = [cell.strip() for cell in line.strip("|").split("|")]
            figures = entry.record.latency
            assert figures is not None
            wanted = (figures.mean_ms, figures.min_ms, figures.max_ms, figures.std_ms)
            assert [float(cell) for cell in found[2:6]] == pytest.approx(wanted, abs=0.005)
            assert found[9] == f"{1000 / figures.mean_ms:.2f}"


class TestReadmeBlock:
    def test_only_the_block_is_written(self, runs: Path) -> None:
        page = runs.parent / "README.md"
        records = load_all(runs)
        for text in ("", "no block here\n"):
            page.write_text(text)
            assert readme.check(runs) is None
            with pytest.raises(BakeoffError) as error:
                readme.publish(runs, records)
            assert error.value.code == "bad-page"
        page.write_text(f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter \\1 \\g<0>\n")
        assert readme.check(runs) is not None
        written = readme.publish(runs, records)
        assert written == [page, *(runs / name for name in (whole.NAME, "latency.svg"))]
        assert readme.check(runs) is None
        text = page.read_text()
        assert text.startswith(f"before\n{readme.BEGIN}\n![Latency of toy:tiny.world by variant](runs/latency.svg)\n")
        assert text.endswith(f"{readme.END}\nafter \\1 \\g<0>\n")
        page.write_text(text.replace("10.95 [10.50, 11.40]", "9.95 [9.50, 10.40]"))
        assert readme.check(runs) is not None

    @pytest.mark.parametrize("text", [f"{readme.BEGIN}\n", f"{readme.END}\n{readme.BEGIN}\n"])
    def test_block_without_an_end(self, runs: Path, text: str) -> None:
        (runs.parent / "README.md").write_text(text)
        for action in (lambda: readme.check(runs), lambda: readme.publish(runs, load_all(runs))):
            with pytest.raises(BakeoffError) as error:
                action()
            assert error.value.code == "bad-page"
        assert (runs.parent / "README.md").read_text() == text

    def test_cites_existing_records_only(self, runs: Path) -> None:
        save(runs, at(50, "eager", ms(11.0)))
        addresses = definitions(block(load_all(runs)))
        assert len(addresses) == 2  # the newest of each variant that is ok
        assert all(
            target.endswith(".json") and (runs.parent / unquote(target)).is_file() for target in addresses.values()
        )
        targets = re.findall(r"\(([^()]+\.json)\)", whole_tables(load_all(runs)))
        assert len(targets) == 3
        assert all((runs / unquote(target)).is_file() for target in targets)

    def test_a_component_has_its_three_fastest_rows_and_eager(self) -> None:
        names = [f"inductor[mode={number}]" for number in range(5)]
        made = [at(1, "eager", ms(90.0)), at(2, "eager", ms(80.0), dtype="bf16")]
        made += [at(3 + place, name, ms(50.0 - place)) for place, name in enumerate(names)]
        made.append(at(20, "aoti", ms(1.0), "parity_failed", "wrong"))
        (short,) = shorts(chosen(Records(stored(*made), (), ())))
        assert [name_of(entry.record) for entry in short.rows] == [
            *(f"{name} fp32" for name in names[:1:-1]),
            "eager fp32",
        ]
        assert len(short.table.rows) == len(made)

    def test_eager_is_shown_once(self) -> None:
        made = (at(1, "eager", ms(1.0)), at(2, "inductor", ms(5.0)))
        (short,) = shorts(chosen(Records(stored(*made), (), ())))
        assert [name_of(entry.record) for entry in short.rows] == ["eager fp32", "inductor fp32"]

    def test_no_line_is_wider_than_a_page(self) -> None:
        wide = "inductor[" + ",".join(f"option{index}=value" for index in range(20)) + "]"
        records = Records(stored(at(1, "eager", ms(9.0), label="a long label " * 30), at(2, wide, ms(1.0))), (), ())
        lines = block(records).splitlines()
        assert max(map(len, lines)) <= 160

    def test_an_address_that_is_too_long_leads_to_the_whole_tables(self) -> None:
        records = Records((Stored(f"{'x' * 150}_0123456789ab", at(1, "eager", TEN)),), (), ())
        assert definitions(block(records)) == {"01234567": "runs/RESULTS.md"}

    def test_the_frame_is_of_the_run_with_the_most_profiled_mixes(self) -> None:
        pages = load_all(Path(__file__).parents[3] / "runs")
        found = frame(pages)
        assert found is not None
        assert len({row.record.run for row in found.rows}) == 1
        assert all(row.record.measurement.profile is not None for row in found.rows)
        assert {row.entry.id for row in found.rows} <= {entry.id for entry in chosen(pages).pipelines}
        assert frame(replace(pages, pipelines=())) is None

    @pytest.fixture
    def published(self, runs: Path) -> Path:
        """README with a block of three records, whose best two rows have a final."""
        sides = tuple(replace(made, measurement=replace(made.measurement, latency=None)) for made in THREE[:2])
        rounds = tuple(Round((0, 1), (Samples([300]), Samples([100])), pair) for pair in range(7) for _ in range(3))
        save(runs, Comparison(SCHEMA, THREE[2].created, THREE[0].sweep, "interleaved", 1, sides, rounds))
        page = runs.parent / "README.md"
        page.write_text(f"{readme.BEGIN}\n{readme.END}\n")
        readme.publish(runs, load_all(runs))
        assert len(citations((runs / whole.NAME).read_text())) == 4
        assert readme.check(runs) is None
        return page

    def test_later_records_leave_the_block_as_it_is(self, runs: Path, published: Path) -> None:
        """It is checked against the records that it cites, not against the newest."""
        text, tables_text = published.read_bytes(), (runs / whole.NAME).read_text()
        for made in (
            at(50, "eager", ms(1.0), sweep="later"),
            at(51, "aoti", ms(2.0), sweep="later"),
            replace(at(52, "eager", ms(3.0)), host=replace(HOST, cpu="Another CPU")),
        ):
            save(runs, made)
        assert readme.check(runs) is None
        assert published.read_bytes() == text
        readme.publish(runs, load_all(runs))
        assert len(set(citations((runs / whole.NAME).read_text())) - set(citations(tables_text))) == 3

    @pytest.mark.usefixtures("published")
    def test_whole_tables_and_pictures_are_checked_too(self, runs: Path) -> None:
        for name in (whole.NAME, "latency.svg"):
            content = (runs / name).read_bytes()
            (runs / name).unlink()
            assert readme.check(runs) is not None
            (runs / name).write_bytes(content)
        (runs / whole.NAME).write_text((runs / whole.NAME).read_text().replace("11.88", "10.88"))
        assert "RESULTS.md differs" in (readme.check(runs) or "")

    @pytest.mark.usefixtures("published")
    def test_a_cited_entry_that_is_gone_or_superseded(self, runs: Path) -> None:
        for name in citations((runs / whole.NAME).read_text()):
            (path,) = runs.glob(f"*/records/{name}.json")
            content = path.read_bytes()
            path.unlink()
            assert name in (readme.check(runs) or "")
            path.write_bytes(content)
            assert readme.check(runs) is None
        supersede(runs, name, "busy")
        assert readme.check(runs) is not None


class TestOneRecord:
    def test_shows_what_the_record_holds(self, runs: Path) -> None:
        entry = load_all(runs).current[2]
        text = one.render(entry)
        for part in (
            "toy:tiny.world/inductor[freezing]/fp32@cpu",
            entry.id,
            "status    parity_failed: y differs by 5.00e-01",
            "latency   median 2.950 ms [2.500, 3.400], mean 2.950, min 2.000",
            "20 samples; 1 calls each, stopped: narrow",
            "build     12.2/3.5 s cold/warm, peak 300 MiB, no compiler process above 200 MiB",
            "memory    weights 50 MiB, inputs 1 MiB, host peak 500 MiB, calls add 10 MiB",
            "reference reference-1, eager fp64, 4 sets of inputs",
            "y: relative L2 5.00e-01, limit 2.00e-06",
            "captured calls 12",
            "versions  bakeoff 0.1.0, torch 2.13.0",
            "not on this machine (was logs/20260102T030400-abcdef/toy.log in the cache folder)",
        ):
            assert part in text

    @pytest.mark.parametrize("status", ["unavailable", "crashed", "build_failed"])
    def test_of_a_row_without_numbers(self, status: str) -> None:
        made = record(made=measurement(status=status, reason="why", traceback="Traceback\n  ValueError: x\n"))
        text = one.render(Stored("id", made))
        assert f"status    {status}: why" in text
        assert text.endswith("Traceback\n  ValueError: x")

    def test_log_on_this_machine(self, tmp_path: Path) -> None:
        made = record()
        path = tmp_path / "cache" / made.log
        path.parent.mkdir(parents=True)
        path.touch()
        assert one.log_path(made) == str(path)


class TestProof:
    """The proof and the kernels that `show` prints."""

    PROOF = ProofRecord(
        graphs=1,
        graph_breaks=0,
        recompiles=("guard failed: x.size(0) == 1",),
        operators_inside={f"aten.op{index}": index for index in range(1, 16)},
        operators_outside={"mm": 3},
        facts={"kernels_generated": 7},
        quantised={f"layer.{index}": "int8 dynamic" for index in range(6)},
        skipped={"gate": "128 elements, fewer than 65536"},
        trace=TraceRecord(
            (KernelTime("cpp_fused_add_0", 2.0, 600_000, True), KernelTime("aten::mm", 1.0, 250_000, False)),
            12,
            1_000_000,
            900_000,
            600_000,
        ),
        incomplete="the traced build has another graph (aa, measured bb)",
    )

    @pytest.fixture
    def row(self) -> Record:
        return replace(record("inductor", TEN, made=measurement(TEN, proof=self.PROOF)), quantisation="dynamic")

    def test_holds_the_evidence(self, row: Record) -> None:
        text = one.render(Stored("id", row))
        for line in (
            "proof     graphs 1, graph breaks 0, recompiles 1, kernels_generated 7",
            f"  evidence that inductor ran: {resolve_backend('inductor').evidence.checks}",
            "  incomplete: the traced build has another graph (aa, measured bb)",
            "  recompiled: guard failed: x.size(0) == 1",
            "  operators outside: mm 3",
            "  quantised: 6, int8 dynamic: layer.0, layer.1, layer.2, layer.3 and 2 more",
            "  left: 1, 128 elements, fewer than 65536: gate",
            "  a traced call took 1.000 ms, 90% in named kernels, 60% in the compiler's own (*); the 2 longest of 12:",
        ):
            assert line in text.splitlines()
        (inside,) = (line for line in text.splitlines() if line.startswith("  operators inside: "))
        assert inside.startswith("  operators inside: aten.op15 15, aten.op14 14,")
        assert inside.endswith("aten.op4 4 and 3 more")
        kernels = [line.split() for line in text.splitlines() if line.startswith(("    cpp_fused", "    aten::mm"))]
        assert kernels == [["cpp_fused_add_0", "*", "2", "0.6000", "60%"], ["aten::mm", "1", "0.2500", "25%"]]

    def test_a_fallback_is_printed(self) -> None:
        made = measurement(TEN, "fell_back", "fell back to eager", proof=ProofRecord(fell_back="eager"))
        assert "  fell back: eager" in one.render(Stored("id", record("inductor", made=made))).splitlines()

    def test_of_a_backend_that_is_not_in_the_table(self) -> None:
        text = one.render(Stored("id", record("canary", TEN)))
        assert "canary ran" not in text
        assert "proof     graphs 1" in text

    def test_a_record_cannot_name_code_to_import(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "evil.py").write_text("raise SystemExit('was imported')\n")
        monkeypatch.syspath_prepend(tmp_path)
        assert "proof " in one.render(Stored("id", record("evil:X", TEN)))

    def test_a_gpus_idle_time_is_shown(self) -> None:
        trace = TraceRecord((), 3, 2_000_000, 1_900_000, 0, span_ns=5_000_000, busy_ns=1_500_000)
        made = measurement(TEN, proof=ProofRecord(trace=trace))
        lines = one.render(Stored("id", record("inductor", made=made))).splitlines()
        assert "  the GPU is idle for 70% of the 5.000 ms between events around a call" in lines
        assert any(line.startswith("  a traced call took 2.000 ms, 95% in named kernels") for line in lines)
        on_cpu = measurement(TEN, proof=replace(ProofRecord(trace=trace), trace=replace(trace, span_ns=0)))
        assert "idle" not in one.render(Stored("id", record("inductor", made=on_cpu)))

    def test_a_trace_of_no_time_is_shown(self) -> None:
        proof = ProofRecord(trace=TraceRecord((), 0, 0, 0, 0))
        assert "a traced call took 0.000 ms, 0% in named" in one.render(
            Stored("id", record("inductor", made=measurement(TEN, proof=proof)))
        )

    @pytest.mark.parametrize(
        ("quantisation", "name"),
        [
            ("", "inductor bf16"),
            ("dynamic", "inductor bf16 (dynamic int8)"),
            ("weight-only", "inductor bf16 (int8 weights)"),
            ("static", "inductor bf16 (static int8)"),
            ("fp8", "inductor bf16 (fp8)"),
        ],
    )
    def test_tables_name_the_class_of_a_quantised_row(self, quantisation: Any, name: str) -> None:
        made = record("inductor", TEN, dtype="bf16", quantisation=quantisation)
        assert name_of(made) == name
        assert next(texts(stored(made)))[0] == name
        assert name in table.render(stored(made)).splitlines()[-1]

    def test_a_table_notes_an_incomplete_trace(self) -> None:
        made = measurement(TEN, proof=ProofRecord(graph_hash="bb"))
        assert self.PROOF.trace
        trace = replace(self.PROOF.trace, graph_hash="aa")
        made = with_trace(made, TraceResult(None, trace, {}, {}), True)
        text = table.render(stored(record("eager", TEN), record("inductor", made=made)))
        (finding,) = made.findings
        assert f"note: {finding.text} (inductor fp32) [proof.incomplete]" in text.splitlines()

    def test_a_page_lists_the_longest_kernels(self, row: Record) -> None:
        page_of = pytest.importorskip("bakeoff.report.html.page")
        text = page_of.render(Records((Stored("id", row),), (), (), ()))
        assert "cpp_fused_add_0 60%, aten::mm 25%" in text


class TestListing:
    def test_holds_the_evidence_that_a_backend_ran(self) -> None:
        text = listing.render(listing.read())
        assert f"inductor: {resolve_backend('inductor').evidence.checks}" in text.splitlines()

    def test_holds_every_component_preset_and_backend(self) -> None:
        found = listing.read()
        assert list(found.components) == list(component_names())
        text = listing.render(found)
        for name in component_names():
            for preset in resolve_component(name).presets:
                assert preset.name in text
        assert "{:,}".format(resolve_component("wm").parameters(resolve_component("wm").preset("1b").config)) in text

    def test_of_one_component(self) -> None:
        assert list(listing.read("toy").components) == ["toy"]

    def test_every_backend_is_ready_or_has_a_reason(self) -> None:
        for line in listing.read_backends():
            assert "\n" not in line.gap
            assert line.option_sets or line.gap

    def test_doctor_reports_what_makes_numbers_wrong(self) -> None:
        text = doctor.render(doctor.read())
        for word in ("CPU ", "bf16 ", "memory ", "load ", "versions ", "records ", "caches "):
            assert f"\n{word}" in f"\n{text}"
        spoilt = replace(doctor.read(), versions={"bakeoff": "0"}, known_bad=("cuDNN x is bad",), load=1e3)
        text = doctor.render(spoilt)
        (problem,) = [line for line in text.splitlines() if line.startswith("problem ")]
        assert "torch" in problem
        assert "warning   cuDNN x is bad" in text
        assert "1000.00: busy" in text


class TestJson:
    """With --json stdout is one JSON value and nothing else, under keys that scripts can rely on."""

    def json(self, *arguments: str, cwd: Path, code: int = 0) -> Any:
        ran = bakeoff(*arguments, "--json", cwd=cwd)
        assert ran.code == code, ran.err
        assert ran.out.endswith("}\n")
        return json.loads(ran.out)

    def test_list(self, tmp_path: Path) -> None:
        found = self.json("list", "toy", cwd=tmp_path)
        assert list(found) == ["components", "presets", "backends", "really_ran"]
        assert found["presets"][0] == {
            "component": "toy",
            "preset": "tiny",
            "label": "toy",
            "parameters": 24451,
            "workloads": ["world", "picture", "sound", "stream"],
            "default_on": ["cpu"],
        }
        assert list(found["backends"][0]) == ["backend", "summary", "device", "gap", "option_sets"]

    def test_doctor(self, tmp_path: Path) -> None:
        found = self.json("doctor", cwd=tmp_path)
        assert list(found) == [
            "host", "versions", "load", "available_bytes", "native_bf16", "known_bad", "gpu_limits",
            "backends", "runs", "cache",
        ]  # fmt: skip
        assert found["cache"] == str(tmp_path / "cache")
        assert found["runs"] == str(tmp_path / "runs")

    def test_show_and_table(self, runs: Path) -> None:
        first = load_all(runs).current[0]
        found = self.json("show", first.id, cwd=runs)
        assert list(found) == ["id", "log", "record"]
        assert found["record"]["measurement"]["latency"]["samples_ns"] == list(
            first.record.measurement.latency.samples_ns  # type: ignore[union-attr]
        )
        found = self.json("table", "toy", cwd=runs)
        assert list(found) == ["records", "rows", "problems", "machines", "pipelines"]
        assert found["records"] == [row["record"] for row in found["rows"]]
        assert list(found["rows"][1]) == [
            "record", "variant", "quantisation", "status", "reason", "stale", "latency", "copy_ms", "video_fps",
            "floor", "of_floor", "vs_eager", "vs_eager_fp32", "peak_mib", "sqnr_db", "build", "limits",
        ]  # fmt: skip
        assert found["rows"][1]["vs_eager"] == pytest.approx(10.95 / 5.95)
        assert found["rows"][1]["latency"]["median_ms"] == pytest.approx(5.95)

    def test_history(self, runs: Path) -> None:
        written = self.json("history", cwd=runs)["written"]
        assert written == [str(runs / history.NAME), *sorted(map(str, runs.glob("*/*.md")), reverse=True)]
        assert self.json("history", "--check", cwd=runs) == {"problem": "", "problems": []}
        (runs / history.NAME).write_text("mine")
        assert history.NAME in self.json("history", "--check", cwd=runs, code=1)["problem"]

    def test_dry_run_and_sweep(self, tmp_path: Path) -> None:
        found = self.json(*SETTLED, "--dry-run", cwd=tmp_path)
        assert list(found) == [
            "lines", "builds", "processes", "seconds", "disk_bytes", "objective", "batches", "references_s", "budget_s",
        ]  # fmt: skip
        assert list(found["lines"][0]) == [
            "variant", "batch", "build_number", "process", "settled", "seconds", "seconds_from", "memory_bytes",
            "disk_bytes", "fits",
        ]  # fmt: skip
        assert not (tmp_path / "runs").exists()
        found = self.json(*SETTLED, cwd=tmp_path, code=3)
        assert list(found) == ["sweep", "objective", "records", "finals", "interrupted", "spent_s", "out_of_time"]
        assert (found["interrupted"], found["out_of_time"]) == ([], None)
        assert [entry.id for entry in load_all(tmp_path / "runs").current] == found["records"]


def test_text_of_a_sweep(tmp_path: Path) -> None:
    """The table on stdout, progress on stderr; the history is there afterwards."""
    ran = bakeoff(*SETTLED, "--note", "try", cwd=tmp_path)
    assert ran.code == 3
    assert "Deploy nothing from this table: no row is ok." in ran.out
    assert "variants recorded in" in ran.out.splitlines()[-1]
    assert "1 row cannot run here (1 unsupported); the records say why." in ran.err
    assert "> try\n" in (tmp_path / "runs" / history.NAME).read_text()
    assert files.check(tmp_path / "runs") == []
