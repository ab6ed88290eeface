"""The HTML page: the same records give the same bytes, nothing is fetched, no name is executed, tables sort."""

import base64
import hashlib
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from browser import chromium, look
from few_records import ms
from few_records import records_of as records
from pages import Parsed
from records import HOST, measurement, record

from bakeoff.machine.floors import Ceiling
from bakeoff.models.errors import BakeoffError
from bakeoff.record.finding import Finding
from bakeoff.record.schema import Record
from bakeoff.record.store import Records, Stored, load_all, save, supersede
from bakeoff.report.figures.vega import Figure
from bakeoff.report.groups import tables
from bakeoff.report.pages import results, sweep
from bakeoff.report.render import html
from bakeoff.variant import BackendUse

SHOWN = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)> <b>b</b> %{x} &lt; '\""
HOSTILE = SHOWN.replace(" '", " \u2028 \x00'")
FOLDER = f"{record().machine.folder}/records"
"""Of the records of this file, relative to the folder of all runs."""
CEILINGS = (Ceiling("copy", "fp32", 84 << 20, 10e9, 9e9), Ceiling("product", "fp32", 10**9, 100e9, 90e9))


SEVERAL = (
    record("eager", ms(30.0), ceilings=CEILINGS, minimum_bytes=100_000_000),
    record("inductor", ms(9.0), findings=(Finding("busy-host", "load average 3.0 before the sweep"),)),
    record("tensorrt", ms(20.0), "parity_failed", "y differs by 5.00e-01 relative L2"),
    record("aoti", status="oom", reason="needs 13 GiB, 4 are free"),
    record("eager", ms(100.0), dtype="bf16"),
)


def rendered(found: Records, runs: str = "") -> str:
    return html.render(results.of_everything(found, runs))


def figures_of(*rows: Stored) -> list[Figure]:
    (table,) = tables(rows)
    return sweep.figures(table)


def hostile() -> Record:
    made = record("eager", ms(10.0), label=HOSTILE, checkpoint=HOSTILE, host=replace(HOST, cpu=HOSTILE), note=HOSTILE)
    made = replace(made, measurement=replace(made.measurement, findings=(Finding(HOSTILE, HOSTILE),)))
    return replace(made, variant=replace(made.variant, component=HOSTILE, backends=(BackendUse(HOSTILE),)))


class TestContent:
    @pytest.fixture
    def parsed(self) -> Parsed:
        return Parsed(rendered(records(*SEVERAL), "../runs"))

    def test_every_row_has_its_cells(self, parsed: Parsed) -> None:
        columns = len([tag for tag, attributes in parsed.tags if tag == "th" and attributes.get("scope") == "col"])
        assert columns == 13
        cells = [attributes for tag, attributes in parsed.tags if tag == "td" or attributes.get("scope") == "row"]
        assert len(cells) == columns * len(SEVERAL)
        figures = ("30.95 [30.50, 31.40]", "9.950 [9.500, 10.400]", "15 c", "48%", "500", "12.2/3.5")
        for text in (*figures, "3.11x"):
            assert text in parsed.text

    def test_links_lead_to_the_records(self, parsed: Parsed) -> None:
        links = [str(attributes["href"]) for tag, attributes in parsed.tags if tag == "a"]
        assert links == [f"../runs/{FOLDER}/id-{place}.json" for place in (1, 0, 4, 2, 3)]

    def test_figures_show_what_the_records_hold(self, parsed: Parsed) -> None:
        (figures,) = parsed.figures.values()
        assert set(figures) == {"latency", "tradeoff", "timeline", "roofline"}
        data = {name: spec["data"]["values"] for name, spec in figures.items() if name != "roofline"}
        assert [row["name"] for row in data["latency"]] == [
            "inductor fp32", "eager fp32", "eager bf16", "tensorrt fp32",
        ]  # fmt: skip
        (first,) = (series for series in data["timeline"] if series["name"] == "eager fp32")
        assert first["call"] == list(range(21))
        assert first["ms"][:3] == [9.0, 30.0, 30.1]
        assert [point["fill"] == 0 for point in data["tradeoff"]] == [False, False, False, True]

    def test_superseded_and_unreadable_records_are_listed(self, tmp_path: Path) -> None:
        save(tmp_path, SEVERAL[0])
        bad = save(tmp_path, SEVERAL[1])
        supersede(tmp_path, bad, "another program ran")
        (tmp_path / FOLDER / "torn.json").write_text("{")
        parsed = Parsed(rendered(load_all(tmp_path)))
        assert f"{bad} : another program ran" in parsed.text
        assert "torn.json cannot be read" in parsed.text
        assert "inductor fp32" not in parsed.text


