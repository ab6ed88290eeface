"""The loop of Matrix-Game-2 without torch: a block of 3 latent frames, 12 video frames, in a unit.

A session opens with the keys and values of the start image. A block is denoised in 3 or 4 passes with noise added in
between, one more pass over the clean latents makes the history that the next block attends to, and the decoder turns
them into video. Block 0 has no history, and its first latent frame gives one video frame instead of four. A session
ends with the position table, after block 340. The image's condition and tokens are drawn, since encoder and CLIP are
not part of the loop: the times are valid and the pictures are noise.

Source: folder `Matrix-Game-2` of https://github.com/SkyworkAI/Matrix-Game (October 2025),
`pipeline/causal_inference.py`, `utils/wan_wrapper.py`, `utils/scheduler.py`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from bakeoff.models.component import TensorSpec
from bakeoff.models.errors import BakeoffError
from bakeoff.models.matrix_vae.spec import SPEC as VAE
from bakeoff.models.matrix_vae.spec import Config as VaeConfig
from bakeoff.models.matrix_wm.spec import (
    FRAMES_PER_BLOCK,
    MAX_BLOCKS,
    ROWS_PER_FRAME,
    TRAINING_STEPS,
    Config,
    sigmas,
    timesteps,
)
from bakeoff.models.matrix_wm.spec import SPEC as WM
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
    Slot,
)

FRAME_RATE = 25.0
VIDEO_FRAMES = ROWS_PER_FRAME * FRAMES_PER_BLOCK
"""Of a block; three fewer in the first one."""
POSITIONS = ("time_cos", "time_sin", "action_cos", "action_sin")


@dataclass(frozen=True, slots=True)
class Options:
    steps: int = 0
    """Denoising passes of a block, evenly spread over the 1000 training steps; 0: the preset's, 3 or 4."""

    def __post_init__(self) -> None:
        if not 0 <= self.steps <= TRAINING_STEPS:
            raise BakeoffError(
                f"matrix: steps is {self.steps}; it must be from 1 to {TRAINING_STEPS}, or 0 for the preset's",
                code="bad-option",
            )


