"""Words of sentences about counts."""


def counted(count: float, one: str, many: str = "", form: str = "") -> str:
    """A count, in the format `form`, and what it counts: `1 row`, `2 rows`; `many` where an s makes no plural."""
    text = f"{count:{form}}"
    return f"{text} {one if text == '1' else many or f'{one}s'}"
