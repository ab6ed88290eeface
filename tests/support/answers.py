"""What a table recommends, as one line of text, and a value that must be there."""

from typing import TypeVar

from bakeoff.report.document import Command, Text

T = TypeVar("T")


def as_text(answer: tuple[Text | Command, ...]) -> str:
    return " ".join(part.text for part in answer)


def present(value: T | None) -> T:
    assert value is not None
    return value
