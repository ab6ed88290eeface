"""Advice as pages show it."""

from collections.abc import Sequence

from bakeoff.advice.evidence import Advice
from bakeoff.report.document import Listed, Text


def advice_list(found: Sequence[Advice], unit: str) -> Listed | Text:
    """One item for each, or one sentence that says that there is none."""
    if not found:
        return Text(f"Nothing could gain 5 % of a {unit}.")
    return Listed(
        tuple(Text(_evidence(one), f"{one.code} {one.where}".rstrip() + _gain(one, unit)) for one in found),
        "The most that each could gain: an upper bound, no promise",
        ordered=True,
    )


def _gain(one: Advice, unit: str) -> str:
    return f" ({one.strength})" if one.gain_ms is None else f" ({one.strength}, at most {one.gain_ms:.2f} ms a {unit})"


def _evidence(one: Advice) -> str:
    return f"{one.says}; {one.evidence}{f' ({one.source})' if one.source else ''}"
