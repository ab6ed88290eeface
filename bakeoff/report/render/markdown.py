"""Renders documents as markdown: GitHub's tables, and reference links at the end, so that rows stay short."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from urllib.parse import unquote

from tabulate import tabulate

from bakeoff.machine.terminal import printable
from bakeoff.report.document import (
    Block,
    Cell,
    Command,
    Details,
    Document,
    Figures,
    Lines,
    Link,
    Listed,
    Section,
    Table,
    Text,
    headings_of,
    legend,
)

_MARK = re.compile(r"(\n *\d*)(?=[-+*#>=.)]+(?: |\n|$))")
"""Where a further line of a text would begin a list, a heading or a quotation."""


def render(document: Document, level: int = 1, inline: bool = False, width: int = 0) -> str:
    """Return the document as markdown: its title, if any, as a heading of `level`, and sections one level below.

    Explanations of the tables' columns come last. With `inline`, addresses stand in the text instead of at the end.
    With a `width`, texts are wrapped into lines of as many characters.
    """
    made, explained = _Page(inline), legend(headings_of(document.blocks))
    parts = [f"{'#' * level} {escape(document.title)}"] if document.title else []
    parts += made.blocks(document.blocks, level + 1)
    parts += made.blocks([Section(explained.title, (replace(explained, title=""),))] if explained else [], level + 1)
    text = "\n\n".join([*parts, *made.definitions()]) + "\n"
    return "\n".join(_wrapped(line, width) for line in text.split("\n")) if width else text


def _wrapped(line: str, width: int) -> str:
    """Wrap a line of text; rows of tables, code, headings and addresses stay whole."""
    if not line or line[0] in "|`#[":
        return line
    indent = "   " if line.startswith("1. ") else "  " * line.startswith("- ")
    text = textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return _MARK.sub(r"\1\\", text)


class _Page:
    """Renderer of one page's blocks; it collects the addresses of links for the end of the page."""

    def __init__(self, inline: bool) -> None:
        self._inline = inline
        self._addresses: dict[str, str] = {}
        self._anchors: set[str] = set()

    def blocks(self, made: Sequence[Block | Section], level: int) -> Iterator[str]:
        """Yield the markdown of each block; `level` is that of headings of sections."""
        for block in made:
            match block:
                case Section():
                    yield f"{'#' * min(level, 6)} {escape(block.heading)}"
                    yield from self.blocks(block.blocks, level + 1)
                case Details():
                    yield f"<details>\n<summary>{escape(block.summary)}</summary>"
                    yield from self.blocks(block.blocks, level + 1)
                    yield "</details>"
                case Text():
                    yield self._text(block)
                case Listed():
                    mark = "1. " if block.ordered else "- "
                    title = [f"{escape(block.title)}:"] if block.title else []
                    yield from title
                    yield "\n".join(mark + self._text(item) for item in block.items)
                case Command():
                    yield _code(block.text)
                case Lines():
                    yield "\n".join(f"    {line}" for text in block.texts for line in printable(text).split("\n"))
                case Table():
                    yield from [f"**{escape(block.title)}**"] if block.title else []
                    yield self._table(block)
                case Figures():
                    pass

    def definitions(self) -> list[str]:
        """Return the definitions of all links, as one block; empty without links."""
        found = [f"[{label}]: {address}" for label, address in self._addresses.items()]
        return ["\n".join(found)] if found else []

    def _text(self, text: Text) -> str:
        label = f"**{escape(text.label)}**: " if text.label else ""
        return " ".join([label + escape(text.text), *map(self._link, text.links)])

    def _table(self, table: Table) -> str:
        return tabulate(
            [[self._cell(cell) for cell in row] for row in table.rows],
            headers=[escape(heading.text) for heading in table.headings],
            tablefmt="pipe",
            disable_numparse=True,
            colalign=["right" if heading.numeric else "left" for heading in table.headings],
        )

    def _cell(self, cell: Cell) -> str:
        text = f"**{escape(cell.text)}**" if cell.strong and cell.text else escape(cell.text)
        return " ".join(filter(None, [text, self._link(cell.link) if cell.link is not None else ""]))

    def _link(self, link: Link) -> str:
        """Return a link by reference to its label, with a number if another address already has the label; its anchor
        comes before it where the page does not have it yet."""
        label, number = escape(link.label), 1
        if self._inline:
            return f"[{label}]({link.address})"
        while self._addresses.setdefault(label, link.address) != link.address:
            number += 1
            label = f"{escape(link.label)} {number}"
        new = {link.anchor} - {"", *self._anchors}
        self._anchors |= new
        return "".join([*(f'<a id="{name}"></a>' for name in new), f"[{label}]"])


def _code(text: str) -> str:
    """Return a text as code on one line, between more backticks than it has in a row."""
    line = " ".join(text.split())
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"`{line}`"


def escape(text: str) -> str:
    """Return a text on one line that cannot end a table's cell, begin HTML or be taken for a link."""
    line = re.sub(r"([\\|])", r"\\\1", " ".join(text.split()))
    return re.sub(r"\]([(:\[])", r"]\\\1", line).replace("<", "&lt;")


def citations(page: str) -> list[str]:
    """Return the ids of the entries that a page cites, each once, in the order of the page."""
    found = re.findall(r"(?:^\[.+\]: |\]\()(?:[^()\s]*/)?([^()\s/]+)\.json\b", page, re.MULTILINE)
    return list(dict.fromkeys(map(unquote, found)))
