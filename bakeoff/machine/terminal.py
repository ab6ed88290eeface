"""Makes text that may contain any characters safe to print on a terminal."""


def printable(text: str) -> str:
    """Replace each character that a terminal would obey or cannot show by a space, except line ends.

    Names, notes and reasons of records were written by others: escape sequences in them could clear the screen or
    change what it says.
    """
    return "\n".join(_line(line) for line in text.split("\n"))


def one_line(text: str) -> str:
    """Make text printable as by `printable`, on one line and without repeated spaces."""
    return " ".join(_line(text).split())


def _line(text: str) -> str:
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)
