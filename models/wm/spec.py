"""Facts of the audio-video world model of the OWL project (owl-wms, Wayfarer Labs or OpenWorld Labs), without torch.

A diffusion-forcing rectified-flow transformer over video latents, audio latents and a player's mouse and buttons. A
frame is `tokens_per_frame` tokens: one for each latent pixel in row-major order, then one for audio. Every frame has
its own noise level t: the noised input of clean data d and noise z is (1 - t) d + t z, and the prediction is each
frame's velocity z - d.

Source: branch `profiling` of owl-wms (June 2025), model `game_rft_audio`, `configs/av.yml` for preset `1b`; the same
file before 13 June 2025 for `200m`.

Workloads that see earlier frames take the keys and values of these frames for each layer: [batch, heads, frames *
tokens, head_dim], oldest frame first. Keys are stored after the QK norm and before the rotary embedding: a key's angle
depends on the number of frames in the window, so the key is rotated in each step.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal

from bakeoff.models.component import (
    Carry,
    Component,
    Preset,
    Stream,
    TensorSpec,
    Workload,
)
from bakeoff.models.errors import BakeoffError, no_such

_NAME = re.compile(r"(single)|(step|context|append|full)([1-9][0-9]*)?")


@dataclass(frozen=True, slots=True)
class Config:
    sample_size: int
    """Side of the square video latent in pixels; one pixel is one token."""
    channels: int
    audio_channels: int
    n_layers: int
    n_heads: int
    d_model: int
    tokens_per_frame: int
    n_buttons: int
    n_frames: int
    """Length of the window: frames in the position table. A step takes one frame fewer from the cache."""
    causal: bool = False
    """Whether a frame attends only to itself and earlier frames of the same call. No published preset sets it."""
    backbone: Literal["dit", "uvit"] = "dit"
    """`dit`: blocks in sequence. `uvit`: also long skips from the first half of the blocks to the second."""
    control_dim: int = 512
    """Inner width of the mouse and button embeddings."""
    timestep_dim: int = 512
    """Width of the sinusoid of the noise level."""
    denoising_steps: int = 20
    """Steps of the sampler for one frame."""

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads

    @property
    def skips_stored(self) -> int:
        """Number of skip projections among the parameters."""
        return self.n_layers // 2 if self.backbone == "uvit" else 0

    @property
    def skips_used(self) -> int:
        """Number of skip projections that are computed; with an even number of layers the last stored one is unused."""
        return (self.n_layers - 1) // 2 if self.backbone == "uvit" else 0


@dataclass(frozen=True, slots=True)
class Window:
    """The frames of one workload: the number computed, and the number read from the cache."""

    kind: str
    new: int
    """Number of frames computed."""
    cached: int
    """Number of earlier frames, given as keys and values."""

    @property
    def frames(self) -> int:
        return self.cached + self.new

    @property
    def fills_cache(self) -> bool:
        """Whether the outputs are the new frames' keys and values, at which the last layer stops, and no prediction."""
        return self.kind in ("context", "append")

    @property
    def denoises_one_frame(self) -> bool:
        return self.kind in ("single", "step")


