"""The streaming video decoder of Matrix-Game-2 (Skywork AI), without torch.

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
    Preset,
    Stream,
    TensorSpec,
    Work,
    Workload,
    require_positive_integers,
)
from bakeoff.models.errors import BakeoffError, meant

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

    def __post_init__(self) -> None:
        require_positive_integers(self, "matrix-vae")
        gaps = len(self.dim_mult) - 1
        if len(self.temporal_upsample) != gaps or any(type(flag) is not bool for flag in self.temporal_upsample):
            raise BakeoffError(
                f"matrix-vae config: temporal_upsample is {self.temporal_upsample!r}; {gaps + 1} stages need "
                f"{gaps} values, each true or false",
                code="bad-config",
            )
        odd = [self.dim * factor for factor in self.dim_mult[1:] if self.dim * factor % 2]
        if odd:
            raise BakeoffError(
                f"matrix-vae config: a stage has {odd[0]} channels, which cannot be halved; use an even dim",
                code="bad-config",
            )
        if self.z_dim != len(LATENT_MEAN):
            raise BakeoffError(
                f"matrix-vae config: z_dim is {self.z_dim}; it must be {len(LATENT_MEAN)}, the channels of a latent",
                code="bad-config",
            )
        if self.attn_scales:
            raise BakeoffError(
                f"matrix-vae config: attn_scales is {self.attn_scales!r}; it must be (), attention in the middle only",
                code="bad-config",
            )

    @property
    def stage_channels(self) -> tuple[int, ...]:
        """Channels of each stage, from latents towards pixels."""
        return tuple(self.dim * factor for factor in reversed(self.dim_mult))

    @property
    def space_factor(self) -> int:
        """Height and width of the video in those of the latents."""
        return int(2 ** len(self.temporal_upsample))

    @property
    def time_factor(self) -> int:
        """Video frames of a latent frame, except the first of a stream."""
        return int(2 ** sum(self.temporal_upsample))


@dataclass(frozen=True, slots=True)
class Layer:
    """One convolution and, if `normed`, the norm before it."""

    key: str
    inputs: int
    outputs: int
    taps: int
    """Input frames of one output frame; more than one means a causal convolution with a cache."""
    side: int
    """Kernel height and width."""
    scale: int
    """Height and width at its output, in latent pixels."""
    frames: int
    """Output frames for one latent frame in a stream; a time_conv makes one of twice the channels, split into two."""
    normed: bool = False

    @property
    def kernel_elements(self) -> int:
        return self.inputs * self.outputs * self.taps * self.side**2

    @property
    def parameters(self) -> int:
        """Number of elements of the kernel, the bias and the norm's gains."""
        return self.kernel_elements + self.outputs + self.inputs * self.normed

    @property
    def doubles_time(self) -> bool:
        """Whether this is a time_conv, which is skipped for the first latent frame of a stream."""
        return self.key.endswith(".time_conv")


