"""The figures that the committed records give on every page, apart from the pages' wording, and the frozen ones.

`python tests/support/figures.py --write` writes tests/golden/figures again. Do that where records enter or leave the
repository or a page gets a further column, and never to make a failure go away: a figure that changed without its
record is a fault of the change. A commit that takes a figure off a page on purpose deletes it from the data and says
why.

A page gives rows: those of its tables, and the text of its sections. A row is named by the record that it links to, or
else by the section's subject and the row's name. A cell that mixes words and numbers counts by its numbers, a text by
the set of its decimal numbers and percentages. So pages may be reworded, and rows and columns moved. Columns may be
added, and rows that are of no record; a figure in a cell that was empty is a difference. A heading or a key that is
reworded is entered in `RENAMED`.
"""

import json
import math
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from typer.testing import CliRunner

from bakeoff.report.format import shorten

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "runs" / "published"
"""Where the folders of the machines with committed records are."""
MACHINES = ("amd-epyc-2-cores-44b230", "amd-epyc-2-cores-ddc32a", "intel-xeon-processor-2-cores-175cda")
"""Those whose figures are frozen."""
FROZEN = ROOT / "tests" / "golden" / "figures"
RENAMED: Mapping[str, str] = {}
"""Headings, and keys of JSON, as they are now, each with what the frozen data call it."""

Figure = str | float | bool | list[str] | dict[str, Any]
"""The numbers of a cell, or its words where it has none; a value of JSON, or an object of its lists; the numbers of a
text as a set."""
Page = dict[str, dict[str, Figure]]
"""From the names of rows to their columns."""

_NAMES = ("variant", "mix", "name", "phase", "line", "in", "slot", "level", "tag", "module", "by size")
"""Headings of the cells that tell rows without a record apart."""
_PROSE = {"why", "told by", "record", "of", "ratio of medians, round by round"}
"""Headings of cells that are no figures."""
_PROSE_KEYS = {
    "command", "compiled", "environment", "evidence", "files", "machine", "reason", "record", "says", "source", "text",
    "programs", "title", "told_by",
}  # fmt: skip
_ITEM_KEYS = ("name", "line", "slot", "program", "tag", "path", "code", "where", "size")
"""Keys that tell the objects in a list of JSON apart."""
_OF_MIX = {"ms": "ms a unit", "%": "share", "of it": "of the difference"}
"""Headings of a mix's own page, each with what the frozen data call it."""
_LINES = {"line", "p99 ms", "peak MiB"}
"""Headings of the tables of that page that were lines of text."""
_LAYOUT = r"Pipelines|Whole frames|Phases of a steady[^|>]*|Remarks|Mixes|Stale, not comparable[^|>]*"
"""Headings on the pages of pipelines that name no subject."""
_MOST_NUMBERS = 8
"""Of a list of JSON that are kept; a longer one counts by its length, its sum, and its sum weighted by place."""
_END = r"(?![\w.]*\d|[a-wyzA-Z_])"
"""Neither a version number nor a word that begins with digits, but for `1.25x`."""
_NUMBER = rf"(?<![\w.:-])[+-]?\d+(?:,\d\d\d)*(?:\.\d+)?(?:e[+-]\d+)?{_END}"
_IN_CELL = re.compile(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d|{_NUMBER}|n/a|[~!]|(?<![^\s/])-(?![^\s/])")
_IN_TEXT = re.compile(rf"(?<![\w.:/-])[+-]?(?:\d+\.\d+(?:e[+-]\d+)?{_END}|\d+(?= ?%))")
_RUN = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")


@dataclass(frozen=True)
class Row:
    """A row of a table, or a text: then `cells` is empty."""

    title: str
    """The subjects of the headings above it."""
    text: str
    cells: Mapping[str, str]
    """By heading."""
    cited: tuple[str, ...]
    """Ids of the records that it links to."""


def present() -> dict[str, Page]:
    """The figures of every page that today's code makes of the records of MACHINES."""
    with tempfile.TemporaryDirectory() as folder:
        pages: dict[str, Page] = {}
        for name, page in _pages(Path(folder)):
            known = pages.setdefault(name, {})
            assert not known.keys() & page.keys(), f"{name}: {known.keys() & page.keys()} twice"
            known.update(page)
        return pages


def frozen() -> dict[str, Page]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FROZEN.glob("*.json"))}


