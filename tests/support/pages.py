"""Every page that shows records, each as text."""

import re
from collections.abc import Callable, Sequence

import pytest
from few_records import history_text

from bakeoff.record.codec import encode_json
from bakeoff.record.store import Records, Stored, StoredCeilings, StoredComparison
from bakeoff.report.document import Document
from bakeoff.report.groups import newest
from bakeoff.report.markdown import results, whole
from bakeoff.report.pages import readme, sweep
from bakeoff.report.recommendation import recommendation
from bakeoff.report.render import terminal
from bakeoff.report.selection import chosen


def tables_text(
    rows: Sequence[Stored],
    comparisons: Sequence[StoredComparison] = (),
    every: Sequence[Stored] = (),
    measured: Sequence[StoredCeilings] = (),
    **typed: str,
) -> str:
    """What a terminal without a width shows of rows."""
    return terminal.render(Document("", sweep.newest_tables(rows, every, comparisons, measured, **typed)))


def _html(records: Records) -> str:
    page = pytest.importorskip("bakeoff.report.html.page")
    text = page.render(records)
    return re.sub(r"<script>.*?</script>|<style>.*?</style>", "", text, flags=re.DOTALL)


def _plots(records: Records) -> str:
    files = pytest.importorskip("bakeoff.report.figures.files")
    return "\n".join(data.decode() for data in files.render(records).values())


PAGES: dict[str, Callable[[Records], str]] = {
    "table": lambda records: tables_text(
        newest(records.current), records.comparisons, records.current, records.ceilings
    ),
    "json": lambda records: encode_json(
        sweep.as_rows(newest(records.current), records.ceilings, records.current)
    ).decode(),
    "recommendation": lambda records: recommendation(newest(records.current), records.comparisons),
    "history": history_text,
    "readme": lambda records: readme.render(chosen(records)),
    "whole": lambda records: whole.render(chosen(records)),
    "results": lambda records: "".join(results.render(records, machine) for machine in records.machines()),
    "html": _html,
    "plots": _plots,
}
