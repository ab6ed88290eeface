"""Pages are pure functions of records: three fixed records give exact bytes, and no text in a record breaks a page."""

from dataclasses import replace
from pathlib import Path

import pytest
from few_records import (
    PAGES,
    TEN,
    at,
    block,
    history_text,
    publish,
    stored,
    tables,
    whole_tables,
    width,
)
from pages import results_text, tables_text
from records import HOST, machine_of_host, measurement, record

from bakeoff.record.finding import Finding
from bakeoff.record.store import load_all, save, supersede
from bakeoff.report.pages import files, history, readme
from bakeoff.report.render.markdown import escape, render

HOSTILE = "a|b \\| c \\\\| <script>x</script>\n\n# not a heading\n| x | y |\n<!-- end of results -->"


class TestThreeRecords:
    """Kept as files: stored records must stay readable and give the same pages."""

    def test_table(self) -> None:
        assert tables_text(load_all(PAGES).current) + "\n" == (PAGES / "table.txt").read_text(encoding="utf-8")

    def test_history(self) -> None:
        assert history_text(load_all(PAGES)) == (PAGES / "history.md").read_text(encoding="utf-8")

    def test_readme_block(self) -> None:
        assert block(load_all(PAGES)) + "\n" == (PAGES / "readme.md").read_text(encoding="utf-8")

    def test_results(self) -> None:
        records = load_all(PAGES)
        page = results_text(records, records.machines()[0])
        assert page == (PAGES / "results.md").read_text(encoding="utf-8")


class TestPureFunctions:
    def test_pages_do_not_depend_on_this_host(self, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = history_text(load_all(runs)), block(load_all(runs))
        monkeypatch.setenv("TZ", "Pacific/Kiritimati")
        monkeypatch.setenv("LC_ALL", "C")
        monkeypatch.chdir("/")
        assert (history_text(load_all(runs)), block(load_all(runs))) == before

    def test_no_records(self, tmp_path: Path) -> None:
        empty = load_all(tmp_path)
        assert "No records yet." in history_text(empty)
        assert block(empty) == f"{readme.BEGIN}\n{readme.END}"
        assert tables_text(empty.current) == ""


class TestRowsWithoutNumbers:
    @pytest.mark.parametrize("status", ["unavailable", "timeout", "oom", "crashed", "build_failed", "call_failed"])
    def test_are_shown_with_their_reason(self, status: str, tmp_path: Path) -> None:
        save(tmp_path, record("eager", TEN))
        save(tmp_path, record("inductor", status=status, reason="no kernel for conv3d"))
        records = load_all(tmp_path)
        if status == "unavailable":
            assert f"1 row cannot run here (1 {status}): inductor fp32 (why: " in tables_text(records.current)
        else:
            assert f"inductor fp32: {status}: no kernel for conv3d" in tables_text(records.current)
            assert f"inductor fp32**: {status}: no kernel for conv3d" in history_text(records)
        assert f"inductor fp32**: {status}: no kernel for conv3d" in whole_tables(records) or status == "unavailable"

    def test_a_finding_that_is_the_reason_of_a_status_is_shown_once_with_its_code(self) -> None:
        found = Finding("drift", "calls got slower")
        made = stored(record("eager", TEN), record("inductor", TEN, "unstable", findings=(found,), reason=found.text))
        lines = tables_text(made).splitlines()
        assert [line for line in lines if found.text in line] == ["inductor fp32: unstable: calls got slower [drift]"]


class TestHostileText:
    @pytest.fixture
    def hostile(self, tmp_path: Path) -> Path:
        base = record("eager", TEN, note=HOSTILE, label=HOSTILE, checkpoint=HOSTILE, config={HOSTILE: HOSTILE})
        host = replace(HOST, cpu=HOSTILE)
        spoilt = replace(base, host=host, machine=machine_of_host(host), versions={HOSTILE: HOSTILE}, commit=HOSTILE)
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
        overview = render(history.of_all(shown))
        pages = (
            (overview, 1),
            (history_text(records), 0),
            (whole_tables(records), 2),
            (whole_tables(shown), 1),
            (block(shown), 1),
        )
        for page, count in pages:
            found = tables(page)
            assert len(found) == count
            for rows in found:
                assert {width(line) for line in rows} == {width(rows[0])}
                assert all(line.endswith("|") for line in rows)
            assert "<script" not in page
            assert page.count(readme.END) == page.count(readme.BEGIN) == (1 if page.startswith(readme.BEGIN) else 0)
            headings = [line for line in page.splitlines() if line.startswith("# ")]
            assert all(line.startswith(("# Optimization history", "# Results")) for line in headings)

    def test_pages_survive_their_own_check(self, hostile: Path) -> None:
        (hostile.parent / "README.md").write_text(f"# mine\n\n{readme.BEGIN}\n{readme.END}\n\nafter\n")
        files.update(hostile)
        for _ in range(2):
            publish(hostile)
        assert (files.check(hostile), readme.check(hostile / "published")) == ([], None)
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