def write() -> None:
    """Write a file for each page, a line for each row."""
    pages = present()
    for path in FROZEN.glob("*.json"):
        path.unlink()
    FROZEN.mkdir(exist_ok=True)
    for name, page in pages.items():
        rows = [f"{_line(row)}: {_line(page[row])}" for row in sorted(page)]
        (FROZEN / f"{name}.json").write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def laid_out(page: Page) -> Page:
    """The same figures with a row for each phase of each mix of a pipeline, whichever way a page lays them out."""
    made: Page = {}
    for name, row in page.items():
        where, _, phase = re.sub(rf"(?<=\| )({_LAYOUT})( > |$)| > ({_LAYOUT})(?= \||$)", "", name).rpartition(" | ")
        if not where or not any(re.search("(^| )(share|%)$", column) for column in row):
            kept = made.setdefault(f"{where} | {phase}" if where else name, {})
            kept |= (
                row | {"text": sorted({*_as_list(row["text"]), *_as_list(kept.get("text"))})} if "text" in row else row
            )
            continue
        own = next((column for column in row if phase == f"{column} {row[column]}"), "")
        phase = phase.removeprefix(f"{own} ")
        if mix := re.search(r" > (.*): a steady \w+ by phase$", where):
            where, own = where[: mix.start()], mix[1]
        for column, figure in row.items():
            found = re.fullmatch(r"(?:(.+?):? )?(ms|share|%)(?: a \w+)?", column)
            if found:
                of_mix = made.setdefault(f"{where} > {found[1] or own} | {phase}", {})
                of_mix["ms" if found[2] == "ms" else "share"] = figure
            elif column != own:
                made.setdefault(f"{where} | {phase}", {}).setdefault(column, figure)
    return made


def differences(before: Page, now: Page) -> list[str]:
    """What was changed or lost, a line each: the row, the column, the frozen figure and the present one."""
    before, now = laid_out(before), laid_out(now)
    columns = {column for row in before.values() for column in row}
    found = [
        f"{name}: this row is lost: {before[name]}"
        for name in before
        if name not in now and not ("measured (UTC)" in before[name] and not _numbers(before[name]))
    ]
    for name in before.keys() & now.keys():
        was, own = before[name], now[name]
        if own.keys() == {"text"} and "text" not in was:  # a row of a table that is a text now
            was = {"text": _numbers(was)}
        changed = [column for column in was if column not in own or not _equal(was[column], own[column])]
        changed += own.keys() & columns - was.keys()
        found += [f"{name}: {column}: frozen {was.get(column)!r}, now {own.get(column)!r}" for column in changed]
    records = [name for name in now.keys() - before.keys() if " | " not in name]
    return sorted([*found, *(f"{name}: a row that was not there: {now[name]}" for name in records)])


def _numbers(row: Mapping[str, Figure]) -> list[str]:
    """What a text would have of the figures of a row; a stale mix without any has no row in a list of texts."""
    return sorted({number for cell in row.values() for number in _IN_TEXT.findall(str(cell))})


def _equal(figure: Figure, now: Figure) -> bool:
    if isinstance(figure, list) and isinstance(now, list):
        return set(figure) <= set(now)
    if isinstance(figure, dict) and isinstance(now, dict):
        return all(key in now and _equal(inner, now[key]) for key, inner in figure.items())
    if isinstance(figure, int | float) and isinstance(now, int | float):
        return math.isclose(figure, now, rel_tol=1e-6)
    return figure == now


