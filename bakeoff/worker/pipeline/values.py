"""The values that a loop is given: noise, actions and conditions, drawn by seed, session, unit and name."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType

from torch import Tensor

from bakeoff.models.component import Draw, TensorSpec
from bakeoff.models.pipelines.pipeline import Given
from bakeoff.worker.subject import cast_input, draw

OF_SESSION = -1
"""In place of a unit's number, for values of a whole session."""


@dataclass(frozen=True, slots=True)
class GivenValues:
    """Makes given values; they are the same in every process, up to the cast to their slot's dtype."""

    glue: ModuleType | None
    seed: int
    dtypes: Mapping[str, str]
    """Slot to dtype."""
    device: str

    def make(self, given: Given, session: int, unit: int) -> Tensor:
        """The value of a session's unit, in its slot's dtype and on the device."""

        def drawn(key: str, shape: tuple[int, ...], kind: Draw = "normal") -> Tensor:
            return draw(TensorSpec(key, shape, kind), f"{self.seed}:{session}:{key}")

        if given.function:
            value: Tensor = getattr(self.glue, given.function)(session, unit, drawn, *given.arguments)
        else:
            value = drawn(f"{given.name}:{unit}", given.shape, given.draw)
        spec = TensorSpec(
            given.name,
            given.shape,
            given.draw,
            given.keep_fp32,
            dtype=given.dtype,
            given=given.given,
            order=given.order,
        )
        return cast_input(spec, value, self.dtypes[given.slot], self.device)
