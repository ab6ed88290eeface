"""The range of a row: its error on inputs of another kind than the given ones, beside eager's own in the same dtype."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_WORDS = {
    "x0.25": "at 1/4 of them",
    "x4": "from 4 times on",
    "x16": "from 16 times on",
    "outlier": "with one channel 16 times as large",
    "constant": "in nearly constant rows",
    "sharper": "with a sharper distribution",
    "flatter": "with a flatter distribution",
    "permuted": "with the items of the batch in another order",
    "alone": "for an item beside others that are 16 times as large",
}
"""The regimes in words. `permuted` and `alone` compare items of a batch; the others whole outputs."""
BATCH = ("permuted", "alone")
NEAR = ("x0.25", "x4", "permuted")
"""Regimes in which a row must be right where eager is; in the others a wrong row has the finding `narrow`."""
_FAILS = 2.0
"""Multiple of the limit above which a row is wrong in a regime of `NEAR`: each is judged by one set of inputs only."""


@dataclass(frozen=True, slots=True)
class Regime:
    """Comparison of a row on input set 0 changed in one way; figures are those of the output nearest to its limit."""

    name: str
    rel_l2: float | None
    """None: the call failed, or its outputs could not be compared."""
    eager: float | None = None
    """Eager's own error there in the same dtype; None: eager is not right there either, and nothing is judged."""
    limit: float | None = None
    """Twice `eager`, or the limit on the given inputs if that is more."""
    judged: bool = True
    """Whether a large error in a regime of `NEAR` makes the row wrong; not so for quantised rows."""
    problem: str = ""

    @property
    def holds(self) -> bool:
        return self.limit is not None and self.rel_l2 is not None and self.rel_l2 <= self.limit

    @property
    def narrow(self) -> bool:
        """Whether eager is right in this regime and the row is not."""
        return self.limit is not None and not self.holds

    @property
    def wrong(self) -> str:
        """Why the row fails its parity, as a sentence; "" if it does not."""
        limit = math.inf if self.limit is None or not self.judged or self.name not in NEAR else _FAILS * self.limit
        return self.text if (math.inf if self.rel_l2 is None else self.rel_l2) > limit else ""

    @property
    def text(self) -> str:
        """How the row compares with eager in this regime."""
        if self.limit is None:
            return f"{_WORDS[self.name]} eager itself is not right in this dtype"
        if self.rel_l2 is None:
            return f"{_WORDS[self.name]} wrong, where eager in the same dtype is right: {self.problem}"
        apart = 20 * math.log10(max(self.rel_l2, 1e-12) / max(self.eager or 0.0, 1e-12))
        return f"{_WORDS[self.name]} {apart:.0f} dB worse than eager in the same dtype"


def range_text(regimes: Sequence[Regime]) -> str:
    """Return the range of a row in words: the scales up to which it is right, then where it is not; "" if unknown."""
    if not regimes:
        return ""
    held = {regime.name for regime in regimes if regime.holds}
    lost = [regime for regime in regimes if regime.name not in held]
    high = 16 if {"x4", "x16"} <= held else 4 if "x4" in held else 1
    ends = f"right {'from 1/4 ' if 'x0.25' in held else ''}up to {high} times the given inputs"
    if any(regime.name == "x4" for regime in lost):
        lost = [regime for regime in lost if regime.name != "x16"]
    return "; ".join([ends if {"x0.25", "x4"} & held else "right on the given inputs", *(one.text for one in lost)])
