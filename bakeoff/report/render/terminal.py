"""Renders documents for a terminal: tables that fit its width, long texts wrapped between words, and colours.

Tones are colours, and never the only sign of something: the words say it too.
"""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text as Styled

from bakeoff.machine.terminal import one_line, printable
from bakeoff.report.document import (
    Block,
    Cell,
    Command,
    Details,
    Document,
    Figures,
    Lines,
    Listed,
    Section,
    Table,
    Text,
    Tone,
    blocks,
    headings_of,
    legend,
)
from bakeoff.report.format import shorten

_STYLES: Final[Mapping[Tone, str]] = {"": "", "good": "green", "open": "yellow", "bad": "red", "faint": "dim"}
_GAP = 2
_LEAST_NAME, _LEAST_WORDS = 12, 24
"""Least number of characters of a shortened text, in the first column and in others."""
_UNLIMITED = 1_000_000


def render(document: Document, width: int | None = None, colour: bool = False) -> str:
    """Return the document's text, without its title; `width` is in characters, None for all columns and whole lines.

    Explanations of the shown columns come last, with the names of dropped ones.
    """
    file = StringIO()
    console = Console(
        file=file, width=width or _UNLIMITED, force_terminal=colour, color_system="standard" if colour else None,
        highlight=False, markup=False, emoji=False, legacy_windows=False,
    )  # fmt: skip
    fitted = _fitted(document.blocks, width)
    shown = {heading.text for heading in headings_of(fitted)}
    left = dict.fromkeys(each.text for each in headings_of(document.blocks) if each.leaves and each.text not in shown)
    narrow = Text(", ".join(left), "columns left out for width", "faint") if left and width is not None else None
    last = blocks(legend(headings_of(fitted)), narrow)
    for number, parts in enumerate(_blocks([*fitted, *last], width)):
        if number:
            console.print()
        for part in parts:
            console.print(part, soft_wrap=not isinstance(part, Grid))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _fitted(made: Sequence[Block | Section], width: int | None) -> list[Block | Section]:
    """Return the blocks that a terminal shows, with tables fitted to `width`."""
    found: list[Block | Section] = []
    for block in made:
        match block:
            case Section():
                found.append(replace(block, blocks=tuple(_fitted(block.blocks, width))))
            case Table():
                found.append(block if width is None or block.wraps else fit(block, width))
            case Details() | Figures():
                pass
            case _:
                found.append(block)
    return found


def _blocks(made: Sequence[Block | Section], width: int | None) -> Iterator[list[Styled | Grid]]:
    """Yield, for each block, the texts and grids to print; an empty line is printed between two blocks."""
    for block in made:
        match block:
            case Section():
                heading = _wrapped(one_line(block.heading), width)
                yield [Styled(f"{heading}\n{'=' * max(map(cell_len, heading.splitlines()))}", "bold")]
                yield from _blocks(block.blocks, width)
            case Text():
                yield [_text(block, width)]
            case Listed():
                yield [*_title(block.title), *(_text(item, width) for item in block.items)]
            case Command():
                yield [Styled(one_line(block.text), "cyan")]
            case Lines():
                yield [Styled(printable(text)) for text in block.texts]
            case Table():
                yield [*_title(block.title), grid(block)]


def _title(text: str) -> list[Styled]:
    return [Styled(one_line(text), "bold")] if text else []


def _text(text: Text, width: int | None) -> Styled:
    label = f"{one_line(text.label)}: " if text.label else ""
    made = Styled(_wrapped(label + one_line(text.text), width), _STYLES[text.tone])
    made.stylize("bold", 0, len(label))
    return made


def _wrapped(text: str, width: int | None) -> str:
    if width is None:
        return text
    return textwrap.fill(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def grid(table: Table, rule: bool = True) -> Grid:
    """Return a table that fits as a grid to print, with a `rule` below its headings."""
    made, widths = Grid.grid(padding=(0, _GAP, 0, 0), pad_edge=False), _widths(table)
    for heading, wide in zip(table.headings, widths, strict=True):
        free = table.wraps and not heading.numeric
        made.add_column(
            width=None if free else wide,
            justify="right" if heading.numeric else "left",
            no_wrap=not free,
            overflow="fold",
        )
    made.add_row(*(Styled(one_line(heading.text), "bold") for heading in table.headings))
    if rule:
        made.add_row(*[Rule(characters="-", style="")] * len(widths), style="dim")
    for row in table.rows:
        made.add_row(*(Styled(_of(cell), f"{_STYLES[cell.tone]}{' bold' if cell.strong else ''}") for cell in row))
    return made


def _of(cell: Cell) -> str:
    """Return a cell's text, marked with `*` if the cell is strong, or its link's label if it has no text."""
    text = one_line(cell.text or (cell.link.label if cell.link is not None else ""))
    return f"* {text}" if cell.strong else text


def fit(table: Table, width: int) -> Table:
    """Return the table cut to `width` characters: without some columns, then with shorter texts.

    The column with the highest `leaves` is dropped first, one with 0 never; texts of the first column are cut last.
    """
    while _total(_shortest(table)) > width and any(heading.leaves for heading in table.headings):
        order = [heading.leaves for heading in table.headings]
        leaving = max(range(len(order)), key=lambda place: (order[place], place))
        table = replace(
            table,
            headings=table.headings[:leaving] + table.headings[leaving + 1 :],
            rows=tuple(row[:leaving] + row[leaving + 1 :] for row in table.rows),
        )
    widths, words = _widths(table), _words(table)
    for places, least in ((words[1:], _LEAST_WORDS), (words, _LEAST_NAME)):
        while _total(widths) > width and max((widths[place] for place in places), default=0) > least:
            widths[max(places, key=widths.__getitem__)] -= 1
    heads = zip(table.headings, widths, strict=True)
    return replace(
        table,
        headings=tuple(replace(heading, text=shorten(heading.text, wide)) for heading, wide in heads),
        rows=tuple(tuple(map(_shortened, row, widths)) for row in table.rows),
    )


def _shortest(table: Table) -> list[int]:
    """Return the columns' widths with texts as short as allowed, but the first column of words in full."""
    others = _words(table)[1:]
    return [min(wide, _LEAST_WORDS) if place in others else wide for place, wide in enumerate(_widths(table))]


def _words(table: Table) -> list[int]:
    """Return the numbers of the columns of words; the first of them has the names."""
    return [place for place, heading in enumerate(table.headings) if not heading.numeric]


def _shortened(cell: Cell, width: int) -> Cell:
    return replace(cell, text=shorten(cell.text, width - (2 if cell.strong else 0)))


def _widths(table: Table) -> list[int]:
    return [
        max(cell_len(one_line(heading.text)), *(cell_len(_of(row[place])) for row in table.rows))
        for place, heading in enumerate(table.headings)
    ]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)
