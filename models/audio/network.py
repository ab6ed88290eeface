"""The modules of the audio decoder: owl.md 3, in the forms of tensorrt.md 2.

Shapes: B batch, C channels, T samples. Parameter names and shapes are those of the published checkpoints, hence the one
submodule `decoder`.
"""

from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from bakeoff.models.audio.spec import DILATIONS, GROUP_WIDTH, KERNEL, Config, workload


def build(config: Config, workload_name: str, batch: int = 1) -> nn.Module:
    """The decoder in eval mode and fp32; its forward takes z and returns a tuple of the waveform.

    Raises BakeoffError for an unknown workload or a batch below one; `batch` changes no module.
    """
    workload(config, workload_name, batch)
    return AudioDecoder(config).eval()


def initial_std(name: str, shape: tuple[int, ...]) -> float | None:
    """A tenth of the usual for the last convolution: features grow to 4 or 5 and would saturate the tanh.

    With it the waveform's root mean square is 0.2 to 0.6; without, half of the samples are beyond 0.99.
    """
    return 0.1 * (shape[1] * shape[2]) ** -0.5 if name == "decoder.conv_out.weight" else None


class SnakeBeta(nn.Module):
    """u + sin^2(u (1 + alpha)) / exp(beta), alpha and beta of each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def forward(self, u: Tensor) -> Tensor:
        sine = torch.sin(u * (1 + self.alpha)[:, None])
        return u + sine * sine * (1 / (self.beta.exp() + 1e-6))[:, None]


class TimeRMS(nn.Module):
    """Divide each channel by its root mean square over TIME: every sample sees the whole window (owl.md 3.2).

    Gain and reciprocal root are one factor a channel, computed in fp32 or better and rounded once.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(width))

    def forward(self, u: Tensor) -> Tensor:
        full = u.to(torch.promote_types(u.dtype, torch.float32))
        mean_square = (full * full).mean(-1, keepdim=True)
        factor = torch.rsqrt(mean_square + 1e-6) * (1 + self.gain.to(full.dtype))[:, None]
        return u * factor.to(u.dtype)


class ResBlock(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        inner = 2 * width
        self.conv1 = nn.Conv1d(width, inner, 1)
        self.norm1 = TimeRMS(inner)
        self.act1 = SnakeBeta(inner)
        self.conv2 = nn.Conv1d(
            inner, inner, KERNEL, padding=KERNEL // 2 * dilation, dilation=dilation, groups=inner // GROUP_WIDTH
        )
        self.norm2 = TimeRMS(inner)
        self.act2 = SnakeBeta(inner)
        self.conv3 = nn.Conv1d(inner, width, 1, bias=False)

    def forward(self, u: Tensor) -> Tensor:
        inner = self.act1(self.norm1(self.conv1(u)))
        inner = self.act2(self.norm2(self.conv2(inner)))
        return u + cast(Tensor, self.conv3(inner))


class Starter(nn.Module):
    """Blocks, activation, projection; an up stage has them in another order."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block1, self.block2, self.block3 = (ResBlock(width, dilation) for dilation in DILATIONS)
        self.act = SnakeBeta(width)
        self.proj = nn.Conv1d(width, width, 1, bias=False)

    def forward(self, u: Tensor) -> Tensor:
        u = self.block3(self.block2(self.block1(u)))
        return cast(Tensor, self.proj(self.act(u)))


class UpStage(nn.Module):
    """Each sample `stride` times, a convolution over 2 x stride of them, activation, blocks."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        # Padded by stride on both sides; forward drops the first of T + 1 samples, which leaves stride - 1 on the left.
        self.proj = nn.Conv1d(before, after, 2 * stride, padding=stride, bias=False)
        self.act = SnakeBeta(after)
        self.block1, self.block2, self.block3 = (ResBlock(after, dilation) for dilation in DILATIONS)

    def forward(self, u: Tensor) -> Tensor:
        batch, width, samples = u.shape
        repeated = u[..., None].expand(batch, width, samples, self.stride).reshape(batch, width, samples * self.stride)
        u = self.act(self.proj(repeated)[..., 1:])
        return cast(Tensor, self.block3(self.block2(self.block1(u))))


class Decoder(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        steps = zip(pairwise(config.widths), config.up_strides, strict=True)
        self.conv_in = nn.Conv1d(config.latent_channels, config.ch_max, 1, bias=False)
        self.starter = Starter(config.ch_max)
        self.blocks = nn.Sequential(*(UpStage(before, after, stride) for (before, after), stride in steps))
        self.conv_out = nn.Conv1d(config.ch_0, config.channels, KERNEL, padding=KERNEL // 2, bias=False)

    def forward(self, z: Tensor) -> Tensor:
        """[B, latent channels, latents] to [B, channels, samples]."""
        return torch.tanh(self.conv_out(self.blocks(self.starter(self.conv_in(z)))))


class AudioDecoder(nn.Module):
    """The decoder under the name that it has in a checkpoint of the whole autoencoder."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.decoder = Decoder(config)

    def forward(self, z: Tensor) -> tuple[Tensor]:
        return (self.decoder(z),)
