"""Sessions as a page on a terminal and in a browser, and as JSON."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, look
from pages import Parsed
from sessions import GPU, MS, NAMELESS, RANK, UNIT, monitored, session_record, wave

from bakeoff.machine.files import write_atomically
from bakeoff.record.codec import encode_json
from bakeoff.record.finding import Finding
from bakeoff.record.monitor import DeviceEnergy, Point, SeriesRecord
from bakeoff.record.session import ModelParameters, RangeTotal, SessionEvent, SessionRecord, Span, StepTotals, UnitSpans
from bakeoff.report.pages.session import as_json, document
from bakeoff.report.render import html, terminal

RECORD = session_record()
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


def bare(made: str) -> str:
    """A page without its scripts that are not of the record."""
    return re.sub(r"<script>.*?</script>", "", made, flags=re.DOTALL)


def page(record: SessionRecord) -> str:
    return html.render(document(record))


def text(record: SessionRecord, width: int | None = None) -> str:
    return terminal.render(document(record), width)


def derived(record: SessionRecord) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(encode_json(as_json(record)))["derived"]
    return made


class TestJson:
    def test_shares_of_phases_and_ranges_add_up(self) -> None:
        made = derived(RECORD)
        lines = made["account"]["lines"]
        assert sum(line["thousandths"] for line in lines) == sum(made["range_thousandths"]) == 1000
        assert sum(line["ns"] for line in lines) == made["account"]["ns"] == 39 * UNIT
        assert (lines[-1]["name"], lines[-1]["ns"]) == ("unattributed", 39 * NAMELESS)

    def test_energy_in_watt_hours_and_joules_a_frame(self) -> None:
        gpu, package = derived(RECORD)["energy"]
        joules = 350 * 4.7
        assert gpu == {
            "device": GPU, "joules": pytest.approx(joules), "watt_hours": pytest.approx(joules / 3600),
            "joules_a_frame": pytest.approx(joules / (9 + 39 * 12)), "source": "counter",
        }  # fmt: skip
        unknown = dict.fromkeys(("joules", "watt_hours", "joules_a_frame"))
        assert package == {"device": "package-0", **unknown, "source": ""}

    def test_a_session_without_units_has_no_rates(self) -> None:
        made = derived(session_record(0))
        assert (made["account"], made["rates"]) == (None, {"fps": None, "bps": None, "of": "all"})
        assert sum(made["range_thousandths"]) == 1000

    def test_the_record_is_whole(self) -> None:
        for record in (RECORD, session_record(0), hostile()):
            made = json.loads(encode_json(as_json(record)))
            assert made["record"] == json.loads(encode_json(record))
            assert list(made["derived"]) == ["rates", "account", "range_thousandths", "energy", "advice"]


class TestText:
    def test_what_it_shows(self) -> None:
        shown = text(RECORD)
        assert re.search(r"denoise +1 +50\.000 +50\.0 %", shown)
        assert re.search(r"unattributed +1 +3\.000 +3\.0 %", shown)
        assert re.search(r"\nsum +100\.000 +100\.0 %", shown)
        assert "Before the session, and no part of it: 900.00 ms" in shown
        assert re.search(r"\n +3 +250 +40 +12\.000 +12\.000 +12\.000", shown)
        assert re.search(r"\nunit +process +100 +100 +100 +ms +40", shown)
        assert re.search(r"gpu\.power +GPU-5ca1ab…00001 +278\.", shown)
        assert re.search(rf"{GPU} +0\.4569 +3\.45 +its counter", shown)
        assert re.search(r"package-0 +unknown", shown)
        assert "package-0: energy_uj cannot be read" in shown
        assert "recording: 403 ranges of 800 ns" in shown
        assert "the monitor took 0.06% of one core while sampling (gpu every 0.5 s, cpu every 1 s)" in shown
        assert re.search(r"wm +diffusion +1,300,000,000 +2,479\.6 +bfloat16", shown)
        assert re.search(r"saved \(failed\) +4\.7 s +error=no space", shown)
        assert "misused: 1 range had not ended" in shown

    def test_a_rank_with_collectives_is_to_be_seen_beside_the_others(self) -> None:
        assert "bakeoff session aggregate" not in text(RECORD), "there is one process alone"
        shown = text(replace(RECORD, rank=RANK))
        assert "look at all ranks together: bakeoff session aggregate FOLDER" in shown
        assert "othing could gain" not in shown
        alone = replace(RECORD, rank=RANK, ranges=tuple(each for each in RECORD.ranges if each.kind != "collective"))
        assert "bakeoff session aggregate" not in text(alone)

    @pytest.mark.parametrize("width", [80, 120])
    def test_no_line_is_wider_than_the_terminal(self, width: int) -> None:
        for record in (RECORD, session_record(1_000, compiling=(1,)), hostile()):
            assert max(map(len, text(record, width).splitlines())) <= width

    def test_what_others_wrote_cannot_change_a_terminal(self) -> None:
        assert not set("\x1b\u202e\u2028") & set(text(hostile()))

    def test_nothing_is_dropped_silently(self) -> None:
        many = replace(
            RECORD,
            events=RECORD.events * 150,
            events_dropped=7,
            steps=tuple(StepTotals(index, None, 1, 1, 1, 1) for index in range(280)),
        )
        shown = text(many)
        assert "and 100 more, in the JSON" in shown
        assert "7 events were not kept" in shown
        assert "and 80 more, in the JSON" in shown


class TestPage:
    def test_hostile_texts_are_text(self) -> None:
        made = page(hostile())
        found = Parsed(made)
        assert not [tag for tag, _ in found.tags if tag in ("img", "iframe", "object")]
        figures, own = 2, 2
        assert len([tag for tag, _ in found.tags if tag == "script"]) == figures + own
        assert not [name for _, attrs in found.tags for name in attrs if name.startswith("on")]
        assert sum(data.count("<script>alert(1)") for data in found.data) > 20
        assert not set("\x1b\u202e\u2028") & set(bare(made))

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
        made = page(record)
        assert made.endswith("</html>")
        assert not re.search(r"\b(nan|inf)\b", bare(made) + text(record))

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
        assert len(page(record)) < 4 << 20

    def test_a_browser_shows_it(self, tmp_path: Path) -> None:
        chromium()
        target = tmp_path / "page.html"
        write_atomically(target, page(session_record(compiling=(1,))).encode())
        script = """
            const of = (selector) => [...page.querySelectorAll(selector)];
            for (let turn = 0; turn < 100 && of(".plot").some((plot) => !plot.dataset.drawn); turn++) await wait(100);
            await painted();
            const seen = (all) => all.filter((one) => one.getBoundingClientRect().width > 0).length;
            const mark = ".mark-rect.role-mark path";
            return {
              drawn: of(".plot[data-drawn]").length,
              bars: seen(of("figure.timeline " + mark)),
              bands: seen(of(".mark-area.role-mark path")), events: of(".mark-rule.role-mark line").length,
              wide: page.documentElement.scrollWidth > frame.clientWidth,
              loaded: frame.contentWindow.performance.getEntriesByType("resource").map((one) => one.name),
              strangers: of("img, iframe, object").length,
            };
        """
        found, console = look(target, script, tmp_path)
        assert console == ""
        assert (found["drawn"], found["bands"]) == (2 + 7, 7)
        assert found["bars"] > 150
        assert found["events"] >= 2
        assert (found["wide"], found["loaded"], found["strangers"]) == (False, [], 0)
