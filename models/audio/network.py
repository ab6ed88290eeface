"""The modules of the audio decoder of owl-vaes (Wayfarer Labs), written with operators that every compiler converts.

Shapes: B batch, C channels, T samples. Inside the decoder a signal is a picture of one row [B, C, 1, T], because
compilers optimise the memory layout of two-dimensional convolutions far better than that of one-dimensional ones.
Parameter names and shapes are those of the published checkpoints (tests/golden/keys), hence the submodule `decoder`.
"""

from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bakeoff.models.audio.spec import DILATIONS, GROUP_WIDTH, KERNEL, Config, workload
from bakeoff.models.tables import FixedTable


def build(config: Config, workload_name: str, batch: int = 1) -> nn.Module:
    """Return the decoder in eval mode and fp32; its forward takes z and returns the waveform in a tuple.

    Raises BakeoffError for an unknown workload or a batch below one; `batch` does not affect the module.
    """
    workload(config, workload_name, batch)
    return AudioDecoder(config).eval()


def initial_std(name: str, shape: tuple[int, ...]) -> float | None:
    """Return a tenth of the default standard deviation for the last convolution's weights, None for other parameters.

    Inputs of that convolution grow to 4 or 5 and would saturate the tanh. With this factor the waveform's root mean
    square is 0.2 to 0.6; without it, half of the samples are above 0.99 in magnitude.
    """
    return 0.1 * (shape[1] * shape[2]) ** -0.5 if name == "decoder.conv_out.weight" else None