def layers(config: Config) -> tuple[Layer, ...]:
    """All convolutions in the order in which `forward` calls them."""
    channels = config.stage_channels
    width, scale, frames = channels[0], 1, 1
    found = [
        Layer("conv2", config.z_dim, config.z_dim, 1, 1, scale, frames),
        Layer("decoder.conv1", config.z_dim, width, 3, 3, scale, frames),
        *_residual("decoder.middle.0", width, width, scale, frames),
        Layer("decoder.middle.1.to_qkv", width, 3 * width, 1, 1, scale, frames, normed=True),
        Layer("decoder.middle.1.proj", width, width, 1, 1, scale, frames),
        *_residual("decoder.middle.2", width, width, scale, frames),
    ]
    index = 0
    for stage, outputs in enumerate(channels):
        for _ in range(config.num_res_blocks + 1):
            found += _residual(f"decoder.upsamples.{index}", width, outputs, scale, frames)
            width, index = outputs, index + 1
        if stage < len(channels) - 1:
            key = f"decoder.upsamples.{index}"
            if config.temporal_upsample[stage]:
                found.append(Layer(f"{key}.time_conv", width, 2 * width, 3, 1, scale, frames))
                frames *= 2
            scale *= 2
            found.append(Layer(f"{key}.resample.1", width, width // 2, 1, 3, scale, frames))
            width, index = width // 2, index + 1
    found.append(Layer("decoder.head.2", width, 3, 3, 3, scale, frames, normed=True))
    return tuple(found)


def _residual(key: str, inputs: int, outputs: int, scale: int, frames: int) -> list[Layer]:
    found = [
        Layer(f"{key}.residual.2", inputs, outputs, 3, 3, scale, frames, normed=True),
        Layer(f"{key}.residual.6", outputs, outputs, 3, 3, scale, frames, normed=True),
    ]
    if inputs != outputs:
        found.append(Layer(f"{key}.shortcut", inputs, outputs, 1, 1, scale, frames))
    return found


def parameters(config: Config) -> int:
    return sum(layer.parameters for layer in layers(config))


def layer_flops(config: Config, name: str, batch: int) -> dict[str, int]:
    """FLOPs of one call by layer; `decoder.middle.1` is the attention without its projections.

    Raises BakeoffError for an unknown workload.
    """
    latents = latent_frames(name)
    pixels = batch * config.latent_height * config.latent_width
    found: dict[str, int] = {}
    for layer in layers(config):
        frames = (0 if layer.doubles_time else 1) if name == "prime" else latents * layer.frames
        found[layer.key] = 2 * layer.kernel_elements * frames * pixels * layer.scale**2
    positions = config.latent_height * config.latent_width
    found["decoder.middle.1"] = 4 * batch * latents * positions**2 * config.stage_channels[0]
    return found


def latent_frames(name: str) -> int:
    """Number of latent frames that a call decodes. Raises BakeoffError for an unknown workload."""
    if name == "prime":
        return 1
    steady = _STEADY.fullmatch(name)
    if not steady:
        raise BakeoffError(
            f"matrix-vae has no workload '{name}'{meant(name, WORKLOADS)}; it has prime and steady{{n}}, such as "
            "steady1 or steady3",
            code="unknown-name",
        )
    return int(steady[1])


def workload(config: Config, name: str, batch: int) -> Workload:
    """`prime` or `steady{n}`: inputs are z and all caches, outputs the video and all caches.

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
        for index, layer in enumerate(layer for layer in layers(config) if layer.taps > 1)
    )
    pixels = (batch, frames, 3, height * config.space_factor, width * config.space_factor)
    inputs = (TensorSpec("z", (batch, latents, config.z_dim, height, width)), *caches)
    outputs = (TensorSpec("video", pixels, keep_fp32=True, signal="picture"), *caches)
    flops = layer_flops(config, name, batch)
    work = Work(
        flops=sum(flops.values()),
        weight_elements=sum(layer.parameters for layer in layers(config) if not (first and layer.doubles_time)),
        io_elements=sum(tensor.elements for tensor in inputs + outputs),
        convolution_flops=sum(flops[layer.key] for layer in layers(config) if layer.taps * layer.side**2 > 1),
    )
    return Workload(
        name,
        "the first latent frame of a stream" if first else f"the next {latents} latent frames of a stream in one pass",
        inputs,
        outputs,
        work,
        frames_per_call=batch * frames,
        calls_per_frame=None if first else 1,
    )


def stream(config: Config, name: str) -> Stream | None:
    """The stream of `steady{n}`, in blocks of n latent frames; None for `prime`.

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
        Preset("full", _PUBLISHED),
        Preset("cpu", _REDUCED, "reduced: dim 24, latents 6x10"),
        Preset("tiny", _TINY, "reduced: dim 6, latents 4x6"),
    ),
    default_preset={"cpu": "cpu", "cuda": "full"},
    default_workloads={"cpu": ("steady1",), "cuda": ("steady1", "steady3")},
    workload_names=lambda _config: WORKLOADS,
    workload=workload,
    stream=stream,
    parameters=parameters,
    tolerance_fp32=1e-4,
    network="bakeoff.models.matrix_vae.network",
    layers=("conv2d", "attention"),
    checkpoint_prefixes=("decoder.", "conv2."),
    checkpoint_strip=("ema_model.", "module."),
)
