"""Facts of the streaming video decoder of Matrix-Game-2 (Skywork AI), without torch.

It is the decoder of the Wan 2.1 VAE in the causal form of Self-Forcing: three-dimensional convolutions over the present
frame and the two before it, so that a stream is decoded a few latent frames at a time. The cache of a convolution is
the last two frames of its input. All caches are inputs and outputs of a call.

Workloads: `prime` decodes the first latent frame of a stream to one video frame; `steady{n}` decodes the next n latent
frames in one call. The first caches of a stream are zeros. A stream of blocks of n latent frames is `prime` and
`steady{n-1}` for the first block, then `steady{n}` for each of the others.

Source: folder `Matrix-Game-2` of https://github.com/SkyworkAI/Matrix-Game (October 2025), `demo_utils/vae_block3.py`
and `wan/modules/vae.py`; the public file `Wan2.1_VAE.pth` fits it.
"""

import re
from dataclasses import dataclass

from bakeoff.models.component import (
    Carry,
    Component,
    Correction,
    Preset,
    Stream,
    TensorSpec,
    Workload,
)
from bakeoff.models.errors import no_such

WORKLOADS = ("prime", "steady1", "steady2", "steady3")
LATENT_MEAN = (
    *(-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508),
    *(0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921),
)
LATENT_STD = (
    *(2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743),
    *(3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160),
)
"""Mean and standard deviation for each channel of a latent, to undo its normalisation."""

