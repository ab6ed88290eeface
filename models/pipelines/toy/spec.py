"""The facts of two small loops for tests, without torch: one of toy programs, and one whose phases have known lengths.

Preset `tiny`: a frame is denoised by `world` in two steps against a window of 4 frames, which it then enters, and
decoded by `stream`, whose cache goes from call to call. Preset `spin` calls no program: its phases a, b and c keep the
host busy for 5, 3 and 2 ms, with 0.5 ms of glue after a and after b.
"""

from dataclasses import dataclass

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Pipeline

SPINS = (("a", 5.0), ("", 0.5), ("b", 3.0), ("", 0.5), ("c", 2.0))
"""Phase ("" for glue) and milliseconds of each part of preset `spin`."""


@dataclass(frozen=True, slots=True)
class Options:
    steps: int = 2
    """Denoising steps of a frame."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise BakeoffError(f"toy: steps is {self.steps}; it must be at least 1", code="bad-option")


class Toy(Pipeline):
    """The facts of the loops; loop.py has their code."""

    summary = "a small loop with a window, a cache and glue; no figure means anything"
    credit = "this project"
    rate = 60.0
    filling = 6  # more than the 4 frames of the window, so that a runner that counts them differently is seen
    Options = Options
    presets = {"tiny": "toy", "spin": "busy waits of known length"}
    signals = {"video": "picture"}
    code = "bakeoff.models.pipelines.toy.loop:Toy"
