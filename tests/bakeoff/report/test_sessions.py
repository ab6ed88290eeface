"""Sessions as text, as a page and as JSON."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from browser import chromium, look
from sessions import GPU, MS, NAMELESS, RANK, UNIT, monitored, session_record, wave

from bakeoff.machine.files import write_atomically
from bakeoff.record.codec import encode_json
from bakeoff.record.monitor import DeviceEnergy, Point, SeriesRecord
from bakeoff.record.schema import Finding
from bakeoff.record.session import ModelParameters, RangeTotal, SessionEvent, SessionRecord, Span, StepTotals, UnitSpans
from bakeoff.report.html import session as page
from bakeoff.report.html.drawing import round_numbers, time_ticks
from bakeoff.report.sessions import MOST_POINTS, SessionReport, report_of
from bakeoff.report.text import session as text

RECORD = session_record()
REPORT = report_of(RECORD)
HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">\'\u202egnp.exe\u2028\x1b[31m'
"""Markup, quotes, a letter that turns the rest around, an end of a line, and a terminal's red."""


def hostile(name: str = HOSTILE) -> SessionRecord:
    """Every text of a record is this one."""
    unit = UnitSpans(0, "steady", 1, 0, 100 * MS, (Span(name, "phase", 1, 0, 90 * MS),))
    watched = monitored(RECORD.ns)
    return replace(
        RECORD,
        name=name,
        status=f"failed: {name}",
        started_at=name,
        tags={name: name, "a": name},
        settings={name: name},
        environment={name: name},
        ranges=(RECORD.ranges[0], *(replace(each, path=tuple(name for _ in each.path)) for each in RECORD.ranges[1:])),
        before=(RangeTotal((name,), "stage", 1, MS, MS),),
        spans=(unit,),
        events=(SessionEvent(5 * MS, name, {name: name}), SessionEvent(6 * MS, name, {name: name}, failed=True)),
        parameters=(ModelParameters(name, 5, 10, name, name),),
        series=(*RECORD.series, wave(name, name, name, RECORD.ns, 3.0, 1.0)),
        monitored=replace(
            watched,
            series=tuple(replace(each, source=name, unit=name) for each in watched.series),
            energy=(DeviceEnergy(name, 5.0, None, name),),
            throttled=tuple(replace(each, device=name, reason=name, share=0.5) for each in watched.throttled),
            missing=(name,),
        ),
        rank=replace(RANK, host=name, device=name, group=name),
        findings=(Finding(name, name),),
    )


class TestReport:
    def test_shares_of_phases_and_ranges_add_up(self) -> None:
        assert REPORT.account is not None
        assert sum(line.share for line in REPORT.account.lines) == 1000
        assert sum(each.share or 0 for each in REPORT.ranges) == 1000
        assert sum(line.ms for line in REPORT.account.lines) == pytest.approx(REPORT.account.unit_ms)
        assert REPORT.account.lines[-1].name == "unattributed"
        assert REPORT.account.lines[-1].ms == NAMELESS / MS

    def test_rates_are_of_steady_units(self) -> None:
        assert REPORT.rates_of == "steady"
        assert REPORT.bps == pytest.approx(1e9 / UNIT)
        assert REPORT.fps == pytest.approx(12e9 / UNIT)

    def test_energy_in_watt_hours_and_joules_a_frame(self) -> None:
        gpu, package = REPORT.energy
        joules = 350 * 4.7
        assert gpu.joules == pytest.approx(joules)
        assert gpu.watt_hours == pytest.approx(joules / 3600)
        assert gpu.joules_a_frame == pytest.approx(joules / (9 + 39 * 12))
        assert gpu.source == "counter"
        assert (package.joules, package.watt_hours, package.joules_a_frame, package.source) == (None, None, None, "")

    def test_times_are_milliseconds(self) -> None:
        (unit,) = [each for each in REPORT.series if each.name == "unit"]
        assert (unit.unit, unit.least, unit.greatest) == ("ms", UNIT / MS, UNIT / MS)
        assert REPORT.before_ms == 900.0
        assert REPORT.kept[0].spans[0].ms == 50.0

    def test_a_long_series_keeps_its_peak_and_its_numbers(self) -> None:
        points = [Point(place * MS, 1.0, 2.0, 9_000.0 if place == 777 else 3.0, 2) for place in range(2_000)]
        record = replace(RECORD, series=(SeriesRecord("depth", "frames", "user", tuple(points)),))
        found = next(each for each in report_of(record).series if each.name == "depth")
        assert len(found.points) <= MOST_POINTS
        assert max(point.greatest for point in found.points) == found.greatest == 9_000.0
        assert (found.count, found.least, found.mean) == (4_000, 1.0, 2.0)

    def test_a_session_without_units_has_no_rates(self) -> None:
        found = report_of(session_record(0))
        assert (found.account, found.fps, found.bps, found.units) == (None, None, None, ())
        assert sum(each.share or 0 for each in found.ranges) == 1000

    def test_json_is_read_back_as_the_same(self) -> None:
        for record in (RECORD, session_record(0), hostile()):
            made = report_of(record)
            assert msgspec.json.decode(encode_json(made), type=SessionReport) == made


