"""Two small loops for tests, without torch: one of toy programs, and one whose phases have known lengths.

Preset `tiny`: a frame is denoised by `world` in two steps against a window of 4 frames, which it then enters, and
decoded by `stream`, whose cache goes from call to call. Preset `spin` calls no program: its phases a, b and c keep the
host busy for 5, 3 and 2 ms, with 0.5 ms of glue after a and after b.
"""

from dataclasses import dataclass

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import (
    Call,
    Given,
    Glue,
    Loop,
    Operation,
    Output,
    Pipeline,
    PipelinePreset,
    Program,
    Shift,
    Slot,
)
from bakeoff.models.toy.spec import SPEC as TOY
from bakeoff.models.toy.spec import Config

_GLUE = "bakeoff.models.pipelines.toy.glue"
FRAME_RATE = 60.0
FILLING = 6
"""Units; more than the 4 frames of the window, so that a runner that counts them differently is seen."""
SPINS = (("a", 5.0), ("", 0.5), ("b", 3.0), ("", 0.5), ("c", 2.0))
"""Phase ("" for glue) and milliseconds of each operation of preset `spin`."""


@dataclass(frozen=True, slots=True)
class Options:
    steps: int = 2
    """Denoising steps of a frame."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise BakeoffError(f"toy: steps is {self.steps}; it must be at least 1", code="bad-option")


def loop(preset: PipelinePreset, options: Options) -> Loop:
    """The loop of a preset; preset `spin` has no slots and takes no notice of the options."""
    if not preset.components:
        return _spinning()
    config = TOY.preset(preset.components["world"]).config
    assert isinstance(config, Config)
    shapes = {
        f"{name}.{spec.name}": spec.shape
        for name in ("world", "stream")
        for spec in TOY.workload(config, name, 1).inputs
    }
    zeros = {"cache_k": "world.cache_k", "cache_v": "world.cache_v", "cache": "stream.cache.00"}
    levels = tuple(f"t.{step}" for step in range(options.steps))
    return Loop(
        slots=SLOTS,
        presets=preset.components,
        glue=_GLUE,
        programs=(Program("world", "world"), Program("stream", "stream")),
        given=(
            *(
                Given(name, shapes[of], of.partition(".")[0], "session", function="zeros", arguments=(shapes[of],))
                for name, of in zeros.items()
            ),
            Given("noise", shapes["world.x"], "world", "unit"),
        ),
        opened=(
            Glue("levels", ("cache_k",), levels, tuple(1 - step / options.steps for step in range(options.steps))),
        ),
        opening=(),
        steady=_frame(options.steps),
        opening_frames=(),
        frames=1,
        filling=FILLING,
        max_units=None,
        state=("cache_k", "cache_v", "cache"),
        outputs=(Output("x", slot="world"), Output("video", "picture", "stream")),
        frame_rate=FRAME_RATE,
        sizes={"steps": options.steps},
    )


def _frame(steps: int) -> tuple[Operation, ...]:
    operations: list[Operation] = []
    x = "noise"
    for step in range(steps):
        inputs = {"x": x, "t": f"t.{step}", "cache_k": "cache_k", "cache_v": "cache_v"}
        operations.append(Call("denoise", "world", "world", inputs, {"velocity": "v"}))
        operations.append(Glue("euler", (x, "v"), ("x",), (1 / steps,)))
        x = "x"
    return (
        *operations,
        Shift("cache_k", "x", axis=1),
        Shift("cache_v", "x", axis=1),
        Glue("latent", ("x",), ("z",)),
        Call("decode", "stream", "stream", {"z": "z", "cache.00": "cache"}, {"video": "video", "cache.00": "cache"}),
        Glue("present", ("video",), ("pixels",), phase="present"),
    )


def _spinning() -> Loop:
    return Loop(
        slots=(),
        presets={},
        glue=_GLUE,
        programs=(),
        given=(),
        opened=(),
        opening=(),
        steady=tuple(Glue("spin", (), (), (milliseconds,), phase) for phase, milliseconds in SPINS),
        opening_frames=(),
        frames=1,
        filling=0,
        max_units=None,
        state=(),
        outputs=(),
        frame_rate=FRAME_RATE,
    )


SLOTS = (Slot("world", "toy"), Slot("stream", "toy"))

PIPELINE = Pipeline(
    name="toy",
    summary="a small loop with a window, a cache and glue; no figure means anything",
    credit="this project",
    unit="frame",
    slots=SLOTS,
    presets=(
        PipelinePreset("tiny", {"world": "tiny", "stream": "tiny"}, "toy"),
        PipelinePreset("spin", {}, "busy waits of known length"),
    ),
    default_preset={"cpu": "tiny", "cuda": "tiny"},
    options=Options,
    loop=loop,
)
