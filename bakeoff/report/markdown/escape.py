"""Text from records, which may hold anything, made harmless in a markdown page."""


def escape(text: str) -> str:
    """One line in which nothing ends a table's cell or begins HTML."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
