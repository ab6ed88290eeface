"""The modules of the image decoder of owl-vaes (Wayfarer Labs), written with operators that every compiler converts.

Shapes: B batch, C channels, H and W sides. Parameter names and shapes are those of the published checkpoints
(tests/golden/keys), hence the submodule `decoder`. Random weights with the default deviations give pictures with a root
mean square of 0.5 to 0.7, so there is no `initial_std`.
"""

from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bakeoff.models.image.spec import GROUP_WIDTH, OUT_GROUPS, Config, workload
from bakeoff.models.tables import FixedTable


def build(config: Config, workload_name: str, batch: int = 1) -> nn.Module:
    """Return the decoder in eval mode and fp32; its forward takes z and returns the picture in a tuple.

    Raises BakeoffError for an unknown workload or a batch below one; `batch` does not affect the module.
    """
    workload(config, workload_name, batch)
    return ImageDecoder(config).eval()


def bicubic_matrix(size_in: int, size_out: int) -> np.ndarray:
    """Return the matrix [size_out, size_in] that resizes one axis; a row has the four weights of an output sample.

    Cubic convolution with coefficient -0.75, half-pixel centres, edge samples clamped, no antialiasing: what
    `F.interpolate(mode="bicubic", align_corners=False)` computes.
    """
    centre = (np.arange(size_out) + 0.5) * size_in / size_out - 0.5
    first = np.floor(centre).astype(int) - 1
    matrix = np.zeros((size_out, size_in))
    for tap in range(4):
        column = np.clip(first + tap, 0, size_in - 1)
        np.add.at(matrix, (np.arange(size_out), column), _cubic(np.abs(centre - first - tap)))
    return matrix


def _cubic(distance: np.ndarray) -> np.ndarray:
    a = -0.75
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, far)


class BicubicUp(nn.Module):
    """Bicubic upsampling by two, as two products with one matrix; the result is that of `F.interpolate`.

    It takes a tenth to half of `F.interpolate`'s time on a CPU, and needs no resize layer, which TensorRT lacks in
    bf16. The weights are -9, 67, 225 and -27 over 256, exact in half precision; only the weight 283 of the two clamped
    edges is rounded to 284 in bf16.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.taps = FixedTable(bicubic_matrix(size, 2 * size))

    def forward(self, u: Tensor) -> Tensor:
        taps = self.taps().to(u.dtype)
        return taps @ (u @ taps.mT)


class GroupScale(nn.Module):
    """Division by the standard deviation of a group of channels; unlike a group norm, it does not subtract the mean.

    E[u^2] - E[u]^2 would lose digits, so the variance is the sum of two: that of each channel about its own mean, and
    that of the channels' means about the group's mean (Chan, Golub and LeVeque 1979). Reducing single channels works in
    any memory layout. A reshape to groups does not work in channels-last; it took half of the time of a compiled call.
    Gain and deviation are one factor for each channel, computed in fp32 or better and rounded once.
    """

    def __init__(self, width: int, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.gain = nn.Parameter(torch.zeros(width))

    def forward(self, u: Tensor) -> Tensor:
        batch, width = u.shape[:2]
        full = u.to(torch.promote_types(u.dtype, torch.float32)).flatten(2)
        mean = full.mean(2)
        centred = full - mean[:, :, None]
        spread = (centred * centred).mean(2).view(batch, self.groups, -1)
        mean = mean.view(batch, self.groups, -1)
        offset = mean - mean.mean(-1, keepdim=True)
        variance = (spread + offset * offset).mean(-1, keepdim=True)
        factor = torch.rsqrt(variance + 1e-6) * (1 + self.gain.to(full.dtype)).view(self.groups, -1)
        return u * factor.view(batch, width, 1, 1).to(u.dtype)


class ResBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 2 * width
        groups = inner // GROUP_WIDTH
        self.conv1 = nn.Conv2d(width, inner, 1)
        self.norm1 = GroupScale(inner, groups)
        self.conv2 = nn.Conv2d(inner, inner, 3, padding=1, groups=groups)
        self.norm2 = GroupScale(inner, groups)
        self.conv3 = nn.Conv2d(inner, width, 1, bias=False)

    def forward(self, u: Tensor) -> Tensor:
        inner = functional.leaky_relu(self.norm1(self.conv1(u)), 0.01)
        inner = functional.leaky_relu(self.norm2(self.conv2(inner)), 0.01)
        return u + cast(Tensor, self.conv3(inner))


class Starter(nn.Module):
    """Residual blocks at the latent's size; the decoder adds their input to their output."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(ResBlock(width) for _ in range(blocks)))

    def forward(self, u: Tensor) -> Tensor:
        return cast(Tensor, self.blocks(u))


