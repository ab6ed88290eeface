"""Profiles as text, as a page and as JSON."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from browser import chromium, look
from pipeline_records import BEST, EAGER, measured
from profile_records import NO_RECORDS, SEEN, on_cpu, on_gpu, profiled, stored

from bakeoff.machine.files import write_atomically
from bakeoff.record.profile import NamedTime, Ranking
from bakeoff.record.schema import new_finding
from bakeoff.record.store import load_all, save
from bakeoff.report.html import profile as page
from bakeoff.report.profiles import ProfileReport, report_of
from bakeoff.report.text import profile as text

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">\x1b[31m'


def report(record: object) -> ProfileReport:
    found = report_of(stored(record), NO_RECORDS)  # type: ignore[arg-type]
    assert found is not None
    return found


GPU, CPU = profiled(on_gpu()), profiled(on_cpu(level=5), BEST, role="best")


class TestText:
    def test_lines_kernels_and_advice(self) -> None:
        shown = text.render([report(GPU)])
        assert re.search(r"denoise +4 +\d+\.\d+ +\d+\.\d % +20\.000 +\d+\.\d+ +\d+\.\d+", shown)
        assert "host wait" in shown
        assert re.search(r"slow_conv_dilated3d +decode +4 +25\.000 +49\.0 %", shown)
        assert shown.index("launch-bound denoise (strong, at most") < shown.index("slow-kernel decode")
        assert "100.0 %" in shown

    def test_a_trace_is_where_it_was_asked_for(self) -> None:
        assert "\ntrace: traces/run/mix.json.gz in the cache folder\n" in text.render([report(GPU)])
        shown = text.render([report(GPU)], copies=Path("mine/traces"))
        assert "\ntrace: mine/traces/mix.json.gz\n" in shown
        assert "in the cache folder" not in shown

    def test_who_told_what_is_inside(self) -> None:
        shown = text.render([report(CPU)])
        assert re.search(r"decode .* OpenVINO", shown)
        assert "by a traced build of each" in shown
        assert "compiled region, inside not visible" in shown
        assert "host wait" not in shown, "a CPU has no queue"

    def test_what_was_left_out_says_so(self) -> None:
        finding = new_finding("traced-unit", "of 5 traced units, unit 10 took 7.44 ms")
        made = replace(CPU, measurement=replace(CPU.measurement, findings=(finding,)))
        assert "unit 10 took 7.44 ms [traced-unit]" in text.render([report(made)])
        assert "traced-unit: of 5 traced units" in page.render(report(made), "", ())

    def test_what_is_hidden_says_so(self) -> None:
        hidden = replace(SEEN[1], sight="hidden", tracer="", problem="timeout: no answer in 600 s")
        shown = text.render([report(profiled(on_cpu(programs=(SEEN[0], hidden))))])
        assert "not visible" in shown
        assert "timeout: no answer in 600 s" in shown


class Parsed(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.data: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.data.append(data)


class TestPage:
    def test_it_is_of_no_scripts_and_loads_nothing(self) -> None:
        found = Parsed(page.render(report(GPU), "../records/an-id.json", [("best", "other.html")]))
        assert not [tag for tag, _ in found.tags if tag in ("script", "img", "iframe", "object")]
        policy = next(attrs for tag, attrs in found.tags if tag == "meta" and "http-equiv" in attrs)
        assert "default-src 'none'" in str(policy["content"])
        addresses = [attrs["href"] for tag, attrs in found.tags if tag in ("a", "link")]
        assert addresses == ["data:,", "../records/an-id.json", "other.html"]

    def test_hostile_names_are_text(self) -> None:
        bad = Ranking((NamedTime(HOSTILE, HOSTILE, 1, 5),), 5, 1)
        record = profiled(on_gpu(kernels=bad, compiled=(HOSTILE,), note=HOSTILE), note=HOSTILE)
        record = replace(record, measurement=replace(record.measurement, reason=HOSTILE, status="unstable"))
        found = Parsed(page.render(report(record), "r.json", []))
        assert not [tag for tag, _ in found.tags if tag in ("script", "img")]
        assert any("<script>alert(1)" in data for data in found.data)
        assert "\x1b" not in "".join(found.data)
        assert "\x1b" not in text.render([report(record)])

    def test_bars_and_lines_fill_the_unit(self) -> None:
        html = page.render(report(GPU), "r.json", [])
        widths = [float(width) for width in re.findall(r"width:([\d.]+)%", html)]
        assert sum(widths) == pytest.approx(100, abs=0.2)

    def test_a_long_run_shows_its_last_units(self) -> None:
        made = report(GPU)
        many = replace(made, units=made.units * 20)
        assert "the last 240 of 440 units" in page.render(many, "r.json", [])

    def test_a_browser_shows_it(self, tmp_path: Path) -> None:
        chromium()
        target = tmp_path / "page.html"
        write_atomically(target, page.render(report(CPU), "r.json", []).encode())
        script = """
            await painted();
            const bars = [...page.querySelectorAll(".track span")].map((bar) => bar.getBoundingClientRect().width);
            const wide = page.documentElement.scrollWidth > frame.clientWidth;
            return { bars: bars.filter((width) => width > 0).length, rects: page.querySelectorAll("rect").length,
                     path: page.querySelector("path").getTotalLength(), wide };
        """
        found, console = look(target, script, tmp_path)
        assert console == ""
        assert found["bars"] >= 5
        assert found["rects"] > 60
        assert found["path"] > 100
        assert not found["wide"]


class TestFiles:
    def test_each_mix_has_a_page_and_json_beside_it(self, tmp_path: Path) -> None:
        runs = tmp_path / "runs"
        for record in (GPU, CPU):
            save(runs, record)
        records = load_all(runs)
        written = page.update(runs, records)
        assert [path.name for path in written] == [f"{entry.id}.html" for entry in records.pipelines]
        for path, entry in zip(written, records.pipelines, strict=True):
            assert path.parent.name == "profiles"
            made = msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=ProfileReport)
            assert (made.record, made.mix) == (entry.id, str(entry.record.mix))
            for link in re.findall(r'href="([^"]+\.(?:json|html))"', path.read_text()):
                assert (path.parent / link).exists(), link

    def test_equal_records_give_equal_files(self, tmp_path: Path) -> None:
        runs = tmp_path / "runs"
        save(runs, GPU)
        records = load_all(runs)
        (first,) = page.update(runs, records)
        before = first.read_bytes()
        (again,) = page.update(runs, load_all(runs))
        assert again.read_bytes() == before

    def test_records_without_a_profile_have_none(self, tmp_path: Path) -> None:
        runs = tmp_path / "runs"
        save(runs, replace(GPU, measurement=measured(EAGER)))
        records = load_all(runs)
        assert page.update(runs, records) == []


def test_json_is_valid_where_figures_are_not_finite() -> None:
    made = report(profiled(on_cpu(wall_ns=0)))
    assert made.cores == 0
