"""Advice on the terminal."""

from collections.abc import Sequence

from bakeoff.advice.evidence import Advice
from bakeoff.machine.terminal import lines_of


def advice_text(advice: Sequence[Advice], unit: str) -> str:
    """Two lines for each, or one that says that there is none."""
    if not advice:
        return f"no advice: nothing could gain 5 % of a {unit}"
    lines = []
    for one in advice:
        gain = "" if one.gain_ms is None else f", at most {one.gain_ms:.1f} ms a {unit}"
        where = f" {one.where}" if one.where else ""
        lines += [f"{one.code}{where} ({one.strength}{gain}): {one.says}", f"  {one.evidence}"]
    return lines_of(["advice, the largest possible gain first", *lines])
