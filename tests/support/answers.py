"""What a table recommends, as one line of text."""

from bakeoff.report.document import Command, Text


def as_text(answer: tuple[Text | Command, ...]) -> str:
    return " ".join(part.text for part in answer)
