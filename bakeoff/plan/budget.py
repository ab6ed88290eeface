"""`--budget 3m`: how long a sweep may take, as it is typed."""

import re
from math import fsum
from typing import Final

from bakeoff.models.errors import BakeoffError

MOST_BUDGET_S: Final = 7 * 86_400.0
GRACE_SHARE, MOST_GRACE_S = 0.05, 10.0
EXAMPLES: Final = "give a time such as 90s, 3m or 1h30m; a number alone is seconds"
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}
_TIME = re.compile(r"(?:(?P<h>[0-9.]+)h)? ?(?:(?P<m>[0-9.]+)m)? ?(?:(?P<s>[0-9.]+)s?)?", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})?")
_SHOWN = 40
"""Characters of what was typed that a message repeats."""


def parse_budget(text: str) -> float:
    """Seconds of `3m`, `90s`, `1h30m`, `1.5h` or `180` (seconds). Raises BakeoffError for anything else, 0 included."""
    typed = text.strip(" ")
    match = _TIME.fullmatch(typed)
    parts = {unit: part for unit, part in match.groupdict().items() if part} if match else {}
    if not parts or not all(_NUMBER.fullmatch(part) for part in parts.values()):
        shown = typed if len(typed) <= _SHOWN else f"{typed[:_SHOWN]}..."
        raise BakeoffError(f"--budget '{shown}': {EXAMPLES}", "bad-option")
    seconds = fsum(float(part) * _UNITS[unit] for unit, part in parts.items())
    if not 0 < seconds <= MOST_BUDGET_S:
        text = f"--budget {typed}: give more than 0 and at most {MOST_BUDGET_S / 3600:.0f}h"
        raise BakeoffError(text, "bad-option")
    return seconds


def budget_text(seconds: float) -> str:
    """A budget as it is typed: `90s`, `3m`, `1h30m`."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{hours:.0f}h" if hours else "", f"{minutes:.0f}m" if minutes else "", f"{rest:g}s" if rest else ""]
    return "".join(parts)


def grace_s(budget_s: float) -> float:
    """Return how long what runs when the time is up may go on: 5 % of the budget, at most 10 s."""
    return min(GRACE_SHARE * budget_s, MOST_GRACE_S)