def read_window(config: Config, name: str) -> Window:
    """Read a workload's name, which may end in a number of frames: those cached (`step4`) or computed (`full3`).

    Raises BakeoffError for an unknown name, or more frames than the window has.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        known = workload_names(config)
        listed = f"{', '.join(known)}. All but single may end in a number of frames, such as step4"
        raise no_such("wm", "workload", name, known, listed)
    kind, number = match[1] or match[2], match[3]
    if kind == "single":
        return Window(kind, new=1, cached=0)
    limit = config.n_frames if kind == "full" else config.n_frames - 1
    frames = int(number) if number else limit
    if not 1 <= frames <= limit:
        raise BakeoffError(
            f"wm workload '{name}' does not fit a window of {config.n_frames} frames; {kind} takes at most {limit}",
            code="unknown-name",
        )
    if kind in ("full", "context"):
        return Window(kind, new=frames, cached=0)
    return Window(kind, new=1, cached=frames)


def workload_names(config: Config) -> tuple[str, ...]:
    if config.n_frames == 1:
        return ("single", "full")
    return ("single", "step", "context", "append", "full")


def workload(config: Config, name: str, batch: int) -> Workload:
    """Return the workload of this name; guidance is the same workload with twice the batch.

    Raises BakeoffError for an unknown name, or more frames than the window has.
    """
    window = read_window(config, name)
    pixels = (config.channels, config.sample_size, config.sample_size)
    frames = (batch, window.new)
    # The layer that stops at its keys and values computes no attention, so it has no cache among the inputs.
    layers_attending = config.n_layers - window.fills_cache
    inputs = (
        TensorSpec("x", (*frames, *pixels)),
        TensorSpec("audio", (*frames, config.audio_channels)),
        TensorSpec("t", frames, "uniform", keep_fp32=True),
        TensorSpec("mouse", (*frames, 2), keep_fp32=True),
        TensorSpec("btn", (*frames, config.n_buttons), "binary"),
        *(_keys_values(config, batch, window.cached, layers_attending, "cache") if window.cached else ()),
    )
    outputs: tuple[TensorSpec, ...]
    if window.fills_cache:
        prefix = "new" if window.cached else "cache"
        outputs = _keys_values(config, batch, window.new, config.n_layers, prefix)
    else:
        outputs = (TensorSpec("video", (*frames, *pixels)), TensorSpec("audio", (*frames, config.audio_channels)))
    return Workload(
        name,
        _summary(window),
        inputs,
        outputs,
        frames_per_call=window.new,
        calls_per_frame=config.denoising_steps + 1 if window.denoises_one_frame else None,
    )


def stream(config: Config, name: str) -> Stream | None:
    """Return the stream of `step`; None for the other workloads, which keep no such cache.

    Its opening is `context`, which fills the cache. For each frame, `step` is called once for each denoising step; then
    `append` computes the frame's keys and values, which replace those of the oldest frame in the window.
    """
    if read_window(config, name).kind != "step":
        return None
    number = name.removeprefix("step")
    context, append = f"context{number}", f"append{number}"
    carries = []
    for layer in range(config.n_layers):
        takers = (name, append) if layer < config.n_layers - 1 else (name,)
        for taker in takers:
            for kind in ("k", "v"):
                cache = f"cache_{kind}.{layer}"
                carries.append(Carry(context, cache, taker, cache))
                carries.append(Carry(append, f"new_{kind}.{layer}", taker, cache, axis=2))
    return Stream((name, append), tuple(carries), opening=(context,))


def _keys_values(config: Config, batch: int, frames: int, layers: int, prefix: str) -> tuple[TensorSpec, ...]:
    shape = (batch, config.n_heads, frames * config.tokens_per_frame, config.head_dim)
    return tuple(TensorSpec(f"{prefix}_{kind}.{layer}", shape) for layer in range(layers) for kind in ("k", "v"))


def _summary(window: Window) -> str:
    if window.fills_cache and window.cached:
        return f"keys and values of one clean frame against {window.cached} cached frames"
    if window.fills_cache:
        return f"keys and values of {window.new} frames, to fill the cache"
    if window.cached:
        return f"one denoising step of one frame against {window.cached} cached frames"
    if window.new == 1:
        return "one denoising step of one frame, no context"
    return f"one denoising step of {window.new} frames, no cache"


_PRESET_1B = Config(
    sample_size=4,
    channels=128,
    audio_channels=64,
    n_layers=25,
    n_heads=24,
    d_model=1536,
    tokens_per_frame=17,
    n_buttons=11,
    n_frames=60,
)
_PRESET_200M = Config(
    sample_size=4,
    channels=128,
    audio_channels=64,
    n_layers=13,
    n_heads=16,
    d_model=1024,
    tokens_per_frame=17,
    n_buttons=11,
    n_frames=30,
    backbone="uvit",
    denoising_steps=10,
)
_PRESET_TINY = Config(
    sample_size=4,
    channels=8,
    audio_channels=6,
    n_layers=3,
    n_heads=3,
    d_model=48,
    tokens_per_frame=17,
    n_buttons=11,
    n_frames=5,
    control_dim=64,
)

_PRESET_TINY_DECODED = replace(_PRESET_TINY, channels=16, audio_channels=8)
"""`tiny` with latents that `image:tiny` and `audio:tiny` can decode; those of `tiny` are fixed by its golden files."""

SPEC = Component(
    name="wm",
    summary="audio-video world model: a diffusion transformer over a window of frames with a KV cache",
    credit="OWL, Wayfarer Labs: owl-wms",
    presets=(
        Preset("1b", _PRESET_1B, 1_093_823_296),
        Preset("200m", _PRESET_200M, 274_839_872),
        Preset("tiny", _PRESET_TINY, 293_726, "reduced"),
        Preset("tiny-decoded", _PRESET_TINY_DECODED, 294_696, "reduced, with latents for image:tiny and audio:tiny"),
    ),
    default_preset={"cpu": "200m", "cuda": "1b"},
    default_workloads={"cpu": ("step",), "cuda": ("step",)},
    workload_names=workload_names,
    workload=workload,
    stream=stream,
    tolerance_fp32=1e-3,
    network="bakeoff.models.wm.network",
    layers=("linear", "attention"),
    checkpoint_strip=("ema_model.", "module.", "core."),
)
