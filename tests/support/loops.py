"""Pipelines of toys for tests of runs: a picture from a latent that two passes of a small world made."""

from dataclasses import dataclass
from typing import Any

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import OPENING, BuiltIn, Pipeline
from bakeoff.models.toy.spec import SPEC, Config


@dataclass(frozen=True, slots=True)
class Options:
    steps: int = 2
    """Passes of the world in each frame."""

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= 8:
            raise BakeoffError(f"steps is {self.steps}; give 1 to 8", code="bad-option")


class Small(Pipeline):
    """`loops:Small`."""

    summary = "two toys in a row"
    credit = "this project"
    rate = 24.0
    filling = 2
    Options = Options
    presets = {"tiny": "toy"}
    signals = {"frame": "picture"}

    def modules(self) -> dict[str, BuiltIn]:
        return {"wm": BuiltIn("toy", "tiny"), "image": BuiltIn("toy", "tiny")}

    def sizes(self) -> dict[str, int]:
        return {"steps": self.options.steps}

    def given(self, unit: int, draw: Any) -> dict[str, Any]:
        world, picture = (SPEC.workload(Config(), name, 1) for name in ("world", "picture"))
        if unit == OPENING:
            slots = {one.name: "" if one.keep_fp32 else "wm" for one in world.inputs}
            return {one.name: draw(one.name, one.shape, one.draw, slots[one.name]) for one in world.inputs}
        return {"z": draw("latent", picture.inputs[0].shape, slot="image")}

    def start(self, given: Any, run: Any) -> Any:
        return given

    def step(self, state: Any, given: Any, run: Any) -> tuple[Any, dict[str, Any]]:
        for _ in range(self.options.steps):
            with run.phase("denoise"):
                state = state | {"x": run.wm.world(**state)["velocity"]}
        with run.phase("decode"):
            frame = run.image.picture(z=given["z"])["image"]
        return state, {"frame": frame}
