"""The page of the ranks of a run."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rank_records import lockstep, on, record, watched, write

from bakeoff.profile.ranks.aggregate import aggregate
from bakeoff.record.ranks import RanksReport
from bakeoff.record.session import SessionRecord
from bakeoff.report.document import Document, Table
from bakeoff.report.pages.ranks import document
from bakeoff.report.render import html, terminal


def on_gpus() -> list[SessionRecord]:
    """Four ranks on two GPUs; rank 2 is slow."""
    ranks = [on(made, device=f"GPU-{'ab'[place // 2]}") for place, made in enumerate(lockstep((5, 5, 25, 5)))]
    return [replace(made, monitored=watched(f"GPU-{'ab'[place // 2]}", 8192, 40)) for place, made in enumerate(ranks)]


def page_of(report: RanksReport) -> Document:
    return document([report])


def test_the_straggler_comes_first_and_nothing_is_missing(tmp_path: Path) -> None:
    write(tmp_path, on_gpus(), leave_out=[1])
    (tmp_path / "rank-00003.session.json").write_text("{")
    write(tmp_path, [on(replace(record(5, world=9)), group="another")])
    report = aggregate(tmp_path)
    page = page_of(report)
    text = terminal.render(page)
    assert page.title == "toy: 2 of 4 ranks"
    assert text.startswith("rank 2 is the straggler: it costs at most 20.000 of 30.000 ms a unit")
    for part in (
        "frames/s of the run: 400.000",
        "missing: rank 1",
        "unreadable: rank-00003.session.json",
        "left-out: ",
        "wait in all_reduce, ms a unit: rank 0 20.000",
    ):
        assert part in text
    assert all(spread.name in text for spread in report.spreads), "the union of figures"


def test_phases_of_each_rank_are_in_its_row(tmp_path: Path) -> None:
    page = page_of(aggregate(write(tmp_path, on_gpus())))
    (ranks,) = (block for block in page.blocks if isinstance(block, Table) and block.title.startswith("Ranks"))
    shown = [heading.text for heading in ranks.headings]
    for rank, denoise_ms in enumerate((5, 5, 25, 5)):
        cells = dict(zip(shown, (cell.text for cell in ranks.rows[rank]), strict=True))
        assert (cells["rank"], cells["denoise ms"], cells["decode ms"]) == (str(rank), f"{denoise_ms}.000", "3.000")
        assert (cells["all_reduce ms"], cells["unattributed ms"]) == (f"{26 - denoise_ms}.000", "1.000")


@pytest.mark.parametrize(
    "records",
    [
        [record(world=1)],
        [replace(record(rank, world=2), units=(), spans=()) for rank in range(2)],
        [replace(record(rank, world=2), units=(), spans=(), ranges=record().ranges[:1]) for rank in range(2)],
    ],
    ids=["one rank", "no units", "no ranges"],
)
def test_odd_runs_have_a_page(records: Sequence[SessionRecord], tmp_path: Path) -> None:
    page = page_of(aggregate(write(tmp_path, records)))
    assert html.render(page, interactive=False).endswith("</html>")
    assert not re.search(r"\b(nan|inf)\b", terminal.render(page))
