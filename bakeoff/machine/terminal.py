"""Text that may hold any characters, made safe to print on a terminal."""

from collections.abc import Iterable


def printable(text: str) -> str:
    """The text with a space for each character that a terminal would obey or cannot show, except the ends of lines.

    Names, notes and reasons of records were written by others: escape sequences in them could clear the screen or
    change what it says.
    """
    return "\n".join(_line(line) for line in text.split("\n"))


def one_line(text: str) -> str:
    """The same on one line, without repeated spaces."""
    return " ".join(_line(text).split())


def lines_of(lines: Iterable[str]) -> str:
    """Lines joined to a text, each of them one line whatever it holds; spaces are kept."""
    return "\n".join(map(_line, lines))


def _line(text: str) -> str:
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)
