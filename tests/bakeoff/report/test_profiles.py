"""Profiles: their document on a terminal and as HTML, its figures, the JSON, and the files beside the records."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pipeline_records import BEST
from profile_records import NO_RECORDS, SEEN, on_cpu, on_gpu, profiled, stored

from bakeoff.record.codec import encode_json
from bakeoff.record.pipeline import PipelineRecord
from bakeoff.record.store import load_all, save
from bakeoff.report.figures import profile as figures
from bakeoff.report.figures.vega import BETWEEN, Figure, colours
from bakeoff.report.pages import files
from bakeoff.report.pages import profile as page
from bakeoff.report.render import html, terminal

GPU, CPU = profiled(on_gpu()), profiled(on_cpu(level=5), BEST, role="best")


def found_in(record: PipelineRecord) -> page.Profiled:
    found = page.profiled(stored(record), NO_RECORDS)
    assert found is not None
    return found


def text_of(record: PipelineRecord, width: int | None = None, copies: Path | None = None) -> str:
    return terminal.render(page.together([found_in(record)], copies=copies), width)


def html_of(record: PipelineRecord) -> str:
    made = page.document(found_in(record), lambda entry: f"../records/{entry.id}.json", [stored(CPU, "other")])
    return html.render(made, interactive=False)


class TestTerminal:
    def test_the_answer_comes_first_then_lines_advice_and_kernels(self) -> None:
        shown = text_of(GPU)
        answer, gain = shown.split("\n\n")[1:3]
        assert answer == (
            "101.05 ms a frame: denoise 60.0 %, decode 30.0 %, present 4.0 %; 51.00 ms busy, 50.05 idle. "
            "0.50 cores busy while traced; with a synchronisation at each border +3.95 ms."
        )
        assert gain.startswith("Most to gain: ")
        assert "launch-bound: at most" in gain
        assert re.search(r"denoise +4 +\d+\.\d+ +\d+\.\d % +20\.000 +\d+\.\d+ +\d+\.\d+", shown)
        assert "host wait" in shown
        assert re.search(r"sum +101\.050 +100\.0 % +51\.000 +50\.050", shown)
        assert shown.index("launch-bound denoise (strong, at most") < shown.index("slow-kernel decode")
        assert re.search(r"slow_conv_dilated3d +decode +4 +25\.000 +49\.0 %", shown)

    def test_a_trace_is_where_it_was_asked_for(self) -> None:
        assert "\nTrace: traces/run/mix.json.gz in the cache folder" in text_of(GPU)
        shown = text_of(GPU, copies=Path("mine/traces"))
        assert "\nTrace: mine/traces/mix.json.gz;" in shown
        assert "in the cache folder" not in shown

    def test_who_told_what_is_inside(self) -> None:
        shown = text_of(CPU)
        assert re.search(r"decode .* OpenVINO", shown)
        assert "by a traced build of each" in shown
        assert "compiled region, inside not visible" in shown
        assert "host wait" not in shown, "a CPU has no queue"
        same = text_of(GPU)
        assert "told by torch.profiler." in same
        assert same.count("torch.profiler") == 1, "what holds for all lines is said once"

    def test_what_is_hidden_says_so(self) -> None:
        hidden = replace(SEEN[1], sight="hidden", tracer="", problem="timeout: no answer in 600 s")
        shown = text_of(profiled(on_cpu(programs=(SEEN[0], hidden))))
        assert re.search(r"decode .* not visible", shown)
        assert "30.32 not visible" in shown.split("\n\n")[1]
        assert "timeout: no answer in 600 s" in shown


class TestHtml:
    def test_it_links_to_its_record_and_to_the_profiles_of_its_run(self) -> None:
        addresses = re.findall(r'href="([^"#]+)"', html_of(GPU))
        assert addresses == ["data:,", "../records/an-id.json", "../profiles/other.html"]


class TestFigures:
    def test_lines_fill_the_unit_with_what_is_known_of_them(self) -> None:
        hidden = replace(SEEN[1], sight="hidden", tracer="")
        pieces = values(figures.waterfall(found_in(profiled(on_gpu(programs=(SEEN[0], hidden)))).table, "frame"), 0)
        assert pieces[0]["from"] == 0
        assert all(one["to"] == pytest.approx(other["from"]) for one, other in pairwise(pieces))
        assert pieces[-1]["to"] == pytest.approx(101.05)
        kinds = [(one["phase"], one["kind"], one["to"]) for one in pieces[:3]]
        assert kinds == [("denoise", "busy", 20.0), ("denoise", "idle", 60.63), ("decode", "not visible", 90.945)]

    def test_a_phase_has_the_colour_that_it_has_elsewhere(self) -> None:
        found = figures.line_colours(found_in(GPU).table)
        assert found.items() <= {**colours(("denoise", "decode", "present")), **BETWEEN}.items()
        assert BETWEEN.keys() - found.keys() == {"idle"}, "only lanes are idle"


def values(figure: Figure | None, layer: int) -> list[dict[str, Any]]:
    assert figure is not None
    found: list[dict[str, Any]] = figure.spec["layer"][layer]["data"]["values"]
    return found


class TestFiles:
    def test_each_mix_has_a_page_and_links_lead_to_files(self, tmp_path: Path) -> None:
        for record in (GPU, CPU):
            save(tmp_path, record)
        records = load_all(tmp_path)
        files.update(tmp_path)
        written = page.paths_of(tmp_path, records.pipelines)
        assert len(written) == 2
        for path in written:
            addresses = re.findall(r'href="([^"]+\.(?:json|html))"', path.read_text())
            assert len(addresses) == 2
            assert all((path.parent / address).exists() for address in addresses)

    def test_a_page_that_is_not_of_its_record_is_found_and_written_anew(self, tmp_path: Path) -> None:
        save(tmp_path, GPU)
        (*_, path) = files.update(tmp_path)
        assert files.check(tmp_path) == []
        before, stray = path.read_bytes(), path.with_name("stray.html")
        path.write_bytes(before.replace(b";base64,", b";base64,AAAA"))
        assert files.check(tmp_path) == [], "pictures may be of another version of the library"
        path.write_bytes(before.replace(b"101.05", b"99.05"))
        stray.write_text("no page")
        edited, left = files.check(tmp_path)
        assert edited.startswith(f"{path} differs from what the records give")
        assert left.startswith(f"{stray} is of records that are not there.")
        files.update(tmp_path)
        assert (path.read_bytes(), stray.exists()) == (before, False)


class TestJson:
    def test_it_is_the_record_and_what_is_computed_from_it(self) -> None:
        told = json.loads(encode_json(page.as_json(found_in(GPU))))
        assert told["id"] == "an-id"
        assert told["record"] == json.loads(encode_json(GPU))
        lines = told["figures"]["lines"]
        assert sum(line["share"] for line in lines) == 1000
        assert sum(line["ms"] for line in lines) == pytest.approx(told["figures"]["unit_ms"])
        idle = lines[0]
        assert idle["host_wait_ms"] + idle["gap_ms"] + idle["other_ms"] == pytest.approx(idle["idle_ms"])
        assert told["figures"]["advice"][0]["code"] == "launch-bound"

    def test_it_is_valid_where_figures_are_not_finite(self) -> None:
        assert page.derived(found_in(profiled(on_cpu(wall_ns=0))))["cores"] == 0
