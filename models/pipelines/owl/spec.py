"""The facts of the OWL world model's loop, without torch: one picture and its sound in a unit.

A session opens with the keys and values of a history of F - 1 frames, noised to `noise_prev`. For a frame, noise is
denoised in several steps against this cache, the result is noised to `noise_prev` again and appended to the cache, and
the latents are decoded; the audio decoder takes a window of latents, of which the last one's samples are kept. The
history is random latents: with them the times are valid and the pictures are noise.

Source: owl-wms, branch `profiling` (June 2025), `owl_wms/inference/av_pipeline.py` and `sampling/av_window.py`, whose
window of frames that are all computed in every step is replaced by the cache; `main`, `sampling/av_caching_v2.py`, for
the cache of noised frames, the sampler `euler3` and guidance with one cache. `noise_prev=0` is the clean form of
world_engine's `gen_frame` (January 2026).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Literal

from bakeoff.models.errors import BakeoffError
from bakeoff.models.pipelines.pipeline import Pipeline

IMAGE_SCALE, AUDIO_SCALE = 0.13, 0.17
"""Factors from the world model's latents to those of the image and audio decoders."""


@dataclass(frozen=True, slots=True)
class Options:
    steps: int = 0
    """Denoising steps of a frame; 0: the preset's."""
    sampler: Literal["uniform", "euler3"] = "uniform"
    """Noise levels of the steps: in equal steps, or these shifted by 3 towards noise (SD3's Euler)."""
    schedule: str = ""
    """Noise levels, such as 1:0.25:0, in place of `steps` and `sampler`; "": none."""
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


COMPONENTS: Mapping[str, Mapping[str, str]] = {
    "1b": {"wm": "1b", "image": "128x", "audio": "cod"},
    "200m": {"wm": "200m", "image": "cpu", "audio": "cpu"},
    "tiny": {"wm": "tiny-decoded", "image": "tiny", "audio": "tiny"},
}
"""Presets of the components, by preset of the pipeline."""


class Owl(Pipeline):
    """The facts of the loop; loop.py has its code."""

    summary = "audio-video world model: a frame is denoised in steps, appended to the cache and decoded"
    credit = "OWL, Wayfarer Labs: owl-wms, owl-vaes, world_engine"
    rate = 60.0
    filling = 0  # the history fills the window
    Options = Options
    presets = {"1b": "", "200m": "image reduced: 6 stages, 90x160 pixels", "tiny": "reduced"}
    default_preset = {"cpu": "200m", "cuda": "1b"}
    signals = {"image": "picture", "samples": "audio"}
    code = "bakeoff.models.pipelines.owl.loop:Owl"


def noise_levels(options: Options, usual_steps: int) -> tuple[float, ...]:
    """Return the noise levels from 1 to 0, one more than denoising steps."""
    if options.schedule:
        return read_schedule(options.schedule)
    return {"uniform": uniform, "euler3": euler3}[options.sampler](options.steps or usual_steps)


SHIFT = 3.0


def uniform(steps: int) -> tuple[float, ...]:
    """Return levels 1 to 0 in equal steps: the sampler of the weights of June 2025 (owl-wms, branch `profiling`)."""
    return tuple(1 - step / steps for step in range(steps + 1))


def euler3(steps: int) -> tuple[float, ...]:
    """Return levels of `uniform` shifted by 3 towards noise: diffusers' FlowMatchEulerDiscreteScheduler(shift=3)."""
    return tuple(SHIFT * level / (1 + (SHIFT - 1) * level) for level in uniform(steps))


def read_schedule(text: str) -> tuple[float, ...]:
    """Parse levels typed as `1:0.25:0`. Raises BakeoffError unless they fall from 1 to 0."""
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
