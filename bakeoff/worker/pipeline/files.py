"""The files of a loop's reference: its first units as eager ran them in high precision, and eager's error in dtypes."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
from torch import Tensor

from bakeoff.models.pipelines.pipeline import Loop
from bakeoff.worker.reference.files import ReferenceFiles

ABOUT = "loop.json"
STATE = "state."
"""Before the name of a value of the state; outputs have their own names."""
OPENED = -1
"""In place of a unit's number, for the state that opening a session makes."""


@dataclass(frozen=True, slots=True)
class LoopAbout:
    """What a loop's reference was made from. Written last."""

    reference: str
    """Id: the name of the folder."""
    dtype: str
    """That eager computed it in."""
    device: str
    units: int
    weights: dict[str, str]
    """`slot.program` to the fingerprint of its weights."""
    sensitivity: dict[str, float]
    """Output to the least relative L2 between two units next to each other; without outputs of another shape in each
    unit."""


@dataclass(frozen=True, slots=True)
class LoopFloor:
    """Error of an eager loop in one combination of dtypes, each unit started from the reference's state."""

    noise: dict[str, dict[str, float]]
    """Unit's number to relative L2 by name, as in the unit's file."""


def unit_file(unit: int) -> str:
    """The file of a unit without its ending; of the opened session's state for `OPENED`."""
    return "opened" if unit == OPENED else f"unit{unit}"


def floor_file(loop: Loop, dtypes: Mapping[str, str]) -> str:
    """The file of the floor for these dtypes of the slots."""
    return f"floor-{','.join(f'{slot.name}={dtypes[slot.name]}' for slot in loop.slots)}.json"


@dataclass(frozen=True, slots=True)
class LoopFiles:
    """Reads a loop's reference. Everything raises BakeoffError where a file is not as it was hashed."""

    files: ReferenceFiles

    def about(self) -> LoopAbout:
        about: LoopAbout = msgspec.json.decode(self.files.read(ABOUT), type=LoopAbout)
        return about

    def floor(self, loop: Loop, dtypes: Mapping[str, str]) -> LoopFloor:
        floor: LoopFloor = msgspec.json.decode(self.files.read(floor_file(loop, dtypes)), type=LoopFloor)
        return floor

    def unit(self, unit: int) -> dict[str, Tensor]:
        """Outputs of a unit by name, and its new state as `state.NAME`."""
        return self.files.outputs(unit_file(unit))

    def state_before(self, unit: int) -> dict[str, Tensor]:
        """The state that a unit starts from, by name."""
        found = self.unit(unit - 1 if unit else OPENED)
        return {name.removeprefix(STATE): value for name, value in found.items() if name.startswith(STATE)}
