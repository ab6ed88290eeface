"""Every page of docs/: each fenced example runs in a short form or says why not, and what it lists is what there is."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import format_schemas
import pytest
from lab import shorten_clocks
from page_examples import run_python
from records import bakeoff
from selftest_backends.expected import MORE

from bakeoff.record.finding import FindingCode, SessionCode
from bakeoff.record.schema import Status
from bakeoff.report.columns import columns
from bakeoff.report.pages.sweep import KEYS
from bakeoff.selftest.expected import LANES
from bakeoff.trace.tags import TAGS

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").rglob("*.md"))
RUN, SHELLS = ("python", "bash", "sh"), ("bash", "sh")
_MARK = re.compile(r"<!-- (run by|not run:) (.+) -->")
_GENERATED = {"zoo.md", "peers.md", "faults.md", "sweep-times.md", "floor-steps.md", "promises.md", "rtx-engines.md"}
"""Written by trials, with tests of their own."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced example: its language, its text, and what the comment above it says."""

    language: str
    text: str
    kind: str
    """`run by`, `not run:`, or "" where this file runs it."""
    said: str


def blocks(page: Path) -> Iterator[Block]:
    before, held, language = "", [], ""
    mark = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```") and not language:
            language, held, mark = line[3:] or "text", [], before
        elif line.startswith("```"):
            found = _MARK.fullmatch(mark)
            yield Block(language, "\n".join(held) + "\n", found[1] if found else "", found[2] if found else "")
            language = ""
        elif language:
            held.append(line)
        before = line


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in RUN]


def here(page: Path) -> list[Block]:
    """The blocks that this file runs."""
    return [block for block in runnable(page) if not block.kind]


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_each_example_is_run_or_says_why_not(page: Path) -> None:
    for block in runnable(page):
        if block.kind == "run by":
            text = (ROOT / block.said).read_text(encoding="utf-8")
            assert f'"{page.name}"' in text, f"{block.said} does not read {page.name}"
        if block.kind == "not run:":
            assert len(block.said.split()) >= 3, block.said


@pytest.mark.parametrize("page", [page for page in DOCS if here(page)], ids=lambda page: page.name)
def test_examples_run_as_typed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the page's order, in one folder, with short clocks: bakeoff's commands in this process, python in another."""
    folder = tmp_path / "mine" / "code"
    folder.mkdir(parents=True)
    shorten_clocks(monkeypatch)
    for block in here(page):
        if block.language in SHELLS:
            for line in block.text.splitlines():
                program, *arguments = shlex.split(line, comments=True)
                assert program == "bakeoff"
                ran = bakeoff(*arguments, cwd=folder)
                assert ran.code == 0, f"{line}\n{ran.out}\n{ran.err}"
        else:
            run_python(folder, "-c", block.text)


def codes_on(heading: str) -> dict[str, str]:
    """The codes in the first column of the tables below a heading of the page about the method, with what to do."""
    text = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    part = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("| `")
    ]
    assert all(len(row) == 3 for row in rows)
    assert all(row[1] for row in rows)
    return {row[0].strip("`"): row[2] for row in rows}


def flat(literal: object) -> set[str]:
    """The values of a Literal, those of Literals within it included."""
    return {value for each in get_args(literal) for value in ([each] if isinstance(each, str) else flat(each))}


def test_every_status_is_explained() -> None:
    said = codes_on("Statuses")
    assert set(said) == flat(Status)
    assert all(said[status] for status in said if status != "ok"), "what to do"


def test_every_finding_is_explained() -> None:
    said = codes_on("Findings")
    assert set(said) == flat(FindingCode) | flat(SessionCode)
    assert all(said.values()), "what to do"


def test_the_selftest_has_as_many_backends_as_it_says() -> None:
    own = [entry for lane in LANES for entry in lane.expectations]
    correct = [entry.status == "ok" for entry in (*own, *(entry for more in MORE.values() for entry in more))]
    text = " ".join((ROOT / "docs" / "trust.md").read_text(encoding="utf-8").split())
    assert f"`bakeoff selftest` sweeps {len(own)} backends" in text
    assert f"`make selftest` in a checkout sweeps {len(correct)}" in text
    assert f"{correct.count(False)} have a fault each" in text
    assert f"the {correct.count(True)} correct backends" in text


def test_every_column_of_the_terminals_table_is_explained() -> None:
    text = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    part = text.partition("\n## Columns\n")[2].partition("\n## ")[0]
    rows = [line for line in part.splitlines() if line.startswith("| `")]
    said = {heading for row in rows for heading in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert said == {column.heading for column in columns(KEYS)}


def test_every_tag_of_a_trace_has_its_level() -> None:
    text = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    part = text.partition("\n## Tags\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d) \| (.+) \|$", part, re.MULTILINE)
    named = [(tag, int(level)) for level, tags in rows for tag in re.findall(r"`([^`]+)`", tags)]
    assert named == [*TAGS.items()]


def test_every_folder_and_file_of_the_package_has_its_place() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    part = text.partition("\n## Where things are\n")[2].partition("\n## ")[0]
    named = {name for row in part.splitlines() for name in re.findall(r"`(bakeoff/[\w.]+/?)`", row.split(" | ")[0])}
    folders = {f"bakeoff/{path.parent.name}/" for path in (ROOT / "bakeoff").glob("*/__init__.py")}
    files = {f"bakeoff/{path.name}" for path in (ROOT / "bakeoff").glob("*.py") if not path.name.startswith("__")}
    assert named == folders | files


def test_formats_are_those_of_the_sources() -> None:
    text = format_schemas.PAGE.read_text(encoding="utf-8")
    assert text == format_schemas.with_tables(text), "run: python tests/support/format_schemas.py"
    for file, kind in format_schemas.SCHEMAS.items():
        assert (ROOT / file).read_bytes() == format_schemas.json_schema(kind), file


def test_the_schema_of_records_takes_each_kind_that_is_published_and_no_time_below_zero() -> None:
    schema = json.loads((ROOT / "docs" / "schemas" / "record.schema.json").read_text(encoding="utf-8"))
    jsonschema = pytest.importorskip("jsonschema", reason="it comes with the extra ray")
    valid = jsonschema.Draft202012Validator(schema)
    kinds = {}
    for path in sorted((ROOT / "runs" / "published").glob("*/records/*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        kinds.setdefault((record["kind"], record.get("measurement", {}).get("status")), record)
    for record in kinds.values():
        assert [error.message for error in valid.iter_errors(record)] == []
    timed = next(record for record in kinds.values() if record.get("measurement", {}).get("latency"))
    timed["measurement"]["latency"]["samples_ns"][0] = -1
    assert not valid.is_valid(timed), timed["measurement"]["latency"]["samples_ns"][0]


@pytest.mark.parametrize("page", [page for page in DOCS if page.name not in _GENERATED], ids=lambda page: page.name)
def test_no_page_repeats_another(page: Path) -> None:
    """Paragraphs of prose, in the same words, are on one page only."""
    others = {part for other in (*DOCS, ROOT / "README.md") if other != page for part in paragraphs(other)}
    assert [part for part in paragraphs(page) if part in others] == []


def paragraphs(page: Path) -> list[str]:
    text = re.sub(
        r"```.*?```|<!-- fields.*?<!-- end of fields -->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    found = [" ".join(part.split()) for part in text.split("\n\n")]
    return [part for part in found if len(part) > 150 and not part.startswith("|")]