class Convolution(nn.Conv1d):
    """A one-dimensional convolution of [B, C, 1, T] that keeps T, with the parameters of `nn.Conv1d`.

    A convolution with dilation d combines only samples that are a multiple of d apart. With T reshaped to rows of d
    samples these lie in one column, and the kernel is an undilated one along the columns. The zeros that fill up the
    last row are the padding that follows the signal anyway.
    """

    def __init__(
        self, inputs: int, outputs: int, width: int, dilation: int = 1, groups: int = 1, bias: bool = True
    ) -> None:
        super().__init__(inputs, outputs, width, dilation=dilation, groups=groups, bias=bias)

    def forward(self, u: Tensor) -> Tensor:
        (width,), (columns,), samples = self.kernel_size, self.dilation, u.shape[-1]
        if columns == 1:
            return functional.conv2d(u, self.weight[:, :, None], self.bias, padding=(0, width // 2), groups=self.groups)
        rows = functional.pad(u, (0, -samples % columns)).reshape(*u.shape[:2], -1, columns)
        convolved = functional.conv2d(
            rows, self.weight[..., None], self.bias, padding=(width // 2, 0), groups=self.groups
        )
        return convolved.flatten(2)[:, :, None, :samples]


class SnakeBeta(nn.Module):
    """The activation u + sin^2(u (1 + alpha)) / (exp(beta) + 1e-6), with one alpha and one beta for each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def forward(self, u: Tensor) -> Tensor:
        sine = torch.sin(u * (1 + self.alpha)[:, None, None])
        return u + sine * sine * (1 / (self.beta.exp() + 1e-6))[:, None, None]


class TimeRMS(nn.Module):
    """Norm of each channel by its root mean square over time, so that every sample depends on the whole window.

    Gain and reciprocal root are combined into one factor for each channel, computed in fp32 or better and rounded once.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(width))

    def forward(self, u: Tensor) -> Tensor:
        full = u.to(torch.promote_types(u.dtype, torch.float32))
        mean_square = (full * full).mean((2, 3), keepdim=True)
        factor = torch.rsqrt(mean_square + 1e-6) * (1 + self.gain.to(full.dtype))[:, None, None]
        return u * factor.to(u.dtype)


class ResBlock(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        inner = 2 * width
        self.conv1 = Convolution(width, inner, 1)
        self.norm1 = TimeRMS(inner)
        self.act1 = SnakeBeta(inner)
        self.conv2 = Convolution(inner, inner, KERNEL, dilation, groups=inner // GROUP_WIDTH)
        self.norm2 = TimeRMS(inner)
        self.act2 = SnakeBeta(inner)
        self.conv3 = Convolution(inner, width, 1, bias=False)

    def forward(self, u: Tensor) -> Tensor:
        inner = self.act1(self.norm1(self.conv1(u)))
        inner = self.act2(self.norm2(self.conv2(inner)))
        return u + cast(Tensor, self.conv3(inner))


class Starter(nn.Module):
    """Three residual blocks, an activation and a projection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block1, self.block2, self.block3 = (ResBlock(width, dilation) for dilation in DILATIONS)
        self.act = SnakeBeta(width)
        self.proj = Convolution(width, width, 1, bias=False)

    def forward(self, u: Tensor) -> Tensor:
        u = self.block3(self.block2(self.block1(u)))
        return cast(Tensor, self.proj(self.act(u)))


class UpConvolution(nn.Module):
    """Repetition of each sample `stride` times and a convolution with 2 x stride taps, computed without repeating.

    2 x stride successive repeated samples come from at most three samples. So each of the `stride` outputs of a sample
    is a convolution over three samples, whose weights are sums of the taps that meet the same sample: 2 x stride / 3
    times fewer products. The sums are computed by a product with a matrix of ones and zeros, which compilers fold.
    """

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.weight = nn.Parameter(torch.zeros(after, before, 2 * stride))
        self.sources = FixedTable(tap_sources(stride))

    def forward(self, u: Tensor) -> Tensor:
        after, before, _ = self.weight.shape
        summed = self.weight.flatten(0, 1) @ self.sources().to(u.dtype)
        taps = summed.view(after, before, self.stride, 3).permute(2, 0, 1, 3).flatten(0, 1)
        phases = functional.conv2d(u, taps[:, :, None], padding=(0, 1))
        # The outputs of one sample are adjacent in time: with channels last in memory this copies nothing.
        return phases.unflatten(1, (self.stride, after)).permute(0, 2, 3, 4, 1).flatten(3)


def tap_sources(stride: int) -> np.ndarray:
    """Return the matrix [2 * stride taps, stride outputs * 3 samples] that sums the taps of `UpConvolution`.

    An entry is 1 if the tap of that output meets that sample (the one before, the same or the next). The convolution
    of repeated samples pads `stride` zeros on both sides and drops the first output: tap 0 of output r of a sample is
    at r + 1 - stride, counted in repeated samples from the sample's first.
    """
    sources = np.zeros((2 * stride, stride, 3))
    for output in range(stride):
        for tap in range(2 * stride):
            sources[tap, output, (output + 1 + tap - stride) // stride + 1] = 1.0
    return sources.reshape(2 * stride, 3 * stride)


class UpStage(nn.Module):
    """Upsampling by `stride`, an activation and three residual blocks."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.proj = UpConvolution(before, after, stride)
        self.act = SnakeBeta(after)
        self.block1, self.block2, self.block3 = (ResBlock(after, dilation) for dilation in DILATIONS)

    def forward(self, u: Tensor) -> Tensor:
        u = self.act(self.proj(u))
        return cast(Tensor, self.block3(self.block2(self.block1(u))))


class Decoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        steps = zip(pairwise(config.widths), config.up_strides, strict=True)
        self.conv_in = Convolution(config.latent_channels, config.ch_max, 1, bias=False)
        self.starter = Starter(config.ch_max)
        self.blocks = nn.Sequential(*(UpStage(before, after, stride) for (before, after), stride in steps))
        self.conv_out = Convolution(config.ch_0, config.channels, KERNEL, bias=False)

    def forward(self, z: Tensor) -> Tensor:
        """Decode latents [B, latent channels, latents] to a waveform [B, channels, samples]."""
        return torch.tanh(self.conv_out(self.blocks(self.starter(self.conv_in(z[:, :, None])))))[:, :, 0]


class AudioDecoder(nn.Module):
    """The decoder as the submodule `decoder`, its name in a checkpoint of the whole autoencoder."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.decoder = Decoder(config)

    def forward(self, z: Tensor) -> tuple[Tensor]:
        return (self.decoder(z),)
