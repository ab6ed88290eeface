"""Facts of the image decoder of the OWL project (owl-vaes, Wayfarer Labs or OpenWorld Labs), without torch.

The decoder half of a deep-compression convolutional autoencoder: a square latent z, the world model's video latent
times 0.13, becomes a picture. Training pictures are in -1 to 1; the output is not clamped. Each picture is decoded
independently, so several frames are a batch.

Source: owl-vaes commit 303c2ee (15 June 2025), model `dcae`, with `configs/owl_vaes/cod_128x.yml` of owl-wms. Later
commits have other layers and parameter counts.
"""

from dataclasses import dataclass

from bakeoff.models.component import Component, Preset, TensorSpec, Workload
from bakeoff.models.errors import no_such

WORKLOADS = ("decode",)

GROUP_WIDTH = 16
"""Channels of one group of a grouped convolution and of the norms beside it."""
OUT_GROUPS = 32
"""Groups of the last norm."""
SQUARE, LANDSCAPE = 512, (360, 640)
"""Side of a square picture, and height and width to which it is resized; other sizes are in proportion."""


@dataclass(frozen=True, slots=True)
class Config:
    sample_size: tuple[int, int]
    """Height and width of training pictures. Only the ratio is used: if it is 16:9, squares are resized at the end."""
    channels: int
    """Channels of the picture."""
    latent_size: int
    """Side of the square latent."""
    latent_channels: int
    ch_0: int
    """Channels of the last stage; they double from stage to stage towards the latent."""
    ch_max: int
    """Channels of the starter, and the maximum of all stages."""
    decoder_blocks_per_stage: tuple[int, ...]
    """Number of residual blocks of each up stage in decode order, then of the starter."""
    noise_decoder_inputs: float = 0.0
    """Noise on latents in training; it has no effect in decoding."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels of the starter, then of each up stage in decode order."""
        stages = range(len(self.decoder_blocks_per_stage))
        return tuple(min(self.ch_0 * 2**stage, self.ch_max) for stage in reversed(stages))

    @property
    def square_size(self) -> int:
        """Side of the square after the last up stage; each stage doubles it."""
        return self.latent_size << (len(self.decoder_blocks_per_stage) - 1)

    @property
    def landscape(self) -> bool:
        height, width = self.sample_size
        return abs(width / height - 16 / 9) < 0.01

    @property
    def picture_size(self) -> tuple[int, int]:
        """Height and width of the output; halves are rounded to even, as Python's `round` does."""
        side = self.square_size
        if not self.landscape:
            return side, side
        height, width = LANDSCAPE
        return round(side * height / SQUARE), round(side * width / SQUARE)


def workload(config: Config, name: str, batch: int) -> Workload:
    """Return the workload of this name. Raises BakeoffError for an unknown name."""
    if name not in WORKLOADS:
        raise no_such("image", "workload", name, WORKLOADS)
    z = TensorSpec("z", (batch, config.latent_channels, config.latent_size, config.latent_size))
    image = TensorSpec("image", (batch, config.channels, *config.picture_size), signal="picture")
    height, width = config.picture_size
    return Workload(
        name,
        f"one latent to a picture of {height} x {width}",
        (z,),
        (image,),
        frames_per_call=batch,
    )


_PRESET_128X = Config(
    sample_size=(360, 640),
    channels=3,
    latent_size=4,
    latent_channels=128,
    ch_0=128,
    ch_max=1024,
    decoder_blocks_per_stage=(3,) * 8,
)
_PRESET_CPU = Config(
    sample_size=(360, 640),
    channels=3,
    latent_size=4,
    latent_channels=128,
    ch_0=64,
    ch_max=512,
    decoder_blocks_per_stage=(3,) * 6,
)
_PRESET_TINY = Config(
    sample_size=(360, 640),
    channels=3,
    latent_size=4,
    latent_channels=16,
    ch_0=32,
    ch_max=64,
    decoder_blocks_per_stage=(2, 1, 3, 1),
)

SPEC = Component(
    name="image",
    summary="image decoder: a deep-compression convolutional autoencoder's latent to a picture",
    credit="OWL, Wayfarer Labs: owl-vaes",
    presets=(
        Preset("128x", _PRESET_128X, 73_355_776),
        Preset("cpu", _PRESET_CPU, 12_507_392, "reduced: 6 stages, 90x160"),
        Preset("tiny", _PRESET_TINY, 195_200, "reduced"),
    ),
    default_preset={"cpu": "cpu", "cuda": "128x"},
    default_workloads={"cpu": WORKLOADS, "cuda": WORKLOADS},
    workload_names=lambda _config: WORKLOADS,
    workload=workload,
    tolerance_fp32=1e-4,
    network="bakeoff.models.image.network",
    layers=("conv2d",),
    checkpoint_prefixes=("decoder.",),
    checkpoint_strip=("ema_model.", "module."),
)