class TestText:
    def test_what_it_shows(self) -> None:
        shown = text.render(REPORT)
        assert "120.00 frames a second, 10.00 units a second, of 39 steady units" in shown
        assert re.search(r"denoise +1 +50\.000 +50\.0 %", shown)
        assert re.search(r"unattributed +1 +3\.000 +3\.0 %", shown)
        assert re.search(r"before session: 900\.00 ms +", shown)
        assert re.search(r"gpu\.power +GPU-5ca1ab…00001 +278\.", shown)
        assert f"energy of {GPU}: 0.4569 Wh by its counter, 3.45 J a frame" in shown
        assert "energy of package-0: unknown: energy_uj cannot be read" in shown
        assert "recording: 403 ranges of 800 ns" in shown
        assert "monitor: 90 samples, 0.25% of a core" in shown
        assert "event saved failed at" in shown
        assert "note: 1 range had not ended [open-ranges]" in shown
        assert "no advice" in shown

    def test_ranges_have_their_whole_paths(self) -> None:
        shown = text.render(REPORT)
        assert re.search(r"generate / unit / denoise / step +step +160 +1920\.000 +1920\.000 +40\.8 %", shown)
        assert re.search(r"session +session +1 +4710\.000 +10\.000 +0\.2 %", shown)

    def test_which_units_it_accounts_for(self) -> None:
        assert "phase, of 22 kept steady units" in text.render(REPORT)
        assert "phase, of all 400 units" in text.render(report_of(session_record(400)))
        assert "Mean of all 400 units: 100.000 ms" in page.render(report_of(session_record(400)))

    def test_which_rank_it_is(self) -> None:
        assert "rank 7 of 8 (model parallel), host node-1" in text.render(report_of(replace(RECORD, rank=RANK)))

    def test_a_rank_with_collectives_is_to_be_seen_beside_the_others(self) -> None:
        assert "bakeoff session aggregate" not in text.render(REPORT), "there is one process alone"
        shown = text.render(replace(REPORT, rank=RANK))
        assert "look at all ranks together: bakeoff session aggregate FOLDER" in shown
        assert "no advice" not in shown
        alone = replace(REPORT, rank=RANK, ranges=tuple(each for each in REPORT.ranges if each.kind != "collective"))
        assert "bakeoff session aggregate" not in text.render(alone)

    def test_what_others_wrote_cannot_change_a_terminal(self) -> None:
        shown = text.render(report_of(hostile()))
        assert not set("\x1b\u202e\u2028") & set(shown)

    def test_nothing_is_dropped_silently(self) -> None:
        many = replace(
            RECORD,
            events=RECORD.events * 50,
            events_dropped=7,
            steps=tuple(StepTotals(index, None, 1, 1, 1, 1) for index in range(100)),
        )
        shown = text.render(report_of(many))
        assert "and 87 more events, of which 7 were not kept" in shown
        assert "and 80 more" in shown


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
        found = Parsed(page.render(REPORT))
        assert not [tag for tag, _ in found.tags if tag in ("script", "img", "iframe", "object", "a")]
        assert [attrs["href"] for tag, attrs in found.tags if tag == "link"] == ["data:,"]
        policy = next(attrs for tag, attrs in found.tags if tag == "meta" and "http-equiv" in attrs)
        assert "default-src 'none'" in str(policy["content"])
        assert not re.search(r"https?:|//cdn|@import|url\(", page.render(REPORT))

    def test_all_sections_are_there(self) -> None:
        found = Parsed(page.render(report_of(replace(RECORD, rank=RANK))))
        assert [str(attrs["id"]) for tag, attrs in found.tags if tag == "section"] == [
            "unit", "advice", "timeline", "counters", "units", "ranges", "parameters", "events", "costs", "environment",
        ]  # fmt: skip
        shown = " ".join(found.data)
        for part in ("rank 7 of 8", "checkpoint_loaded", "1,300,000,000", "Before session: 900.00 ms", "2.11.0"):
            assert part in shown

    def test_phase_bars_fill_the_unit(self) -> None:
        html = page.render(REPORT)
        widths = [float(width) for width in re.findall(r"width:([\d.]+)%", html)]
        assert len(widths) == 5
        assert sum(widths) == pytest.approx(100, abs=0.1)

    def test_hostile_texts_are_text(self) -> None:
        html = page.render(report_of(hostile()))
        found = Parsed(html)
        assert not [tag for tag, _ in found.tags if tag in ("script", "img", "iframe", "object", "a")]
        assert not [name for _, attrs in found.tags for name in attrs if name.startswith("on")]
        assert sum(data.count("<script>alert(1)") for data in found.data) > 20
        assert not set("\x1b\u202e\u2028") & set(html)

    def test_equal_records_give_equal_pages(self) -> None:
        assert page.render(report_of(session_record())) == page.render(REPORT)
        assert page.render(report_of(replace(RECORD, name="other"))) != page.render(REPORT)

    @pytest.mark.parametrize(
        "record",
        [
            session_record(0, events=(), parameters=(), series=(), monitored=None, cost=None, before=(), findings=()),
            session_record(1),
            session_record(0, ns=0, ranges=(RangeTotal((), "session", 1, 0, 0),)),
            replace(RECORD, series=(SeriesRecord("empty", "", "user", ()),)),
            replace(RECORD, series=(SeriesRecord("huge", "", "user", (Point(0, -1.7e308, 0.0, 1.7e308, 2),)),)),
            replace(RECORD, spans=tuple(replace(unit, start_ns=0, ns=0) for unit in RECORD.spans)),
            replace(RECORD, events=(SessionEvent(-5, "early"), SessionEvent(2**62, "late"))),
            replace(RECORD, spans=RECORD.spans[::-1]),
        ],
        ids=["bare", "one", "nothing", "empty series", "huge values", "no time", "events outside", "backwards"],
    )
    def test_odd_sessions_have_a_page(self, record: SessionRecord) -> None:
        html = page.render(report_of(record))
        assert html.endswith("</html>")
        assert not re.search(r"\b(nan|inf)\b", html)
        text.render(report_of(record))

    def test_counters_have_a_band_a_line_and_their_units(self) -> None:
        html = page.render(REPORT)
        figures = re.findall(r'<figure class="counter">.*?</figure>', html, re.DOTALL)
        names = [re.findall(r"<strong>([^<]+)</strong>", figure)[0] for figure in figures]
        assert names == [
            "queue, frames", "gpu.memory, MiB", "gpu.power, W", "gpu.temperature, C", "gpu.clock, MHz",
            "cpu.process, %",
        ]  # fmt: skip
        for figure in figures:
            assert 'class="band"' in figure
            assert len(re.findall("<path", figure)) == 2
            assert re.search(r">\d+(\.\d+)? s</text>", figure), "a time axis"

    def test_events_are_on_the_timeline(self) -> None:
        html = page.render(REPORT)
        assert "checkpoint_loaded at 500.00 ms" in html
        assert "saved failed at" in html
        assert 'class="mark failed"' in html

    def test_the_timeline_has_first_and_last_units(self) -> None:
        html = page.render(REPORT)
        assert "units 0 to 2: 310.00 ms, from 500.00 ms after the start" in html
        assert "units 20 to 39: 2.1 s, from 2.6 s after the start" in html
        assert html.count('<rect class="steady"') == 22
        assert html.count('<rect class="opening"') == 1
        assert "denoise, 50.000 ms" in html

    def test_a_page_is_bounded_as_its_record_is(self) -> None:
        """A record of nearly 4 MiB whose every text is longer than what is shown and needs escaping."""
        many = hostile('"' * 550)
        name = many.name
        record = replace(
            many,
            tags={f"{place}{name}": name for place in range(64)},
            environment={f"{place}{name}": name for place in range(80)},
            ranges=(RECORD.ranges[0], *(replace(RECORD.ranges[1], path=(name,)) for _ in range(500))),
            spans=tuple(
                UnitSpans(index, "steady", 1, index * MS, MS, (Span(name[:90], "step", 5, index * MS, 9),) * 200)
                for index in range(23)
            ),
            events=tuple(SessionEvent(place, name, {name: name}) for place in range(300)),
            findings=tuple(Finding("x", name) for _ in range(100)),
            series=tuple(wave(f"{place}{name[:200]}", "W", "user", RECORD.ns, 3.0, 1.0, 150) for place in range(50)),
        )
        assert 3 << 20 < len(encode_json(record)) < 4 << 20
        assert len(page.render(report_of(record))) < 3 << 20

    def test_a_browser_shows_it(self, tmp_path: Path) -> None:
        chromium()
        target = tmp_path / "page.html"
        write_atomically(target, page.render(report_of(session_record(compiling=(1,)))).encode())
        script = """
            await painted();
            const of = (selector) => [...page.querySelectorAll(selector)];
            const seen = (all) => all.filter((one) => one.getBoundingClientRect().width > 0).length;
            return {
              bars: seen(of(".track span")), units: seen(of("svg.units rect")),
              counters: seen(of("figure.counter svg")),
              lines: of("figure.counter path").filter((path) => path.getTotalLength() > 100).length,
              events: of("line.mark").length, wide: page.documentElement.scrollWidth > frame.clientWidth,
              loaded: frame.contentWindow.performance.getEntriesByType("resource").map((one) => one.name),
              strangers: of("script, img, iframe, a").length,
              outside: of("svg").filter((svg) => [...svg.querySelectorAll("text")].some((text) => {
                const [one, all] = [text.getBoundingClientRect(), svg.getBoundingClientRect()];
                return one.left < all.left - 1 || one.right > all.right + 1;
              })).map((svg) => svg.getAttribute("aria-label")),
            };
        """
        found, console = look(target, script, tmp_path)
        assert console == ""
        assert found["bars"] == 5
        assert found["units"] > 150
        assert (found["counters"], found["lines"]) == (6, 12)
        assert found["events"] >= 2
        assert (found["wide"], found["loaded"], found["strangers"], found["outside"]) == (False, [], 0, [])

    def test_hostile_texts_do_nothing_in_a_browser(self, tmp_path: Path) -> None:
        chromium()
        target = tmp_path / "page.html"
        write_atomically(target, page.render(report_of(hostile())).encode())
        script = """
            await painted();
            return [page.querySelectorAll("script, img").length, page.querySelector("h1").textContent.slice(0, 8)];
        """
        assert look(target, script, tmp_path) == ([0, "<script>"], "")

    def test_the_page_fits_a_narrow_screen(self, tmp_path: Path) -> None:
        chromium()
        target = tmp_path / "page.html"
        write_atomically(target, page.render(REPORT).encode())
        script = "frame.width = 360; await wait(500); return page.documentElement.scrollWidth;"
        assert look(target, script, tmp_path) == (360, "")


