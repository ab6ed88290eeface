"""Words of sentences about counts."""

from collections.abc import Collection


def counted(count: float, one: str, many: str = "", form: str = "") -> str:
    """A count, in the format `form`, and what it counts: `1 row`, `2 rows`; `many` where an s makes no plural."""
    text = f"{count:{form}}"
    return f"{text} {one if text == '1' else many or f'{one}s'}"


def some_of(names: Collection[str], most: int) -> str:
    """Return the first names, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(list(names)[:most]) + more
