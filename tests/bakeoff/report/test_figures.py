"""No page loses, changes or swaps a figure of a committed record: tests/golden/figures has those of each page."""

from copy import deepcopy

import figures
import pytest
from figures import FROZEN, RUNS, Page, differences, flat, html_rows, markdown_rows, page_of, terminal_rows

from bakeoff.record.schema import NEVER_RUN
from bakeoff.record.store import load_all

FIRST, SECOND = "20260101T000000Z_wm_aa11", "20260101T000001Z_wm_bb22"
LINKS = {name: f"[{name[-4:]}](m/records/{name}.json)" for name in (FIRST, SECOND)}
MARKDOWN = f"""\
# Results

## wm:200m.step, batch 1, 2 threads

| variant | status | median ms [95 %] | vs eager | build s | record |
| --- | --- | ---: | ---: | ---: | --- |
| eager fp32 | ok | 20.10 [19.90, 20.30] | 1.00x | 0.1/- | {LINKS[FIRST]} |
| **int8+<wbr>inductor bf16** | ok | 10.05 \\| 15.00 (16 %) | 2.00x ~ | 60.1 cpu/7.3 cpu | {LINKS[SECOND]} |

| phase | calls |
| --- | ---: |
| denoise | 3 |

Deploy int8+inductor bf16: it is 2.00x [1.90, 2.10] as fast; torch 2.13.0 measured it.
"""
HTML = f"""\
<style>td {{ width: 1.5em }}</style><h1>Results</h1><nav><ol><li>9.99</li></ol></nav>
<h2>wm:200m.step, batch 1, 2 threads</h2>
<table><thead><tr><th>record</th><th>variant</th><th>vs eager</th><th>status</th><th>median ms [95 %]</th>
<th>build s</th></tr></thead>
<tbody><tr><td><a href="m/records/{SECOND}.json">bb22</a></td><th>★ int8+inductor bf16</th><td>2.00x ~</td><td>ok</td>
<td>10.05 and 15.00 (16 % of the calls)</td><td>60.1 cpu/7.3 cpu</td></tr>
<tr><td><a href="m/records/{FIRST}.json">aa11</a></td><th>eager fp32</th><td>1.00x</td><td>ok</td>
<td>20.10 [19.90, 20.30]</td><td>0.1/-</td></tr></tbody></table>
<table><thead><tr><th>phase</th><th>calls</th></tr></thead><tbody><tr><td>denoise</td><td>3</td></tr></tbody></table>
<p>2.00x [1.90, 2.10] <svg><text>9.99</text></svg></p>
"""
TERMINAL = """\
wm:200m.step, batch 1, 2 threads

  phase      calls
---------  -------
  denoise        3

2.00x [1.90, 2.10]
"""
OF_THE_SECOND = {
    "variant": "int8+inductor bf16",
    "winner": "yes",
    "status": "ok",
    "median ms [95 %]": "10.05 15.00 16",
    "vs eager": "2.00 ~",
    "build s": "60.1 7.3",
}
EXAMPLE: Page = {
    FIRST: {
        "variant": "eager fp32",
        "status": "ok",
        "median ms [95 %]": "20.10 19.90 20.30",
        "vs eager": "1.00",
        "build s": "0.1 -",
    },
    SECOND: OF_THE_SECOND,
    "m | wm:200m.step | denoise": {"calls": "3"},
    "m | wm:200m.step": {"text": ["1.90", "2.00", "2.10"]},
}


@pytest.fixture(scope="module")
def now() -> dict[str, Page]:
    return figures.present()


@pytest.mark.parametrize("page", sorted(path.stem for path in FROZEN.glob("*.json")))
def test_no_figure_is_lost_or_changed(page: str, now: dict[str, Page]) -> None:
    found = differences(figures.frozen()[page], now.get(page, {}))
    assert not found, "\n".join([f"{page}: {len(found)} differences, among them", *found[:20]])


def test_every_record_that_could_run_has_its_row(now: dict[str, Page]) -> None:
    records = load_all(RUNS)
    records = records.of_machines([one.key for one in records.machines() if one.folder in figures.MACHINES])
    ran = [entry for entry in records.current if entry.record.status not in NEVER_RUN]
    kept = [entry.id for entry in (*ran, *records.comparisons, *records.pipelines)]
    missing = [name for name in kept if name not in now["history"]]
    assert (now.keys(), missing) == (figures.frozen().keys(), [])


