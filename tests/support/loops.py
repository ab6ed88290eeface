"""Pipelines of toys for tests of runs: a picture from a latent that two passes of a small world made."""

from dataclasses import dataclass

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import (
    Call,
    Given,
    Loop,
    Output,
    Pipeline,
    PipelinePreset,
    Program,
    Slot,
)
from bakeoff.models.toy.spec import SPEC

SLOTS = (Slot("wm", "toy"), Slot("image", "toy"))


@dataclass(frozen=True, slots=True)
class Options:
    steps: int = 2
    """Passes of the world in each frame."""

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= 8:
            raise BakeoffError(f"steps is {self.steps}; give 1 to 8", code="bad-option")


def loop(preset: PipelinePreset, options: Options) -> Loop:
    config = SPEC.preset(preset.components["wm"]).config
    world, picture = (SPEC.workload(config, name, 1) for name in ("world", "picture"))
    (latent,) = picture.inputs
    given = [Given(spec.name, spec.shape, "wm", "session", spec.draw, spec.keep_fp32) for spec in world.inputs]
    given.append(Given("latent", latent.shape, "image", "unit"))
    named = {spec.name: spec.name for spec in world.inputs}
    denoise = Call("denoise", "wm", "world", named, {"velocity": "x"})
    decode = Call("decode", "image", "picture", {"z": "latent"}, {"image": "frame"})
    return Loop(
        slots=SLOTS,
        presets=preset.components,
        glue="",
        programs=(Program("wm", "world"), Program("image", "picture")),
        given=tuple(given),
        opened=(),
        opening=(),
        steady=(*(denoise for _ in range(options.steps)), decode),
        opening_frames=(),
        frames=1,
        filling=2,
        max_units=None,
        state=("x",),
        outputs=(Output("frame", "picture", "image"),),
        frame_rate=24.0,
        sizes={"steps": options.steps},
    )


PIPELINE = Pipeline(
    name="small",
    summary="two toys in a row",
    credit="this project",
    unit="frame",
    slots=SLOTS,
    presets=(PipelinePreset("tiny", {"wm": "tiny", "image": "tiny"}, "toy"),),
    default_preset={"cpu": "tiny"},
    options=Options,
    loop=loop,
)
