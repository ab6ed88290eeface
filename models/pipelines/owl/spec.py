"""The loop of the OWL world model without torch: one picture and its sound in a unit.

A session opens with the keys and values of a history of F - 1 frames, noised to `noise_prev`. For a frame, noise is
denoised in some steps against this cache, the result is noised to `noise_prev` again and appended to the cache, and
the latents are decoded; the audio decoder takes a window of latents, of which the last one's samples are kept. The
history is random latents: with them the times are valid and the pictures are noise.

Source: owl-wms, branch `profiling` (June 2025), `owl_wms/inference/av_pipeline.py` and `sampling/av_window.py`, whose
window of frames that are all computed in every step is replaced by the cache; `main`, `sampling/av_caching_v2.py`, for
the cache of noised frames, the sampler `euler3` and guidance with one cache. `noise_prev=0` is the clean form of
world_engine's `gen_frame` (January 2026).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Literal

from bakeoff.models import resolve_component
from bakeoff.models.audio.spec import Config as AudioConfig
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
from bakeoff.models.wm.spec import SPEC as WM
from bakeoff.models.wm.spec import Config as WmConfig

IMAGE_SCALE, AUDIO_SCALE = 0.13, 0.17
"""Latents of the decoders in those of the world model."""
FRAME_RATE = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    steps: int = 0
    """Denoising steps of a frame; 0: the preset's."""
    sampler: Literal["uniform", "euler3"] = "uniform"
    """Noise levels of the steps: in equal steps, or these shifted by 3 towards noise (SD3's Euler)."""
    schedule: str = ""
    """Noise levels that are typed, as 1:0.25:0, in place of `steps` and `sampler`."""
    noise_prev: float = 0.2
    """Noise level of frames in the cache; 0: clean."""
    guidance: Literal["off", "batched", "shared"] = "off"
    """`batched`: every call of the world model has a batch of 2, with and without controls, each with its own cache.
    `shared`: two calls a step, with and without controls, on one cache."""
    guidance_scale: float = 1.3
    audio_window: int = 0
    """Latents in one call of the audio decoder; 0: as many as the world model's window has frames."""

    def __post_init__(self) -> None:
        if self.steps < 0 or self.audio_window < 0:
            raise _bad(f"steps is {self.steps} and audio_window {self.audio_window}; neither may be negative")
        if not 0 <= self.noise_prev < 1:
            raise _bad(f"noise_prev is {self.noise_prev}; it must be at least 0 and less than 1")
        if not 0 <= self.guidance_scale <= 100:
            raise _bad(f"guidance_scale is {self.guidance_scale}; it must be from 0 to 100")
        if self.schedule and (self.steps or self.sampler != "uniform"):
            raise _bad("schedule replaces steps and sampler; give the one or the others")
        if self.schedule:
            read_schedule(self.schedule)


def _bad(problem: str) -> BakeoffError:
    return BakeoffError(f"owl: {problem}", code="bad-option")


def noise_levels(config: WmConfig, options: Options) -> tuple[float, ...]:
    """Levels from 1 to 0, one more than denoising steps."""
    if options.schedule:
        return read_schedule(options.schedule)
    steps = options.steps or config.denoising_steps
    return {"uniform": uniform, "euler3": euler3}[options.sampler](steps)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A preset's config with the options applied."""

    wm: WmConfig
    samples: int
    """Of one audio latent."""
    options: Options

    @property
    def levels(self) -> tuple[float, ...]:
        return noise_levels(self.wm, self.options)

    @property
    def cached(self) -> int:
        """Frames in the cache."""
        return self.wm.n_frames - 1

    @property
    def audio_window(self) -> int:
        return self.options.audio_window or self.wm.n_frames

    @property
    def batch(self) -> int:
        return 2 if self.options.guidance == "batched" else 1

    @property
    def step(self) -> str:
        return f"step{self.cached}"

    @property
    def append(self) -> str:
        return f"append{self.cached}"

    @property
    def context(self) -> str:
        return f"context{self.cached}"

    @property
    def sound(self) -> str:
        return f"decode{self.audio_window}"

    def caches(self, program: str) -> tuple[str, ...]:
        """The inputs of a program that are windows of keys or values."""
        inputs = WM.workload(self.wm, program, self.batch).inputs
        return tuple(spec.name for spec in inputs if spec.name.startswith("cache_"))


