"""Pages as data: a page is made once from records, and rendered for a terminal, as markdown or as HTML.

Texts are plain: each renderer escapes them, and keeps each on one line whatever a record holds.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # pages without figures need neither numpy nor the schema of records
    from bakeoff.report.figures.vega import Figure

_NUMBER = re.compile(r"[+-]?[\d,]*\.?\d+(?:e[+-]?\d+)?")
Tone = Literal["", "good", "open", "bad", "faint"]
"""Tone of a text about its subject: `open` is a question without an answer yet, `faint` may be skipped."""


@dataclass(frozen=True, slots=True)
class Link:
    """An address relative to the page, below a short label; a terminal shows none."""

    label: str
    address: str


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
    """The head of a column."""

    text: str
    explanation: str = ""
    numeric: bool = False
    leaves: int = 0
    """Rank by which columns leave a terminal that is too narrow, the highest first; 0 never leaves."""
    key: str = ""
    """Name of it in `--columns`."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below headings; made by `table`, which leaves empty columns out."""

    headings: tuple[Heading, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""


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
    """Texts that belong together, one below the other."""

    items: tuple[Text, ...]
    title: str = ""
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command to be pasted: whole, on a line of its own."""

    text: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Output of a program, line by line with its spaces."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """Drawn on HTML pages only; their numbers are in tables too."""

    figures: "tuple[Figure, ...]"


@dataclass(frozen=True, slots=True)
class Details:
    """Folded on HTML and markdown pages; a terminal leaves it out."""

    summary: str
    blocks: "tuple[Block | Section, ...]"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what belongs below it; sections may hold sections."""

    heading: str
    blocks: "tuple[Block | Section, ...]"


Block = Text | Listed | Command | Lines | Table | Figures | Details


@dataclass(frozen=True, slots=True)
class Document:
    """A page."""

    title: str
    blocks: tuple[Block | Section, ...]


def table(headings: Sequence[Heading | str], rows: Iterable[Sequence[Cell | str]], title: str = "") -> Table | None:
    """A table without the columns in which no row has anything; None without rows.

    Cells that are given as text have neither link nor tone, and are sorted by their text, or in a numeric column by the
    number that they begin with.
    """
    heads = [heading if isinstance(heading, Heading) else Heading(heading) for heading in headings]
    made = [tuple(map(_cell, row, heads)) for row in rows]
    held = [place for place in range(len(heads)) if any(row[place].text or row[place].link for row in made)]
    if not held:
        return None
    return Table(
        tuple(heads[place] for place in held), tuple(tuple(row[place] for place in held) for row in made), title
    )


def _cell(cell: Cell | str, heading: Heading) -> Cell:
    if isinstance(cell, Cell):
        return cell
    number = _NUMBER.match(cell)
    return Cell(cell, float(number[0].replace(",", "")) if number else "") if heading.numeric else Cell(cell, cell)


def listed(texts: Iterable[Text | str], title: str = "") -> Listed | None:
    """A list of texts, each once; None without any."""
    items = dict.fromkeys(text if isinstance(text, Text) else Text(text) for text in texts)
    return Listed(tuple(items), title) if items else None


def stated(facts: Mapping[str, str]) -> list[Text]:
    """Texts with their labels, without those that are empty."""
    return [Text(text, label) for label, text in facts.items() if text]


def section(heading: str, made: Iterable[Block | Section | None]) -> Section | None:
    """Return the blocks that are there below a heading; None without any."""
    held = blocks(*made)
    return Section(heading, held) if held else None


def blocks(*made: Block | Section | None) -> tuple[Block | Section, ...]:
    """Return those that are not None."""
    return tuple(block for block in made if block is not None)


def legend(headings: Iterable[Heading]) -> Listed | None:
    """Explain the columns that do not explain themselves, each once; None where all do."""
    return listed((Text(heading.explanation, heading.text) for heading in headings if heading.explanation), "Columns")


def headings_of(made: Sequence[Block | Section]) -> Iterator[Heading]:
    """The heads of all columns of all tables."""
    for block in made:
        if isinstance(block, Table):
            yield from block.headings
        elif isinstance(block, Section | Details):
            yield from headings_of(block.blocks)