def schedule(config: Config, steps: int) -> Config:
    """The config with this number of denoising passes; 0 leaves it as it is.

    The published schedules, 1000, 666, 333 and 1000, 750, 500, 250, are those of 3 and 4.
    """
    if not steps:
        return config
    return replace(config, steps=tuple(TRAINING_STEPS * (steps - step) // steps for step in range(steps)))


def loop(preset: PipelinePreset, options: Options) -> Loop:
    """The loop of a preset. Raises BakeoffError where decoder and world model do not fit each other."""
    config, vae = (
        component.preset(preset.components[slot]).config for slot, component in (("wm", WM), ("decoder", VAE))
    )
    assert isinstance(config, Config)
    assert isinstance(vae, VaeConfig)
    config = schedule(config, options.steps)
    caches = _names(VAE.workload(vae, "prime", 1).outputs, "cache.")
    block = (*_denoise(config, "denoise"), *_context(config, "context"))
    return Loop(
        slots=SLOTS,
        presets=preset.components,
        glue="bakeoff.models.pipelines.matrix.glue",
        programs=(
            *(Program("wm", name) for name in ("open", "denoise0", "context0", "denoise", "context")),
            *(Program("decoder", name) for name in ("prime", "steady2", "steady3")),
        ),
        given=tuple(_given(config, vae)),
        opened=tuple(_open(config)),
        opening=((*_denoise(config, "denoise0"), *_context(config, "context0"), *_decode_first(caches)),),
        steady=(*block, *_decode(caches)),
        opening_frames=(VIDEO_FRAMES - 3,),
        frames=VIDEO_FRAMES,
        filling=2,  # the history is full after one block, and holds frames of steady blocks alone after two
        max_units=MAX_BLOCKS,
        state=(*_names(WM.workload(config, "context", 1).outputs), *caches),
        outputs=(Output("x0", slot="wm"), Output("video", "picture", "decoder")),
        frame_rate=FRAME_RATE,
        sizes={"steps": len(config.steps), "window": config.window},
    )


def _names(specs: tuple[TensorSpec, ...], prefix: str = "") -> tuple[str, ...]:
    return tuple(spec.name for spec in specs if spec.name.startswith(prefix))


def _given(config: Config, vae: VaeConfig) -> Iterator[Given]:
    inputs = {spec.name: spec for spec in WM.workload(config, "denoise", 1).inputs}
    (visual,) = WM.workload(config, "open", 1).inputs
    yield Given("visual", visual.shape, "wm", "session")
    for spec in VAE.workload(vae, "prime", 1).inputs:
        if spec.name.startswith("cache."):
            yield Given(spec.name, spec.shape, "decoder", "session", function="zeros", arguments=(spec.shape,))
    latents = inputs["x"].shape
    yield Given("noise", latents, "wm", "unit")
    for step in range(1, len(config.steps)):
        yield Given(f"noise.{step}", latents, "wm", "unit")
    shape = inputs["cond"].shape
    yield Given("cond", shape, "wm", "unit", function="condition", arguments=(shape,))
    for name in ("mouse", "keyboard"):
        if name in inputs:
            spec = inputs[name]
            arguments = (name, spec.shape[-1], spec.draw)
            yield Given(name, spec.shape, "wm", "unit", spec.draw, function="actions", arguments=arguments)
    for name in POSITIONS:
        shape = inputs[name].shape
        yield Given(name, shape, "wm", "unit", keep_fp32=True, function="position", arguments=(name, config))


def _open(config: Config) -> Iterator[Operation]:
    cross = _names(WM.workload(config, "open", 1).outputs)
    yield Call("open", "wm", "open", {"visual": "visual"}, {name: name for name in cross})
    names = tuple(f"t.{step}" for step in range(len(config.steps)))
    yield Glue("timesteps", ("visual",), (*names, "t.context"), (FRAMES_PER_BLOCK, *timesteps(config), 0.0))


def _inputs(config: Config, program: str, x: str, t: str) -> Mapping[str, str]:
    """The inputs of a pass; values have the names of inputs but for latents and timestep."""
    return {name: name for name in _names(WM.workload(config, program, 1).inputs)} | {"x": x, "t": t}


def _denoise(config: Config, program: str) -> Iterator[Operation]:
    """Noise to x0: the clean latents of the block."""
    x = "noise"
    for step, (sigma, timestep) in enumerate(zip(sigmas(config), timesteps(config), strict=True)):
        if step:
            yield Glue("renoise", ("x0", f"noise.{step}"), ("x",), (sigma,))
            x = "x"
        about = {"step": step, "timestep": round(timestep, 2)}
        yield Call("denoise", "wm", program, _inputs(config, program, x, f"t.{step}"), {"flow": "flow"}, about)
        yield Glue("clean", (x, "flow"), ("x0",), (sigma,))


def _context(config: Config, program: str) -> Iterator[Operation]:
    history = _names(WM.workload(config, program, 1).outputs)
    inputs = _inputs(config, program, "x0", "t.context")
    yield Call("context", "wm", program, inputs, {name: name for name in history})


def _decode_first(caches: tuple[str, ...]) -> Iterator[Operation]:
    yield Glue("first_and_rest", ("x0",), ("z.first", "z"))
    yield _decoder("prime", "z.first", "video.first", caches)
    yield _decoder("steady2", "z", "video.rest", caches)
    yield Glue("join", ("video.first", "video.rest"), ("video",))
    yield Glue("present", ("video",), ("pixels",), phase="present")


def _decode(caches: tuple[str, ...]) -> Iterator[Operation]:
    yield Glue("hand_over", ("x0",), ("z",))
    yield _decoder("steady3", "z", "video", caches)
    yield Glue("present", ("video",), ("pixels",), phase="present")


def _decoder(program: str, z: str, video: str, caches: tuple[str, ...]) -> Call:
    same = {name: name for name in caches}
    return Call("decode", "decoder", program, {"z": z} | same, {"video": video} | same)


SLOTS = (Slot("wm", "matrix-wm"), Slot("decoder", "matrix-vae"))

PIPELINE = Pipeline(
    name="matrix",
    summary="interactive video world model: a block of 3 latent frames is denoised, remembered and decoded",
    credit="Matrix-Game-2, Skywork AI; Self-Forcing; Wan 2.1",
    unit="block",
    slots=SLOTS,
    presets=(
        *(PipelinePreset(name, {"wm": name, "decoder": "full"}) for name in ("universal", "gta_drive", "templerun")),
        PipelinePreset("cpu", {"wm": "cpu", "decoder": "cpu"}, "reduced: latents 6x10"),
        PipelinePreset("tiny", {"wm": "tiny", "decoder": "tiny"}, "reduced: latents 4x6"),
    ),
    default_preset={"cpu": "cpu", "cuda": "universal"},
    options=Options,
    loop=loop,
)