def loop(preset: PipelinePreset, options: Options) -> Loop:
    """The loop of a preset. Raises BakeoffError where the components of the preset do not fit each other."""
    components = {slot.name: resolve_component(slot.component) for slot in SLOTS}
    configs = {name: component.preset(preset.components[name]).config for name, component in components.items()}
    wm, audio = configs["wm"], configs["audio"]
    assert isinstance(wm, WmConfig)
    assert isinstance(audio, AudioConfig)
    plan = _Plan(wm, audio.samples_per_latent, options)
    return Loop(
        slots=SLOTS,
        presets=preset.components,
        glue="bakeoff.models.pipelines.owl.glue",
        programs=(
            Program("wm", plan.context, plan.batch),
            Program("wm", plan.step, plan.batch),
            Program("wm", plan.append, plan.batch),
            Program("image", "decode"),
            Program("audio", plan.sound),
        ),
        given=tuple(_given(plan)),
        opened=tuple(_open(plan)),
        opening=(),
        steady=(*_denoise(plan), *_append(plan), *_decode(plan)),
        opening_frames=(),
        frames=1,
        filling=0,  # the history fills the window
        max_units=None,
        state=(*plan.caches(plan.step), "audio_window"),
        outputs=(
            Output("x", slot="wm"),
            Output("a", slot="wm"),
            Output("image", "picture", "image"),
            Output("samples", "audio", "audio"),
        ),
        frame_rate=FRAME_RATE,
        sizes={"steps": len(plan.levels) - 1, "window": wm.n_frames, "audio window": plan.audio_window},
    )


def _given(plan: _Plan) -> Iterator[Given]:
    wm = plan.wm
    pixels = (wm.channels, wm.sample_size, wm.sample_size)
    before = max(plan.cached, plan.audio_window)
    yield Given("history_x", (1, plan.cached, *pixels), "wm", "session")
    yield Given("history_audio", (1, before, wm.audio_channels), "wm", "session")
    yield Given("history_mouse", (1, plan.cached, 2), "wm", "session", keep_fp32=True)
    yield Given("history_btn", (1, plan.cached, wm.n_buttons), "wm", "session", "binary")
    yield Given("noise_x", (1, 1, *pixels), "wm", "unit")
    yield Given("noise_a", (1, 1, wm.audio_channels), "wm", "unit")
    yield Given("mouse", (1, 1, 2), "wm", "unit", keep_fp32=True)
    yield Given("btn", (1, 1, wm.n_buttons), "wm", "unit", "binary")
    if plan.options.noise_prev:
        yield Given("history_noise_x", (1, plan.cached, *pixels), "wm", "session")
        yield Given("history_noise_a", (1, plan.cached, wm.audio_channels), "wm", "session")
        yield Given("context_noise_x", (1, 1, *pixels), "wm", "unit")
        yield Given("context_noise_a", (1, 1, wm.audio_channels), "wm", "unit")
    if plan.options.guidance == "shared":
        for name, width, keep in (("mouse", 2, True), ("btn", wm.n_buttons, False)):
            shape = (1, 1, width)
            yield Given(f"free_{name}", shape, "wm", "session", keep_fp32=keep, function="zeros", arguments=(shape,))


def _open(plan: _Plan) -> Iterator[Operation]:
    """Noise levels as tensors, which stay the same for a session; the cache; the window of audio latents."""
    level, steps = plan.options.noise_prev, plan.levels[:-1]
    names = tuple(f"t.{step}" for step in range(len(steps)))
    yield Glue("levels", ("history_x",), (*names, "t.context"), (plan.batch, *steps, level))
    yield Glue("frame_levels", ("history_x",), ("t.history",), (plan.batch, plan.cached, level))
    yield Glue("last_frames", ("history_audio",), ("history_a",), (plan.cached,))
    latents = ("history_x", "history_a")
    if level:
        yield Glue("renoise", (*latents, "history_noise_x", "history_noise_a"), ("noised_x", "noised_a"), (level,))
        latents = ("noised_x", "noised_a")
    inputs = (*latents, "history_mouse", "history_btn")
    if plan.batch == 2:
        yield Glue("twice", inputs, ("both_x", "both_a", "both_mouse", "both_btn"))
        inputs = ("both_x", "both_a", "both_mouse", "both_btn")
    caches = {spec.name: spec.name for spec in WM.workload(plan.wm, plan.context, plan.batch).outputs}
    yield Call("open", "wm", plan.context, _frame(*inputs, "t.history"), caches)
    yield Glue("last_frames", ("history_audio",), ("heard",), (plan.audio_window,))
    yield Glue("audio_latents", ("heard",), ("audio_window",), (AUDIO_SCALE,))


def _frame(x: str, audio: str, mouse: str, btn: str, t: str) -> dict[str, str]:
    return {"x": x, "audio": audio, "t": t, "mouse": mouse, "btn": btn}


def _controls(plan: _Plan) -> tuple[str, str]:
    return ("both_mouse", "both_btn") if plan.batch == 2 else ("mouse", "btn")


