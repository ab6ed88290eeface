"""No page loses, changes or swaps a figure of a committed record: tests/golden/figures has those of each page."""

from copy import deepcopy
from types import SimpleNamespace

import figures
import pytest
from figures import FROZEN, RUNS, Page, differences

from bakeoff.record.comparable import subject_key
from bakeoff.record.schema import NEVER_RUN
from bakeoff.record.store import load_all
from bakeoff.report.figures import vega
from bakeoff.report.render import html

FIRST, SECOND = "20260101T000000Z_wm_aa11", "20260101T000001Z_wm_bb22"
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
    """Without the pictures, which hold no figure of a table."""
    blank = SimpleNamespace(__version__="", vegalite_to_svg=lambda _made: "<svg/>", javascript_bundle=lambda: "")
    with pytest.MonkeyPatch.context() as patch:
        for module in (vega, html):
            patch.setattr(module, "library", lambda: blank)
        return figures.present()


@pytest.mark.parametrize("page", sorted(path.stem for path in FROZEN.glob("*.json")))
def test_no_figure_is_lost_or_changed(page: str, now: dict[str, Page]) -> None:
    found = differences(figures.frozen()[page], now.get(page, {}))
    assert not found, "\n".join([f"{page}: {len(found)} differences, among them", *found[:20]])


def test_each_variant_that_could_run_is_in_the_history(now: dict[str, Page]) -> None:
    records = load_all(RUNS)
    records = records.of_machines([one.key for one in records.machines() if one.folder in figures.MACHINES])
    ran = [entry for entry in records.current if entry.record.status not in NEVER_RUN]
    of = [(each.summary or each.id, (subject_key(each.record), str(each.record.variant))) for each in ran]
    of += [(each.summary or each.id, (subject_key(each.record), str(each.record.mix))) for each in records.pipelines]
    missing = [*{key for _, key in of} - {key for name, key in of if name in now["history"]}]
    assert (now.keys(), missing) == (figures.frozen().keys(), [])


class TestDifferences:
    def changed(self, row: str = SECOND, **columns: object) -> list[str]:
        page = deepcopy(EXAMPLE)
        page[row] |= {name.replace("_", " "): figure for name, figure in columns.items()}
        return differences(EXAMPLE, page)

    def test_a_changed_figure_names_record_column_and_both_figures(self) -> None:
        assert self.changed(vs_eager="0.50 ~") == [f"{SECOND}: vs eager: frozen '2.00 ~', now '0.50 ~'"]

    def test_a_lost_row(self) -> None:
        page = {name: row for name, row in EXAMPLE.items() if name != SECOND}
        assert differences(EXAMPLE, page) == [f"{SECOND}: this row is lost: {OF_THE_SECOND}"]

    def test_numbers_lost_from_a_text(self) -> None:
        (found,) = self.changed("m | wm:200m.step", text=["2.00", "2.10", "7.00"])
        assert "frozen ['1.90', '2.00', '2.10']" in found