CACHED_FRAMES = 2
_STEADY = re.compile(r"steady([1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Config:
    dim: int
    """Channels at full resolution, before `dim_mult`."""
    dim_mult: tuple[int, ...]
    """Channels of each stage in units of `dim`, from pixels towards latents."""
    num_res_blocks: int
    """Number of residual blocks of a stage minus one."""
    temporal_upsample: tuple[bool, ...]
    """Whether frames are doubled after each stage but the last, from latents towards pixels."""
    z_dim: int = 16
    attn_scales: tuple[float, ...] = ()
    latent_height: int = 44
    latent_width: int = 80

    @property
    def stage_channels(self) -> tuple[int, ...]:
        """Channels of each stage, from latents towards pixels."""
        return tuple(self.dim * factor for factor in reversed(self.dim_mult))

    @property
    def space_factor(self) -> int:
        """Factor from height and width of the latents to those of the video."""
        return int(2 ** len(self.temporal_upsample))

    @property
    def time_factor(self) -> int:
        """Video frames per latent frame; the first latent frame of a stream gives one."""
        return int(2 ** sum(self.temporal_upsample))


@dataclass(frozen=True, slots=True)
class CausalLayer:
    """A convolution over time, whose input frames are cached."""

    inputs: int
    scale: int
    """Factor from height and width of the latents to those of the layer's input."""
    frames: int
    """Output frames for one latent frame in a stream; a time_conv makes one of twice the channels,
    which is split into two."""
    doubles_time: bool = False
    """Whether this is a time_conv, over time alone, which is skipped for the first latent frame of a stream."""


def causal_layers(config: Config) -> tuple[CausalLayer, ...]:
    """Return the layers in the order in which `forward` calls them."""
    width, scale, frames = config.stage_channels[0], 1, 1
    found = [CausalLayer(channels, scale, frames) for channels in (config.z_dim, width, width, width, width)]
    for stage, outputs in enumerate(config.stage_channels):
        for _ in range(config.num_res_blocks + 1):
            found += [CausalLayer(width, scale, frames), CausalLayer(outputs, scale, frames)]
            width = outputs
        if stage < len(config.stage_channels) - 1:
            if config.temporal_upsample[stage]:
                found.append(CausalLayer(width, scale, frames, doubles_time=True))
                frames *= 2
            width, scale = width // 2, scale * 2
    return (*found, CausalLayer(width, scale, frames))


def correction(config: Config, name: str, batch: int) -> Correction:
    """Return the flops of all time_convs as convolution flops.

    The network computes a time_conv as a product with its three frames side by side, but it is a convolution over time,
    which Winograd's transform can compute with fewer multiplications.
    """
    pixels = batch * config.latent_height * config.latent_width * (0 if name == "prime" else latent_frames(name))
    kernels = ((2 * 3 * one.inputs * 2 * one.inputs, one) for one in causal_layers(config) if one.doubles_time)
    return Correction(convolution_flops=sum(flops * one.frames * one.scale**2 * pixels for flops, one in kernels))


def latent_frames(name: str) -> int:
    """Return the number of latent frames that a call decodes. Raises BakeoffError for an unknown workload."""
    if name == "prime":
        return 1
    steady = _STEADY.fullmatch(name)
    if not steady:
        listed = "prime and steady{n}, such as steady1 or steady3"
        raise no_such("matrix-vae", "workload", name, WORKLOADS, listed)
    return int(steady[1])


def workload(config: Config, name: str, batch: int) -> Workload:
    """Return the workload `prime` or `steady{n}`: inputs are z and all caches, outputs the video and all caches.

    Raises BakeoffError for an unknown name.
    """
    latents = latent_frames(name)
    first = name == "prime"
    frames = 1 if first else latents * config.time_factor
    height, width = config.latent_height, config.latent_width
    caches = tuple(
        TensorSpec(
            f"cache.{index:02d}", (batch, layer.inputs, CACHED_FRAMES, height * layer.scale, width * layer.scale)
        )
        for index, layer in enumerate(causal_layers(config))
    )
    pixels = (batch, frames, 3, height * config.space_factor, width * config.space_factor)
    inputs = (TensorSpec("z", (batch, latents, config.z_dim, height, width)), *caches)
    outputs = (TensorSpec("video", pixels, keep_fp32=True, signal="picture"), *caches)
    return Workload(
        name,
        "the first latent frame of a stream" if first else f"the next {latents} latent frames of a stream in one pass",
        inputs,
        outputs,
        frames_per_call=batch * frames,
        calls_per_frame=None if first else 1,
    )


def stream(config: Config, name: str) -> Stream | None:
    """Return the stream of `steady{n}`, in blocks of n latent frames; None for `prime`.

    Its opening is `prime` with caches of zeros and, for n > 1, `steady{n-1}` for the rest of the first block. Every
    call takes the caches of the call before it. Raises BakeoffError for an unknown workload.
    """
    latents = latent_frames(name)
    if name == "prime":
        return None
    opening = ("prime",) if latents == 1 else ("prime", f"steady{latents - 1}")
    caches = tuple(spec.name for spec in workload(config, name, 1).outputs if spec.name.startswith("cache."))
    followers = (*opening[1:], name, name)
    carries = tuple(
        Carry(source, cache, target, cache)
        for source, target in zip((*opening, name), followers, strict=True)
        for cache in caches
    )
    return Stream((name,), carries, opening, zeros=caches)


_PUBLISHED = Config(dim=96, dim_mult=(1, 2, 4, 4), num_res_blocks=2, temporal_upsample=(True, True, False))
_REDUCED = Config(24, (1, 2, 4, 4), 2, (True, True, False), latent_height=6, latent_width=10)
_TINY = Config(6, (1, 2, 4, 4), 2, (True, True, False), latent_height=4, latent_width=6)

SPEC = Component(
    name="matrix-vae",
    summary="streaming video decoder: causal convolutions over time with their past in explicit caches",
    credit="Matrix-Game-2, Skywork AI; Self-Forcing; Wan 2.1",
    presets=(
        Preset("full", _PUBLISHED, 73_295_603),
        Preset("cpu", _REDUCED, 4_617_611, "reduced: dim 24, latents 6x10"),
        Preset("tiny", _TINY, 297_953, "reduced: dim 6, latents 4x6"),
    ),
    default_preset={"cpu": "cpu", "cuda": "full"},
    default_workloads={"cpu": ("steady1",), "cuda": ("steady1", "steady3")},
    workload_names=lambda _config: WORKLOADS,
    workload=workload,
    stream=stream,
    correction=correction,
    tolerance_fp32=1e-4,
    network="bakeoff.models.matrix_vae.network",
    layers=("conv2d", "attention"),
    checkpoint_prefixes=("decoder.", "conv2."),
    checkpoint_strip=("ema_model.", "module."),
)