def _denoise(plan: _Plan) -> Iterator[Operation]:
    """Noise to x, a: the latents of the frame."""
    x, audio = "noise_x", "noise_a"
    if plan.batch == 2:
        both = ("both_x", "both_a", "both_mouse", "both_btn")
        yield Glue("twice", (x, audio, "mouse", "btn"), both)
        x, audio = both[:2]
    caches = {name: name for name in plan.caches(plan.step)}
    outputs = {"video": "v", "audio": "va"}
    for step, (level, after) in enumerate(pairwise(plan.levels)):
        t, velocity = f"t.{step}", ("v", "va")
        about = {"step": step, "timestep": round(level, 4)}
        yield Call("denoise", "wm", plan.step, _frame(x, audio, *_controls(plan), t) | caches, outputs, about)
        scale = (plan.options.guidance_scale,)
        if plan.options.guidance == "batched":
            yield Glue("guide_halves", velocity, ("guided_v", "guided_va"), scale)
            velocity = ("guided_v", "guided_va")
        elif plan.options.guidance == "shared":
            yield Glue("keep", velocity, ("with_v", "with_va"))
            yield Call(
                "denoise", "wm", plan.step, _frame(x, audio, "free_mouse", "free_btn", t) | caches, outputs, about
            )
            yield Glue("guide", ("with_v", "with_va", *velocity), ("guided_v", "guided_va"), scale)
            velocity = ("guided_v", "guided_va")
        yield Glue("euler", (x, audio, *velocity), ("x", "a"), (level - after,))
        x, audio = "x", "a"


def _append(plan: _Plan) -> Iterator[Operation]:
    """The frame's keys and values, and the windows shifted by a frame."""
    latents: tuple[str, str] = ("x", "a")
    level = plan.options.noise_prev
    if level:
        yield Glue("renoise", (*latents, "context_noise_x", "context_noise_a"), ("noised_x", "noised_a"), (level,))
        latents = ("noised_x", "noised_a")
    new = {cache: cache.replace("cache_", "new_") for cache in plan.caches(plan.step)}
    inputs = _frame(*latents, *_controls(plan), "t.context")
    inputs |= {name: name for name in plan.caches(plan.append)}
    yield Call("context", "wm", plan.append, inputs, {name: name for name in new.values()})
    for cache, name in new.items():
        yield Shift(cache, name, axis=2)


def _decode(plan: _Plan) -> Iterator[Operation]:
    yield Glue("image_latent", ("x",), ("z",), (IMAGE_SCALE,))
    yield Call("image", "image", "decode", {"z": "z"}, {"image": "image"})
    yield Glue("audio_latents", ("a",), ("z_audio",), (AUDIO_SCALE,))
    yield Shift("audio_window", "z_audio", axis=2)
    yield Call("audio", "audio", plan.sound, {"z": "audio_window"}, {"audio": "audio"})
    yield Glue("newest", ("audio",), ("samples",), (plan.samples,))
    yield Glue("present", ("image", "samples"), ("pixels", "sound"), phase="present")


SLOTS = (Slot("wm", "wm"), Slot("image", "image"), Slot("audio", "audio"))

PIPELINE = Pipeline(
    name="owl",
    summary="audio-video world model: a frame is denoised in steps, appended to the cache and decoded",
    credit="OWL, Wayfarer Labs: owl-wms, owl-vaes, world_engine",
    unit="frame",
    slots=SLOTS,
    presets=(
        PipelinePreset("1b", {"wm": "1b", "image": "128x", "audio": "cod"}),
        PipelinePreset(
            "200m", {"wm": "200m", "image": "cpu", "audio": "cpu"}, "image reduced: 6 stages, 90x160 pixels"
        ),
        PipelinePreset("tiny", {"wm": "tiny-decoded", "image": "tiny", "audio": "tiny"}, "reduced"),
    ),
    default_preset={"cpu": "200m", "cuda": "1b"},
    options=Options,
    loop=loop,
)


SHIFT = 3.0


def uniform(steps: int) -> tuple[float, ...]:
    """Levels 1 to 0 in equal steps: the sampler of the weights of June 2025 (owl-wms, branch `profiling`)."""
    return tuple(1 - step / steps for step in range(steps + 1))


def euler3(steps: int) -> tuple[float, ...]:
    """The levels of `uniform`, shifted by 3 towards noise: diffusers' FlowMatchEulerDiscreteScheduler(shift=3)."""
    return tuple(SHIFT * level / (1 + (SHIFT - 1) * level) for level in uniform(steps))


def read_schedule(text: str) -> tuple[float, ...]:
    """Levels that are typed as `1:0.25:0`. Raises BakeoffError unless they fall from 1 to 0."""
    try:
        levels = tuple(float(part) for part in text.split(":"))
    except ValueError:
        levels = ()
    falls = len(levels) > 1 and all(isfinite(level) and before > level for before, level in pairwise(levels))
    if not falls or levels[0] != 1 or levels[-1] != 0:
        raise BakeoffError(
            f"owl: schedule is '{text}'; write noise levels that fall from 1 to 0, as 1:0.25:0", code="bad-option"
        )
    return levels