class TestReading:
    """The same figures on pages that differ in wording and order."""

    def test_markdown(self) -> None:
        assert page_of(markdown_rows(MARKDOWN), "m") == EXAMPLE

    def test_html(self) -> None:
        assert page_of(html_rows(HTML), "m") == EXAMPLE

    def test_terminal(self) -> None:
        tables = {name: row for name, row in EXAMPLE.items() if name.startswith("m |")}
        assert page_of(terminal_rows(TERMINAL), "m") == tables

    def test_links_by_reference(self) -> None:
        text = MARKDOWN.replace(LINKS[FIRST], "[aa11]") + f"\n[aa11]: m/records/{FIRST}.json\n"
        assert page_of(markdown_rows(text), "m") == EXAMPLE

    def test_json(self) -> None:
        told = {
            "a": {"ms": 1.5, "n": None, "reason": "1.6"},
            "lines": [{"name": "x", "ms": 2.0}, {"name": "x", "ms": 3}],
        }
        expected = {"a.ms": 1.5, "lines.x": {"ms": 2.0}, "lines.x'": {"ms": 3}, "stale": "yes"}
        assert dict(flat({**told, "stale": "other code"})) == expected

    def test_long_lists_of_json_count_by_their_places(self) -> None:
        swapped = [dict(flat({"ms": [*range(9), *pair]})) for pair in ((20.0, 10.0), (10.0, 20.0))]
        assert swapped[0]["ms.1"] == swapped[1]["ms.1"] == 66
        assert swapped[0]["ms.2"] != swapped[1]["ms.2"]

    def test_phases_of_mixes_are_the_same_in_every_layout(self) -> None:
        calls, ms, share = {"calls a unit": "1"}, ("2.0", "4.0"), ("60.0", "70.0")
        mixes = list(zip(("best", "eager"), ms, share, strict=True))
        folded = [
            {
                f"m | {title}owl:200m | decode": calls
                | {f"{name}{kind}": text for name, *both in mixes for kind, text in zip(kinds, both, strict=True)}
            }
            for title, kinds in (("", (" ms", " %")), ("Pipelines > ", (": ms a unit", ": share")))
        ]
        by_mix = {f"m | owl:200m > {name}: a steady frame by phase | decode": {**calls, "ms a unit": ms, "share": share}
                  for name, ms, share in mixes}  # fmt: skip
        named = {
            f"m | owl:200m > Phases of a steady unit | {name} decode": {
                **calls, name: "decode", "ms a frame": ms, "share": share,
            }
            for name, ms, share in mixes
        }  # fmt: skip
        expected = {f"m | owl:200m > {name} | decode": {"ms": ms, "share": share} for name, ms, share in mixes}
        for page in (*folded, by_mix, named):
            assert figures.laid_out(page) == {"m | owl:200m | decode": calls, **expected}


class TestDifferences:
    def changed(self, row: str = SECOND, **columns: object) -> list[str]:
        page = deepcopy(EXAMPLE)
        page[row] |= {name.replace("_", " "): figure for name, figure in columns.items()}
        return differences(EXAMPLE, page)

    def test_of_equal_pages(self) -> None:
        assert self.changed() == []

    def test_a_changed_figure_names_record_column_and_both_figures(self) -> None:
        assert self.changed(vs_eager="0.50 ~") == [f"{SECOND}: vs eager: frozen '2.00 ~', now '0.50 ~'"]

    def test_swapped_columns(self) -> None:
        assert len(self.changed(vs_eager="60.1 7.3", build_s="2.00 ~")) == 2

    def test_a_lost_row(self) -> None:
        page = {name: row for name, row in EXAMPLE.items() if name != SECOND}
        assert differences(EXAMPLE, page) == [f"{SECOND}: this row is lost: {OF_THE_SECOND}"]

    def test_a_lost_column(self) -> None:
        page = EXAMPLE | {SECOND: {name: figure for name, figure in OF_THE_SECOND.items() if name != "winner"}}
        assert differences(EXAMPLE, page) == [f"{SECOND}: winner: frozen 'yes', now None"]

    def test_a_figure_where_there_was_none(self) -> None:
        assert self.changed(FIRST, winner="yes") == [f"{FIRST}: winner: frozen None, now 'yes'"]

    def test_a_record_that_had_no_row(self) -> None:
        assert differences(EXAMPLE, {**EXAMPLE, "other": {"ms": "1"}}) == [
            "other: a row that was not there: {'ms': '1'}"
        ]

    def test_numbers_lost_from_a_text(self) -> None:
        (found,) = self.changed("m | wm:200m.step", text=["2.00", "2.10", "7.00"])
        assert "frozen ['1.90', '2.00', '2.10']" in found

    def test_columns_and_rows_without_a_record_may_be_added(self) -> None:
        page = {**EXAMPLE, FIRST: {**EXAMPLE[FIRST], "p90 ms": "1"}, "m | other": {"calls": "3"}}
        assert differences(EXAMPLE, page) == []
