"""Phrases for messages: counts with singular or plural, and shortened lists of names."""

from collections.abc import Collection


def counted(count: float, one: str, many: str = "", form: str = "") -> str:
    """Return a count, in the format `form`, with its noun: `1 row`, `2 rows`. `many` is the plural if not `one` + s."""
    text = f"{count:{form}}"
    return f"{text} {one if text == '1' else many or f'{one}s'}"


def si(value: float) -> str:
    """Return a number of three digits with a prefix, as in `14.6 G`, `512 k` or `12 `."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}"
    return f"{value:.3g} "


def some_of(names: Collection[str], most: int) -> str:
    """Return the first `most` names, and how many more there are: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(list(names)[:most]) + more
