"""Where the time of a sweep went, in one line."""

from collections.abc import Mapping

_LEAST_S = 1.0
"""Parts that took less are not named."""


def render(spent_s: Mapping[str, float]) -> str:
    """Total and parts, as in `8 min 12 s: builds 41 %, sampling 30 %`; seconds by part, the largest first."""
    total = sum(spent_s.values())
    minutes, seconds = divmod(round(total), 60)
    took = f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
    parts = ", ".join(f"{part} {seconds / total:.0%}" for part, seconds in spent_s.items() if seconds >= _LEAST_S)
    return f"{took}: {parts}" if parts else took
