"""Text from records, which may hold any characters, for markdown pages."""


def escape(text: str) -> str:
    """One line that cannot end a table's cell or begin HTML."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