class TestThinning:
    def test_an_error_of_zero_is_drawn(self) -> None:
        exact = record("eager", ms(1.0))
        assert exact.measurement.parity is not None
        outputs = (replace(exact.measurement.parity.outputs[0], rel_l2=0.0),)
        exact = replace(
            exact,
            measurement=replace(exact.measurement, parity=replace(exact.measurement.parity, outputs=outputs)),
        )
        found = figures_of(Stored("a", exact), Stored("b", record("inductor", ms(1.0))))
        (tradeoff,) = [figure.spec for figure in found if figure.name == "tradeoff"]
        assert [point["error"] for point in tradeoff["data"]["values"]] == [1e-07, 1e-06]
        assert "datum.value <= 1e-07 ? 'exact'" in tradeoff["encoding"]["y"]["axis"]["labelExpr"]
        assert figures_of(Stored("c", record("aoti", status="oom"))) == []


class TestNothingFromOutside:
    @pytest.mark.parametrize("made", [SEVERAL, (hostile(),)], ids=["plain", "hostile"])
    def test_no_reference_leaves_the_file(self, made: tuple[Record, ...]) -> None:
        text = rendered(records(*made))
        parsed = Parsed(text)
        for tag, attributes in parsed.tags:
            assert "src" not in attributes, tag
            assert not [name for name in attributes if name.startswith("on")], tag
            target = attributes.get("href")
            assert target is None or re.fullmatch(r"data:,|#[a-z0-9-]+|[a-z0-9-]+/records/id-\d+\.json", target), target
        own = text.replace(max(parsed.scripts, key=len), "")
        assert not re.search(r"https?:|//cdn|@import|url\(", own)
        assert {tag for tag, _ in parsed.tags}.isdisjoint({"img", "iframe", "object", "embed", "base", "form", "b"})
        assert len(parsed.scripts) == 2

    def test_policy_names_the_scripts_that_are_there(self) -> None:
        parsed = Parsed(rendered(records(*SEVERAL)))
        (policy,) = [str(attributes["content"]) for tag, attributes in parsed.tags if "http-equiv" in attributes]
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in parsed.scripts]
        assert re.findall(r"'sha256-([^']+)'", policy) == hashes
        assert "unsafe-eval" not in policy


class TestHostileText:
    def test_is_text(self) -> None:
        made = hostile()
        failed = replace(made, measurement=measurement(status="crashed", reason=HOSTILE))
        failed = replace(failed, variant=replace(failed.variant, dtype="bf16"))
        text = rendered(records(made, failed))
        assert "<script>document" not in text
        assert "\u2028" not in text
        parsed = Parsed(text)
        assert parsed.text.count(SHOWN) > 5
        assert f": crashed: {SHOWN}" in parsed.text

    def test_data_of_figures_holds_no_markup(self) -> None:
        """Letters that could end the script element or a comment are written as escapes."""
        text = rendered(records(hostile()))
        assert "<script>document" not in text
        (data,) = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text)
        assert not re.search("[<>&\u2028\u2029]", data)
        assert "</script>" in str(json.loads(data))

    def test_names_of_records_cannot_be_other_addresses(self) -> None:
        odd = Records((Stored("javascript:alert(1)//<x>", SEVERAL[0]),), (), ())
        (link,) = [str(attributes["href"]) for tag, attributes in Parsed(rendered(odd)).tags if tag == "a"]
        assert link == f"{FOLDER}/javascript%3Aalert%281%29//%3Cx%3E.json"