class Up(nn.Module):
    """A projection to `after` channels if the number changes, then twice the height and width."""

    def __init__(self, before: int, after: int, size: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(before, after, 1, bias=False) if before != after else nn.Identity()
        self.resize = BicubicUp(size)

    def forward(self, u: Tensor) -> Tensor:
        return cast(Tensor, self.resize(self.proj(u)))


class UpStage(nn.Module):
    def __init__(self, before: int, after: int, size: int, blocks: int) -> None:
        super().__init__()
        self.up = Up(before, after, size)
        self.blocks = nn.Sequential(*(ResBlock(after) for _ in range(blocks)))

    def forward(self, u: Tensor) -> Tensor:
        return cast(Tensor, self.blocks(self.up(u)))


class Shortcut(nn.Module):
    """Pixel shuffle [B, C, H, W] to [B, C/4, 2H, 2W], then all channels repeated until there are `after`."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.copies = 4 * after // before

    def forward(self, u: Tensor) -> Tensor:
        batch, width, height, length = u.shape
        cells = u.view(batch, width // 4, 2, 2, height, length).permute(0, 1, 4, 2, 5, 3)
        shuffled = cells.reshape(batch, width // 4, 2 * height, 2 * length)
        return torch.cat([shuffled] * self.copies, 1)


class SquareToLandscape(nn.Module):
    """A 3x3 convolution on the square, then a bicubic resize to the picture's size.

    Rows are resized first, because their number decreases. The weights of the resize are in the activation's dtype: in
    bf16 they are rounded, which adds 3 % to the error of a bf16 decoder against fp64 (1.20e-2 to 1.24e-2 at preset
    `cpu`).
    """

    def __init__(self, width: int, size: int, picture_size: tuple[int, int]) -> None:
        super().__init__()
        self.proj = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.rows = FixedTable(bicubic_matrix(size, picture_size[0]))
        self.columns = FixedTable(bicubic_matrix(size, picture_size[1]))

    def forward(self, u: Tensor) -> Tensor:
        rows, columns = self.rows().to(u.dtype), self.columns().to(u.dtype)
        return (rows @ self.proj(u)) @ columns.mT


class Decoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        blocks = config.decoder_blocks_per_stage
        steps = list(pairwise(config.widths))
        self.copies = config.ch_max // config.latent_channels
        self.conv_in = nn.Conv2d(config.latent_channels, config.ch_max, 1, bias=False)
        self.starter = Starter(config.ch_max, blocks[-1])
        self.blocks = nn.ModuleList(
            [
                UpStage(before, after, config.latent_size * 2**stage, blocks[stage])
                for stage, (before, after) in enumerate(steps)
            ]
        )
        self.shortcuts = nn.ModuleList([Shortcut(before, after) for before, after in steps])
        self.s_to_l = (
            SquareToLandscape(config.ch_0, config.square_size, config.picture_size)
            if config.landscape
            else nn.Identity()
        )
        self.norm_out = GroupScale(config.ch_0, OUT_GROUPS)
        self.conv_out = nn.Conv2d(config.ch_0, config.channels, 3, padding=1, bias=False)

    def forward(self, z: Tensor) -> Tensor:
        """Decode latents [B, latent channels, latent side, latent side] to pictures [B, channels, height, width]."""
        u = self.conv_in(z) + torch.cat([z] * self.copies, 1)
        u = u + self.starter(u)
        for stage, shortcut in zip(self.blocks, self.shortcuts, strict=True):
            u = stage(u) + shortcut(u)
        return cast(Tensor, self.conv_out(functional.silu(self.norm_out(self.s_to_l(u)))))


class ImageDecoder(nn.Module):
    """The decoder as the submodule `decoder`, its name in a checkpoint of the whole autoencoder."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.decoder = Decoder(config)

    def forward(self, z: Tensor) -> tuple[Tensor]:
        return (self.decoder(z),)
