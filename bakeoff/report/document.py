"""The data model of pages: a page is made once from records, and rendered for a terminal, as markdown or as HTML.

Texts are plain: each renderer escapes them, and keeps each on one line whatever a record contains.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from bakeoff.models.grouping import grouped

if TYPE_CHECKING:  # pages without figures need neither numpy nor the schema of records
    from bakeoff.report.figures.vega import Figure

_NUMBER = re.compile(r"[+-]?[\d,]*\.?\d+(?:e[+-]?\d+)?")
Tone = Literal["", "good", "open", "bad", "faint"]
"""How a text is meant, shown as a colour: `open` is a question without an answer yet, `faint` may be skipped."""


@dataclass(frozen=True, slots=True)
class Link:
    """A short label and an address relative to the page; a terminal shows no addresses."""

    label: str
    address: str
    anchor: str = ""
    """Name of the line with the link, for links to it from other pages of markdown; the first of equal names counts."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table."""

    text: str
    order: float | str = ""
    """Value by which an HTML page sorts rows; "" is last."""
    link: Link | None = None
    tone: Tone = ""
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Heading:
    """The heading of a column."""

    text: str
    explanation: str = ""
    numeric: bool = False
    leaves: int = 0
    """Order in which columns are dropped on a narrow terminal, the highest first; 0 is never dropped."""


def number(text: str, explanation: str = "", leaves: int = 0) -> Heading:
    """Return the heading of a column of numbers."""
    return Heading(text, explanation, True, leaves)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below headings; made by `table`, which drops empty columns."""

    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""
    wraps: bool = False
    """On a narrow terminal, wrap the texts of words instead of leaving out columns and shortening texts."""


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph, or an item of a list."""

    text: str
    label: str = ""
    """Printed before the text in bold, followed by a colon."""
    tone: Tone = ""
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """A list of texts, one below the other."""

    items: tuple[Text, ...]
    title: str = ""
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command to copy, kept whole on a line of its own."""

    text: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Output of a program, line by line with its spaces."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures, drawn on HTML pages only; their numbers are also in tables."""

    figures: "tuple[Figure, ...]"


@dataclass(frozen=True, slots=True)
class Details:
    """Blocks below a summary, folded on HTML and markdown pages; a terminal leaves them out."""

    summary: str
    blocks: "tuple[Block | Section, ...]"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the blocks below it, which may be sections."""

    heading: str
    blocks: "tuple[Block | Section, ...]"


Block = Text | Listed | Command | Lines | Table | Figures | Details


@dataclass(frozen=True, slots=True)
class Document:
    """A page: its title and blocks."""

    title: str
    blocks: tuple[Block | Section, ...]


def table(
    headings: Iterable[Heading | str], rows: Iterable[Sequence[Cell | str]], title: str = "", wraps: bool = False
) -> Table | None:
    """Return a table without the columns that are empty in all rows; None if all are, or without rows.

    A cell given as a string has neither link nor tone. Such cells are sorted by their text, in a numeric column by the
    number at their start.
    """
    heads = [heading if isinstance(heading, Heading) else Heading(heading) for heading in headings]
    made = [tuple(map(_cell, row, heads)) for row in rows]
    held = [place for place in range(len(heads)) if any(row[place].text or row[place].link for row in made)]
    if not held:
        return None
    kept = tuple(tuple(row[place] for place in held) for row in made)
    return Table(tuple(heads[place] for place in held), kept, title, wraps)


def _cell(cell: Cell | str, heading: Heading) -> Cell:
    if isinstance(cell, Cell):
        return cell
    number = _NUMBER.match(cell)
    return Cell(cell, float(number[0].replace(",", "")) if number else "") if heading.numeric else Cell(cell, cell)


def listed(texts: Iterable[Text | str], title: str = "") -> Listed | None:
    """Return a list of the distinct texts; None if there are none."""
    items = dict.fromkeys(text if isinstance(text, Text) else Text(text) for text in texts)
    return Listed(tuple(items), title) if items else None


def once_each(named: Iterable[tuple[str, str]], rows: int | None = None) -> Iterator[Text]:
    """Yield each text of pairs of text and name once, labelled with its names unless that many as `rows` have it."""
    for text, names in grouped(named).items():
        yield Text(text, ", ".join(dict.fromkeys(names)) if len(names) != rows else "")


def stated(facts: Mapping[str, str]) -> list[Text]:
    """Return a text with a label for each fact that is not empty."""
    return [Text(text, label) for label, text in facts.items() if text]


def section(heading: str, made: Iterable[Block | Section | None]) -> Section | None:
    """Return a section of the blocks that are not None; None if all are."""
    held = blocks(*made)
    return Section(heading, held) if held else None


def blocks(*made: Block | Section | None) -> tuple[Block | Section, ...]:
    """Return the blocks that are not None."""
    return tuple(block for block in made if block is not None)


def first_of(block: Block | None, most: int) -> Iterator[Block]:
    """Yield a table or list with its first rows or items alone, and how many more there are; another block as it is."""
    count = 0
    if isinstance(block, Table):
        count, block = len(block.rows), replace(block, rows=block.rows[:most])
    elif isinstance(block, Listed):
        count, block = len(block.items), replace(block, items=block.items[:most])
    if block is not None:
        yield block
    if count > most:
        yield Text(f"and {count - most} more, in the JSON", tone="faint")


def legend(headings: Iterable[Heading]) -> Listed | None:
    """Return a list that explains, once each, the columns that have an explanation; None if none has."""
    return listed((Text(heading.explanation, heading.text) for heading in headings if heading.explanation), "Columns")


def headings_of(made: Sequence[Block | Section]) -> Iterator[Heading]:
    """Yield the headings of all columns of all tables, including those in sections and details."""
    for block in made:
        if isinstance(block, Table):
            yield from block.headings
        elif isinstance(block, Section | Details):
            yield from headings_of(block.blocks)
