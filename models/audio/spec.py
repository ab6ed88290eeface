"""Facts of the audio decoder of the OWL project (owl-vaes, Wayfarer Labs or OpenWorld Labs), without torch.

The decoder half of an audio autoencoder: latents, the world model's audio latents times 0.17, become a stereo waveform
of 44,100 samples a second in (-1, 1). One latent is one video frame, 60 a second, 735 samples at the `cod` preset. The
norms average over time, so every sample depends on the whole window and decoding in chunks is not exact: a stream
decodes a window and keeps the last frame's samples.

Workloads: `decode` decodes the preset's number of latents, `decode{n}` a window of n.

Source: owl-vaes commit 303c2ee (15 June 2025), model `audio_ae`, with `configs/owl_vaes/cod_audio.yml` of owl-wms.
Later commits have other layers and parameter counts.
"""

import re
from dataclasses import dataclass
from math import prod

from bakeoff.models.component import Component, Correction, Preset, TensorSpec, Workload
from bakeoff.models.errors import no_such

WORKLOADS = ("decode",)
_NAME = re.compile(r"decode([1-9][0-9]*)?")

GROUP_WIDTH = 16
"""Channels of one group of a grouped convolution."""
KERNEL = 7
"""Kernel width of the grouped convolutions and of the last convolution, in samples."""
DILATIONS = (1, 3, 9)
"""Dilations of the three residual blocks of the starter and of each up stage."""


@dataclass(frozen=True, slots=True)
class Config:
    channels: int
    """Channels of the waveform: 2 for stereo."""
    latent_channels: int
    ch_0: int
    """Channels of the last stage; they double from stage to stage towards the latents. A multiple of 8."""
    ch_max: int
    """Channels of the starter, and the maximum of all stages. A multiple of 8."""
    strides: tuple[int, ...]
    """Upsampling factor of each up stage, last stage first, then one for the starter, which is not used."""
    latents: int = 120
    """Latents in one call of `decode`."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of the starter, then of each up stage in decode order."""
        return tuple(min(self.ch_0 * 2**stage, self.ch_max) for stage in reversed(range(len(self.strides))))

    @property
    def up_strides(self) -> tuple[int, ...]:
        """Upsampling factors of the up stages in decode order."""
        return self.strides[-2::-1]

    @property
    def samples_per_latent(self) -> int:
        return prod(self.up_strides)


def workload(config: Config, name: str, batch: int) -> Workload:
    """Return the workload `decode`, or `decode{n}` for n latents instead of the config's number.

    Raises BakeoffError for an unknown name.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        listed = "decode and decode{n}, such as decode30 for 30 latents"
        raise no_such("audio", "workload", name, WORKLOADS, listed)
    latents, samples = int(match[1] or config.latents), config.samples_per_latent
    z = TensorSpec("z", (batch, config.latent_channels, latents))
    audio = TensorSpec("audio", (batch, config.channels, latents * samples), signal="audio")
    return Workload(
        name,
        f"a window of {latents} latents to a waveform of {latents * samples} samples; a stream keeps the last frame's "
        f"{samples}, so a call delivers one frame",
        (z,),
        (audio,),
        frames_per_call=batch,
    )


def correction(config: Config, name: str, batch: int) -> Correction:
    """Return a negative correction for the products with padding zeros in dilated convolutions.

    The network computes a convolution with dilation d as an undilated one over rows of d samples, and fills up the last
    row with zeros.
    """
    samples = workload(config, name, batch).inputs[0].shape[-1]
    padded = 0
    for width, stride in zip(config.widths, (1, *config.up_strides), strict=True):
        samples *= stride
        padded += sum(2 * (-samples % dilation) * 2 * width * GROUP_WIDTH * KERNEL for dilation in DILATIONS)
    return Correction(-batch * padded, -batch * padded)


_PRESET_COD = Config(channels=2, latent_channels=64, ch_0=128, ch_max=512, strides=(3, 5, 7, 7, 1))
_PRESET_CPU = Config(channels=2, latent_channels=64, ch_0=128, ch_max=512, strides=(3, 5, 7, 7, 1), latents=10)
_PRESET_TINY = Config(channels=2, latent_channels=8, ch_0=16, ch_max=32, strides=(3, 5, 2, 1), latents=10)

SPEC = Component(
    name="audio",
    summary="audio decoder: an autoencoder's latents, one a video frame, to a stereo waveform",
    credit="OWL, Wayfarer Labs: owl-vaes",
    presets=(
        Preset("cod", _PRESET_COD, 20_950_528),
        Preset("cpu", _PRESET_CPU, 20_950_528, "cod with 10 latents"),
        Preset("tiny", _PRESET_TINY, 139_712, "reduced"),
    ),
    default_preset={"cpu": "cpu", "cuda": "cod"},
    default_workloads={"cpu": WORKLOADS, "cuda": WORKLOADS},
    workload_names=lambda _config: WORKLOADS,
    workload=workload,
    correction=correction,
    tolerance_fp32=1e-4,
    network="bakeoff.models.audio.network",
    layers=("conv1d",),
    checkpoint_prefixes=("decoder.",),
    checkpoint_strip=("ema_model.", "module."),
)