def _pages(folder: Path) -> Iterator[tuple[str, Page]]:
    """Name and figures of each page of a machine or a record, as the commands make them from copies of the records."""
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import readme
    from bakeoff.report.selection import select

    runs = folder / "runs"
    for machine in MACHINES:
        shutil.copytree(RUNS / machine / "records", runs / machine / "records")
    _bakeoff("--runs", runs, "history")
    for machine in MACHINES:
        own, where = ("--machine", machine), ("--runs", runs)
        shutil.copy(ROOT / "README.md", folder)
        readme.publish(runs / "published", select(load_all(runs), [machine], ()).records, runs)
        _bakeoff(*where, "report", *own, "--html", folder / "report.html")
        told = json.loads(_bakeoff(*where, "table", *own, "--json"))
        yield "table", {row["record"]: dict(flat(row)) for row in told["rows"]}
        yield "pipelines", {row["record"]: dict(flat(row)) for row in told["pipelines"]}
        yield "terminal", page_of(terminal_rows(_bakeoff(*where, "table", *own)), machine)
        yield "report", page_of(html_rows(_read(folder / "report.html")), machine)
        published = _read(runs / "published" / "RESULTS.md")
        yield "published", page_of(markdown_rows(published), machine)
        yield "readme", page_of(markdown_rows(_block(_read(folder / "README.md"), published)), machine)
        yield "results", page_of(markdown_rows(_read(runs / machine / "RESULTS.md")), machine)
        yield "history", page_of(markdown_rows(_read(runs / machine / "OPTIMIZATION_HISTORY.md")), machine)
        for path in sorted((runs / machine / "profiles").glob("*.html")):
            rows = _of_profile(html_rows(_read(path)))
            yield "profile-html", page_of(rows, _hash(path.stem), cited=False)
    for path in sorted(runs.glob("*/records/*_compare_*.json")):
        told = json.loads(_bakeoff("--runs", runs, "show", path.stem, "--json"))
        yield "comparisons", {path.stem: dict(flat(told))}
    yield from _texts(runs)


def _texts(runs: Path) -> Iterator[tuple[str, Page]]:
    """The terminal's pages of each run of a pipeline, and of its profile where it has one."""
    from bakeoff.record.codec import encode_json
    from bakeoff.record.store import load_all
    from bakeoff.report.pages import mix, profile
    from bakeoff.report.render import terminal

    records = load_all(runs)
    for entry in records.pipelines:
        run = [other for other in records.pipelines if other.record.run == entry.record.run]
        rows = terminal_rows(terminal.render(mix.document_of(entry, run)))
        yield "pipeline-text", page_of(_of_mix(rows), _hash(entry.id))
        found = profile.profiled(entry, records)
        if found is not None:
            text = terminal.render(profile.together([found]))
            yield "profile-text", page_of(_of_profile_text(terminal_rows(text)), _hash(entry.id))
            told = json.loads(encode_json(profile.derived(found)))
            yield "profile-json", _by_item(_hash(entry.id), dict(flat(told)))