class TestWriting:
    def test_links_are_relative_to_the_page(self, tmp_path: Path) -> None:
        name = save(tmp_path / "my runs", SEVERAL[0])
        results.write_html(tmp_path / "pages" / "page.html", load_all(tmp_path / "my runs"), tmp_path / "my runs")
        parsed = Parsed((tmp_path / "pages" / "page.html").read_text(encoding="utf-8"))
        (link,) = [str(attributes["href"]) for tag, attributes in parsed.tags if tag == "a"]
        assert link == f"../my%20runs/{FOLDER}/{name}.json"
        assert Path(os.path.normpath(tmp_path / "pages" / unquote(link))).is_file()

    def test_overwrites_a_file_and_nothing_else(self, tmp_path: Path) -> None:
        path = tmp_path / "page.html"
        path.write_text("old")
        results.write_html(path, records(*SEVERAL), tmp_path)
        assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
        (tmp_path / "link.html").symlink_to(path)
        for odd in (tmp_path, tmp_path / "link.html", Path("/dev/null")):
            with pytest.raises(BakeoffError) as error:
                results.write_html(odd, records(*SEVERAL), tmp_path)
            assert error.value.code == "target-exists"

    @pytest.mark.parametrize(("library", "named"), [("jinja2", "jinja2"), ("vl_convert", "vl-convert-python")])
    def test_without_a_library(self, library: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == library]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(BakeoffError, match=named) as error:
            rendered(records(*SEVERAL))
        assert error.value.code == "missing-library"


class TestBrowser:
    """The page in a browser without network."""

    @pytest.fixture
    def shown(self, tmp_path: Path) -> Path:
        chromium()
        path = tmp_path / "page.html"
        path.write_text(rendered(records(*SEVERAL, hostile())), encoding="utf-8")
        return path

    def test_tables_sort(self, shown: Path, tmp_path: Path) -> None:
        script = """const table = page.querySelector("table.sortable");
        const heads = [...table.tHead.rows[0].cells];
        const names = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent);
        const answer = [names()];
        const head = heads.find((cell) => cell.textContent.startsWith("median"));
        for (let click = 0; click < 2; click += 1) {
          head.querySelector("button").click();
          answer.push([head.getAttribute("aria-sort"), names()]);
        }
        heads[0].querySelector("button").click();
        answer.push([head.getAttribute("aria-sort"), heads[0].getAttribute("aria-sort"), names()]);
        return answer;"""
        found, console = look(shown, script, tmp_path)
        start = ["inductor fp32", "eager fp32", "eager bf16", "tensorrt fp32", "aoti fp32"]
        assert found[0] == start
        assert found[1] == ["ascending", ["inductor fp32", "tensorrt fp32", "eager fp32", "eager bf16", "aoti fp32"]]
        assert found[2] == ["descending", ["eager bf16", "eager fp32", "tensorrt fp32", "inductor fp32", "aoti fp32"]]
        assert found[3] == [None, "ascending", sorted(start)]
        assert console == ""

    def test_figures_are_drawn_and_names_are_text(self, shown: Path, tmp_path: Path) -> None:
        script = """for (let turn = 0; turn < 100; turn += 1) {
          if (page.querySelectorAll(".plot").length === page.querySelectorAll(".plot[data-drawn]").length) break;
          await painted();  // its clock is virtual: a wait alone may be over before a frame is
          await wait(100);
        }
        return {
          places: page.querySelectorAll(".plot").length, drawn: page.querySelectorAll(".plot svg.marks").length,
          bars: page.querySelectorAll(".plot .mark-rect.role-mark path[aria-roledescription=bar]").length,
          points: page.querySelectorAll(".plot .mark-symbol.role-mark path[aria-roledescription=point]").length,
          names: [...page.querySelectorAll(".plot text")].map((text) => text.textContent), title: page.title,
          strangers: page.querySelectorAll("img, iframe, .plot a, body b").length,
          wide: page.documentElement.scrollWidth - page.documentElement.clientWidth,
        };"""
        found, console = look(shown, script, tmp_path)
        assert console == ""
        assert found["places"] == 7
        assert found["drawn"] >= 7
        assert (found["bars"], found["points"]) == (2 * 5, 5 + 5 + 1)
        assert found["title"] == "bakeoff: which compiler to deploy"
        assert (found["strangers"], found["wide"]) == (0, 0)
        assert [name for name in found["names"] if name.startswith("</script><script>")]
        assert "inductor fp32" in found["names"]
