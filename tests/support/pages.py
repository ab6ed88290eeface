"""Every page that shows records, each as text."""

import json
import re
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from typing import Any

import pytest
from answers import as_text
from few_records import history_text

from bakeoff.machine.identity import Machine
from bakeoff.record.codec import encode_json
from bakeoff.record.store import Records, Stored, StoredCeilings, StoredComparison
from bakeoff.report.document import Document
from bakeoff.report.groups import newest
from bakeoff.report.pages import readme, results, sweep
from bakeoff.report.recommendation import deployment
from bakeoff.report.render import html, markdown, terminal
from bakeoff.report.selection import chosen


class Parsed(HTMLParser):
    """A page's tags, scripts, data of figures and texts, as a browser would parse them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.data: list[str] = []
        self.figures: dict[str, Any] = {}
        self.words: list[str] = []
        self._inside: dict[str, str | None] | None = None
        self._style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = dict(attrs) if tag == "script" else None
        self._style = tag == "style"

    def handle_endtag(self, _tag: str) -> None:
        self._inside = None
        self._style = False

    def handle_data(self, data: str) -> None:
        self.data.append(data)
        if self._inside is not None and "type" in self._inside:
            self.figures[str(self._inside["id"])] = json.loads(data)
        elif self._inside is not None:
            self.scripts.append(data)
        elif not self._style:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def tables_text(
    rows: Sequence[Stored],
    comparisons: Sequence[StoredComparison] = (),
    every: Sequence[Stored] = (),
    measured: Sequence[StoredCeilings] = (),
    **typed: str,
) -> str:
    """What a terminal without a width shows of rows."""
    return terminal.render(Document("", sweep.newest_tables(rows, every, comparisons, measured, **typed)))


def html_text(records: Records, runs: str = "") -> str:
    """The HTML report."""
    pytest.importorskip("vl_convert")
    return html.render(results.of_everything(records, runs))


def results_text(records: Records, machine: Machine | None = None) -> str:
    """RESULTS.md of one machine, or of all that is published."""
    if machine is None:
        return markdown.render(results.of_published(chosen(records)))
    return markdown.render(results.of_machine(records, machine))


def _html(records: Records) -> str:
    return re.sub(r"<script>.*?</script>|<style>.*?</style>", "", html_text(records), flags=re.DOTALL)


PAGES: dict[str, Callable[[Records], str]] = {
    "table": lambda records: tables_text(
        newest(records.current), records.comparisons, records.current, records.ceilings
    ),
    "json": lambda records: encode_json(
        sweep.as_rows(newest(records.current), records.ceilings, records.current)
    ).decode(),
    "recommendation": lambda records: as_text(deployment(newest(records.current), records.comparisons)),
    "history": history_text,
    "readme": lambda records: readme.render(chosen(records)),
    "whole": results_text,
    "results": lambda records: "".join(results_text(records, machine) for machine in records.machines()),
    "html": _html,
}