class TestAxes:
    @pytest.mark.parametrize(
        ("low", "high", "expected"),
        [
            (0.0, 10.0, (0.0, 2.5, 5.0, 7.5, 10.0)),
            (0.0, 40_950.0, (0.0, 20_000.0, 40_000.0)),
            (57.0, 65.0, (58.0, 60.0, 62.0, 64.0)),
            (-3.0, 3.0, (-2.0, 0.0, 2.0)),
            (5.0, 5.0, ()),
            (0.0, float("inf"), ()),
        ],
    )
    def test_round_numbers(self, low: float, high: float, expected: tuple[float, ...]) -> None:
        assert round_numbers(low, high, 4) == expected

    def test_numbers_are_never_many(self) -> None:
        for most in (1, 4, 8):
            for high in (1e-9, 0.7, 3.3, 17.0, 999.0, 1e300):
                assert 1 <= len(round_numbers(0.0, high, most)) <= most + 1

    def test_times_have_the_unit_of_their_length(self) -> None:
        def shown(end_ms: float) -> str:
            return time_ticks(0.0, end_ms, 960.0)[-1].text

        assert [shown(end) for end in (80.0, 4_000.0, 600_000.0, 36e6)] == ["80 ms", "4 s", "10 min", "10 h"]


def test_reports_of_any_record_are_valid_json() -> None:
    made: Any = json.loads(encode_json(report_of(hostile())))
    assert made["schema"] == 1