def _of_profile(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of a profile's HTML page under the titles and headings that the frozen data have of it."""
    titles = {"Advice": "What could be gained", "Notes": "Kernels and operators > Operators"}
    for row in rows:
        cells = {re.sub(r"mean (ms) a .*|(busy|idle) ms", r"\1\2", name): cell for name, cell in row.cells.items()}
        yield replace(row, title=titles.get(row.title.partition(" > ")[0], row.title), cells=cells)


def _of_profile_text(rows: Iterable[Row]) -> Iterator[Row]:
    """The same of its text page, which was one section with all texts, and shortened the names of kernels."""
    for row in rows:
        title = row.title.rpartition(" > ")[2]
        cells = {re.sub("^ms a .*", "ms", name): cell for name, cell in row.cells.items()}
        cells |= {"name": shorten(cells["name"], 72)} if "name" in cells else {}
        own = "" if not cells or title.startswith("One ") else title[0].lower() + title[1:]
        yield replace(row, title=own, cells=cells)


def _of_mix(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of a mix's own page as the frozen data have them: one section, in which some tables were lines."""
    for row in rows:
        if _LINES & row.cells.keys():
            yield Row("", " ".join(row.cells.values()), {}, ())
        else:
            yield Row("", row.text, {_OF_MIX.get(heading, heading): text for heading, text in row.cells.items()}, ())


def _by_item(about: str, row: dict[str, Figure]) -> Page:
    """The figures of a large object of JSON, a row for each object of its lists."""
    items = {f"{about} | {name}": figure for name, figure in row.items() if isinstance(figure, dict)}
    return {about: {name: figure for name, figure in row.items() if not isinstance(figure, dict)}, **items}


def _hash(name: str) -> str:
    """The end of a record's name, which commands take for it."""
    return name.rpartition("_")[2]


def _bakeoff(*words: str | Path) -> str:
    """What a command prints."""
    from bakeoff.cli import app

    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, f"{words}: {done.output}"
    return done.stdout


def _block(page: str, tables: str) -> str:
    """README's results, with links to the records to which the linked lines of the page of tables lead."""
    text = page.partition("<!-- results")[2].partition("-->\n")[2].partition("<!-- end of results")[0]
    addresses = dict(re.findall(r"^\[(\w+)\]: (\S+)$", tables, re.MULTILINE))
    for anchor, label in re.findall(r'<a id="(\w+)"></a>\[(\w+)\]', tables):
        text = text.replace(f"(runs/published/RESULTS.md#{anchor})", f"({addresses[label]})")
    return text


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def page_of(rows: Iterable[Row], about: str, cited: bool = True) -> Page:
    """The figures of a page's rows: `about` begins the names of those without a record, or of all but for `cited`.

    A column that has two figures in rows of one name is two columns.
    """
    page: Page = {}
    for row in rows:
        names = [text for heading, text in row.cells.items() if heading in _NAMES]
        first = [] if names or not row.cells else [" ".join(next(iter(row.cells.items())))]
        alone = " | ".join([about, row.title, *names, *first])
        for name in row.cited if row.cited and cited else [alone]:
            for column, figure in figures(row).items():
                kept = page.setdefault(name, {})
                if isinstance(figure, list):
                    figure = sorted({*figure, *_as_list(kept.get(column))})
                else:
                    while kept.get(column, figure) != figure:
                        column += "'"
                kept[column] = figure
    return page


def _as_list(figure: Figure | None) -> list[str]:
    return figure if isinstance(figure, list) else []


def figures(row: Row) -> dict[str, Figure]:
    """The figures of one row by its columns; a row without any has none."""
    if not row.cells:
        found = _IN_TEXT.findall(row.text)
        return {"text": sorted(set(found))} if found else {}
    made: dict[str, Figure] = {}
    for heading, text in row.cells.items():
        if heading in _PROSE or not text:
            continue
        name = re.sub(r"^(\*\*|★ |\* )", "", text).removesuffix("**")
        if heading in _NAMES:
            made |= {heading: name} if row.cited else {}
            made |= {"winner": "yes"} if name != text else {}
            continue
        numbers = _IN_CELL.findall(text) if heading != "status" else []
        made[RENAMED.get(heading, heading)] = " ".join(numbers) or text.partition(":")[0]
    return made


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Figure]]:
    """The figures of JSON by their paths; what says why is left out, and lists of texts."""
    key = RENAMED.get(path, path)
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in _PROSE_KEYS:
                yield from flat(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield from _flat_list(value, path)
    elif isinstance(value, float):
        yield key, float(f"{value:.7g}")
    elif value is not None and value != "":
        yield key, "yes" if path == "stale" else value


def _flat_list(values: Sequence[Any], path: str) -> Iterator[tuple[str, Figure]]:
    if values and all(isinstance(value, int | float) for value in values):
        if len(values) > _MOST_NUMBERS:
            values = [len(values), sum(values), sum(place * number for place, number in enumerate(values))]
        for place, number in enumerate(values):
            yield from flat(number, f"{path}.{place}")
        return
    seen: dict[str, int] = {}
    objects = [value for value in values if isinstance(value, Mapping)]
    names = [" ".join(str(value[key]) for key in _ITEM_KEYS if value.get(key) not in (None, "")) for value in objects]
    if objects and not any(names):
        for key in objects[0]:
            yield from flat([value[key] for value in objects], f"{path}.{key}")
        return
    for name, value in zip(names, objects, strict=True):
        own = f"{path}.{name}" + "'" * seen.setdefault(name, 0)
        seen[name] += 1
        yield own, dict(flat({key: inner for key, inner in value.items() if key not in _ITEM_KEYS})) or True


def markdown_rows(text: str) -> Iterator[Row]:
    """The rows and texts of a markdown page; links by reference are followed, and what is folded has a heading."""
    defined = dict(re.findall(r"^\[([^\]]+)\]: (\S+)$", text, re.MULTILINE))
    text = re.sub(r"^\[[^\]]+\]: \S+$", "", text, flags=re.MULTILINE)
    for label, address in defined.items():
        text = text.replace(f"[{label}]", f"[{label}]({address})")
    text = re.sub("<details>\n<summary>(.*)</summary>", r"#### \1", text)
    headings: dict[int, str] = {}
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip().splitlines()
        if not lines:
            continue
        heading = re.fullmatch(r"(#+) (.*)|\*\*(.*)\*\*", lines[0])
        if heading:
            level = len(heading[1] or "#######")
            headings = {each: title for each, title in headings.items() if each < level}
            headings[level] = heading[2] or heading[3]
        elif lines[0].startswith("|"):
            head, _, *rows = (re.split(r"(?<!\\)\|", line)[1:-1] for line in lines)
            for cells in rows:
                texts = map(_plain, cells)
                yield Row(
                    _title(headings), "", dict(zip(map(str.strip, head), texts, strict=True)), _cited(" ".join(cells))
                )
        else:
            for item in re.split(r"\n(?=- |> |1\. )", "\n".join(lines)):
                line = " ".join(item.split())
                yield Row(_title(headings), _plain(line), {}, _cited(line))


def _plain(cell: str) -> str:
    """A cell without its links to records, and without markup."""
    text = re.sub(r"\[[^\]]*\]\([^)]*\.json\)", "", cell.replace("<wbr>", ""))
    return re.sub(r"\\(.)", r"\1", text).replace("&lt;", "<").strip()


def _cited(text: str) -> tuple[str, ...]:
    return tuple(unquote(name) for name in re.findall(r"(?<=[(/\"])([^()/\"\s]+)\.json", text))


def _title(headings: Mapping[int, str]) -> str:
    """The subjects of the last two headings below the page's own: their beginnings, or the run that they name."""
    named = [
        _RUN.search(text) or re.match(r"[^,(]*[^,( ]", text)
        for level, text in sorted(headings.items())
        if level > 1 and not re.match(_LAYOUT, text)
    ]
    return " > ".join(found[0][:40] for found in named[-2:] if found)


class _Html(HTMLParser):
    """Collects the rows and texts of a page, apart from scripts, drawings and the table of contents."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self._headings: dict[int, str] = {}
        self._head: list[str] = []
        self._cells: list[str] = []
        self._words: list[str] = []
        self._links: list[str] = []
        self._span = 1
        self._in_head = False
        self._skipped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._skipped += tag in ("script", "style", "svg", "nav")
        if tag == "a" and not self._skipped:
            self._links.append(f"/{given.get('href')}")
        if tag in ("th", "td", "p", "li", "h1", "h2", "h3"):
            self._words, self._span = [], int(given.get("colspan") or 1)
        if tag in ("tr", "p", "li"):
            self._links = []
        if tag == "tr":
            self._cells = []
        self._in_head |= tag == "thead"

    def handle_endtag(self, tag: str) -> None:
        text, cited = " ".join("".join(self._words).split()), _cited(" ".join(self._links))
        if tag in ("th", "td"):
            self._cells += [text, *[""] * (self._span - 1)]
        elif tag == "thead":
            self._head, self._in_head = self._cells, False
        elif tag == "tr" and not self._in_head:
            self.rows.append(Row(_title(self._headings), "", dict(zip(self._head, self._cells, strict=True)), cited))
        elif tag in ("p", "li") and not self._skipped:
            self.rows.append(Row(_title(self._headings), text, {}, cited))
        elif tag in ("h1", "h2", "h3"):
            level = int(tag[1])
            self._headings = {each: title for each, title in self._headings.items() if each < level} | {level: text}
        self._skipped -= tag in ("script", "style", "svg", "nav")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._words.append(data)


def html_rows(text: str) -> list[Row]:
    """The rows and texts of an HTML page."""
    parser = _Html()
    parser.feed(text)
    return parser.rows


def terminal_rows(text: str) -> Iterator[Row]:
    """The rows of a page's tables, and the other lines.

    A heading is underlined. A table's title is the line directly above it, after the last heading; on a page without
    headings after the line above an empty line.
    """
    lines = ["", "", *text.splitlines(), ""]
    section, place, has_headings = "", 0, False
    while place + 1 < len(lines):
        if lines[place] and re.fullmatch("=+", lines[place + 1]):
            section, has_headings = lines[place], True
            place += 2
            continue
        if not re.fullmatch(r"-+(  -+)*", lines[place + 1]):
            yield Row(_title({2: section}), lines[place], {}, ())
            place += 1
            continue
        if not lines[place - 1] and not has_headings:
            section = lines[place - 2]
        title = _title({2: section, 3: lines[place - 1]})
        spans = [match.span() for match in re.finditer("-+", lines[place + 1])]
        head = [lines[place][start:end].strip() for start, end in spans]
        place += 2
        while lines[place] and not "".join(lines[place][end : end + 2] for _, end in spans[:-1]).strip():
            cells = [lines[place][start:end].strip() for start, end in spans]
            yield Row(title, "", dict(zip(head, cells, strict=True)), ())
            place += 1


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    write()
