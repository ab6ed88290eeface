"""The page of the ranks of a run."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import chromium, look
from rank_records import curve, lockstep, on, record, watched, write

from bakeoff.advice.ranks import advise_ranks
from bakeoff.machine.files import write_atomically
from bakeoff.profile.ranks.aggregate import aggregate
from bakeoff.profile.ranks.scaling import scaling_of
from bakeoff.record.ranks import RanksReport
from bakeoff.record.schema import Finding
from bakeoff.record.session import SessionRecord
from bakeoff.report.html import ranks as page

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(2)">\'\u202egnp.exe\u2028\x1b[31m'


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


def on_gpus() -> list[SessionRecord]:
    """Four ranks on two GPUs; rank 2 is slow."""
    ranks = [on(made, device=f"GPU-{'ab'[place // 2]}") for place, made in enumerate(lockstep((5, 5, 25, 5)))]
    return [replace(made, monitored=watched(f"GPU-{'ab'[place // 2]}", 8192, 40)) for place, made in enumerate(ranks)]


def render(report: RanksReport) -> str:
    return page.render(report, advise_ranks(report), None)


def hostile(folder: Path) -> RanksReport:
    """Every text of the records is this one, one file is of another run, and one is torn."""
    ranks = [
        on(
            replace(
                made,
                name=HOSTILE,
                status=f"failed: {HOSTILE}",
                tags={HOSTILE: HOSTILE},
                environment={HOSTILE: HOSTILE},
                series=(curve(HOSTILE, "user", 1, unit=HOSTILE),),
                findings=(Finding("overlap", HOSTILE),),
                ranges=tuple(
                    replace(each, path=tuple(HOSTILE if name == "denoise" else name for name in each.path))
                    for each in made.ranges
                ),
            ),
            host=HOSTILE,
            device=HOSTILE,
            group=HOSTILE,
        )
        for made in lockstep((5, 5, 25, 5))
    ]
    write(folder, ranks, leave_out=[1])
    (folder / "rank-00001-<script>alert(1).session.json").write_text("{")
    return aggregate(folder)


def test_it_has_what_the_text_has(tmp_path: Path) -> None:
    write(tmp_path, on_gpus(), leave_out=[1])
    (tmp_path / "rank-00003.session.json").write_text("{")
    write(tmp_path, [on(replace(record(5, world=9)), group="another")])
    report = aggregate(tmp_path)
    found = Parsed(render(report))
    sections = [str(attrs["id"]) for tag, attrs in found.tags if tag == "section"]
    assert sections == ["problems", "phases", "advice", "ranks", "figures", "environment"]
    shown = re.sub(r"\s+", " ", "".join(found.data))
    for part in (
        "2 of 4 ranks read from",
        "frames/s of the run: 400.000",
        "rank 2 is the straggler",
        "straggler rank 2: at most 20.00 ms a unit",
        "missing rank 1",
        "torn rank-00003.session.json",
        "foreign ",
        "memory of GPU-a: at most 8192 MiB, rank 0",
        "energy of all GPUs that ranks run on: 80.0 J",
        "phase.denoise",
        "wait in all_reduce, ms a unit: rank 0 20.000",
    ):
        assert part in shown
    assert all(spread.name in shown for spread in report.spreads), "the union of figures"


def test_duplicates_are_named(tmp_path: Path) -> None:
    write(tmp_path, on_gpus())
    (tmp_path / "rank-00002-b.session.json").write_bytes((tmp_path / "rank-00002.session.json").read_bytes())
    assert "<strong>duplicate</strong>" in render(aggregate(tmp_path))


def test_phases_of_each_rank_are_drawn_to_one_scale(tmp_path: Path) -> None:
    html = render(aggregate(write(tmp_path, on_gpus())))
    tracks = re.findall(r'<span class="track">(.*?)</span>\n', html)
    drawn = [re.findall(r'left:([\d.]+)%;width:([\d.]+)%;[^"]*" title="([^"]+)"', track) for track in tracks]
    assert len(drawn) == 4
    unit_ms = 30
    for rank, (bars, denoise_ms) in enumerate(zip(drawn, (5, 5, 25, 5), strict=True)):
        widths = {title.rpartition(", ")[0]: float(width) for _, width, title in bars}
        waits = {} if rank == 2 else {"waiting in all_reduce": 20}
        expected = {"denoise": denoise_ms, "decode": 3, "all_reduce": 1, **waits, "unattributed": 1}
        assert widths == {name: pytest.approx(100 * ms / unit_ms, abs=0.01) for name, ms in expected.items()}
        assert float(bars[-1][0]) + float(bars[-1][1]) == pytest.approx(100, abs=0.01)
    assert html.count('class="waits"') == 3


def test_scaling_is_there_with_runs_of_other_sizes(tmp_path: Path) -> None:
    reports = [
        aggregate(write(tmp_path / str(world), [record(rank, ms, world=world) for rank in range(world)]))
        for world, ms in ((1, 95), (2, 55))
    ]
    scaling = scaling_of(reports)
    assert scaling is not None
    html = page.render(reports[1], advise_ranks(reports[1], scaling), scaling)
    assert '<section id="scaling">' in html
    assert '<td class="number">83.3%</td>' in html
    assert "scaling-loss" in html


def test_hostile_texts_are_text(tmp_path: Path) -> None:
    html = render(hostile(tmp_path))
    found = Parsed(html)
    assert not [tag for tag, _ in found.tags if tag in ("script", "img", "iframe", "object", "a")]
    assert not [name for _, attrs in found.tags for name in attrs if name.startswith("on")]
    assert sum(data.count("<script>") for data in found.data) > 10
    assert not set("\x1b\u202e\u2028") & set(html)


def test_it_is_of_no_scripts_and_loads_nothing(tmp_path: Path) -> None:
    html = render(aggregate(write(tmp_path, on_gpus())))
    found = Parsed(html)
    assert [attrs["href"] for tag, attrs in found.tags if tag == "link"] == ["data:,"]
    policy = next(attrs for tag, attrs in found.tags if tag == "meta" and "http-equiv" in attrs)
    assert "default-src 'none'" in str(policy["content"])
    assert not re.search(r"https?:|//cdn|@import|url\(", html)


def test_equal_reports_give_equal_pages(tmp_path: Path) -> None:
    write(tmp_path, on_gpus())
    assert render(aggregate(tmp_path)) == render(aggregate(tmp_path))


@pytest.mark.parametrize(
    "records",
    [
        [record(world=1)],
        [replace(record(rank, world=2), units=(), spans=()) for rank in range(2)],
        [replace(record(rank, world=2), units=(), spans=(), ranges=record().ranges[:1]) for rank in range(2)],
    ],
    ids=["one rank", "no units", "no ranges"],
)
def test_odd_runs_have_a_page(records: list[SessionRecord], tmp_path: Path) -> None:
    html = render(aggregate(write(tmp_path, records)))
    assert html.endswith("</html>")
    assert not re.search(r"\b(nan|inf)\b", html)


def test_of_many_ranks_the_first_and_the_straggler_are_drawn(tmp_path: Path) -> None:
    count = page.MOST_DRAWN + 10
    html = render(aggregate(write(tmp_path, lockstep([5] * (count - 1) + [25]))))
    assert html.count('<span class="track">') == page.MOST_DRAWN
    assert f"rank {count - 1}, the straggler" in html
    assert "and 10 more ranks, in the table" in html


def test_a_browser_shows_it(tmp_path: Path) -> None:
    chromium()
    target = tmp_path / "page.html"
    write_atomically(target, render(aggregate(write(tmp_path / "ranks", on_gpus()))).encode())
    script = """
        await painted();
        const of = (selector) => [...page.querySelectorAll(selector)];
        const seen = (all) => all.filter((one) => one.getBoundingClientRect().width > 0).length;
        const hatched = of(".waits").filter((one) => getComputedStyle(one).backgroundImage.includes("gradient"));
        return {
          tracks: seen(of(".track")), bars: seen(of(".track span")), hatched: hatched.length,
          tables: seen(of("table")), wide: page.documentElement.scrollWidth > frame.clientWidth,
          loaded: frame.contentWindow.performance.getEntriesByType("resource").map((one) => one.name),
          strangers: of("script, img, iframe, a").length,
        };
    """
    found, console = look(target, script, tmp_path)
    assert console == ""
    assert found == {
        "tracks": 4, "bars": 19, "hatched": 3, "tables": 2, "wide": False, "loaded": [], "strangers": 0,
    }  # fmt: skip


def test_hostile_texts_do_nothing_in_a_browser(tmp_path: Path) -> None:
    chromium()
    target = tmp_path / "page.html"
    write_atomically(target, render(hostile(tmp_path / "ranks")).encode())
    script = """
        await painted();
        return [page.querySelectorAll("script, img").length, page.querySelector("h1").textContent.slice(0, 8)];
    """
    assert look(target, script, tmp_path) == ([0, "<script>"], "")


def test_the_page_fits_a_narrow_screen(tmp_path: Path) -> None:
    chromium()
    target = tmp_path / "page.html"
    write_atomically(target, render(aggregate(write(tmp_path / "ranks", on_gpus()))).encode())
    script = "frame.width = 360; await wait(500); return page.documentElement.scrollWidth;"
    assert look(target, script, tmp_path) == (360, "")
