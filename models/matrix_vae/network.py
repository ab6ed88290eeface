"""The modules of the streaming decoder of Matrix-Game-2, written with operators that every compiler converts.

Between layers a tensor is [B, T, C, H, W], so that it becomes pictures [B * T, C, H, W] without a copy. A causal
convolution is one conv2d over the channels of three successive frames: it does the same products as a conv3d, with one
accumulation, and is several times as fast as ATen's fp32 conv3d on a CPU. Caches are [B, C, 2, H, W]. Each causal layer
takes its cache from the iterator `old` and appends the new one to the list `new`, in the order of
`spec.causal_layers`.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bakeoff.models.matrix_vae.spec import CACHED_FRAMES, LATENT_MEAN, LATENT_STD, Config, workload
from bakeoff.models.tables import FixedTable


def build(config: Config, workload_name: str, batch: int = 1) -> nn.Module:
    """Return the decoder for one workload, in eval mode and fp32; its weights are zeros until they are loaded or drawn.

    Raises BakeoffError for an unknown workload.
    """
    workload(config, workload_name, batch)
    return StreamingDecoder(config, first=workload_name == "prime").eval()


class StreamingDecoder(nn.Module):
    def __init__(self, config: Config, first: bool) -> None:
        super().__init__()
        self.conv2 = LatentMap(config.z_dim)
        self.decoder = Decoder(config, first)

    def forward(self, z: Tensor, *caches: Tensor) -> tuple[Tensor, ...]:
        """Decode latents [B, n, 16, h, w] with all caches to video in [-1, 1], fp32 or better, and all new caches."""
        new: list[Tensor] = []
        video = self.decoder(self.conv2(z), iter(caches), new)
        return _fp32_or_better(video).clamp(-1, 1), *new


class Decoder(nn.Module):
    def __init__(self, config: Config, first: bool) -> None:
        super().__init__()
        channels = config.stage_channels
        width = channels[0]
        self.conv1 = CausalConvolution(config.z_dim, width)
        self.middle = nn.ModuleList([Residual(width, width), Attention(width), Residual(width, width)])
        self.upsamples = nn.ModuleList()
        for stage, outputs in enumerate(channels):
            for _ in range(config.num_res_blocks + 1):
                self.upsamples.append(Residual(width, outputs))
                width = outputs
            if stage < len(channels) - 1:
                self.upsamples.append(Upsample(width, config.temporal_upsample[stage], first))
                width //= 2
        self.head = NormedConvolutions({"0": RMSNorm(width, 3), "2": CausalConvolution(width, 3)})

    def forward(self, x: Tensor, old: Iterator[Tensor], new: list[Tensor]) -> Tensor:
        before, attention, after = self.middle
        x = attention(before(self.conv1(x, old, new), old, new))
        for block in (after, *self.upsamples, self.head):
            x = block(x, old, new)
        return x


class LatentMap(nn.Module):
    """Denormalisation of latents and a 1x1x1 convolution, as one convolution with weights folded in fp32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, width, 1, 1, 1))
        self.bias = nn.Parameter(torch.zeros(width))
        self.mean = FixedTable(np.array(LATENT_MEAN))
        self.std = FixedTable(np.array(LATENT_STD))

    def forward(self, z: Tensor) -> Tensor:
        weight = self.weight[:, :, 0, 0, 0]
        bias = self.bias + (weight * self.mean()).sum(1)
        folded = (weight * self.std())[:, :, None, None]
        return functional.conv2d(z.flatten(0, 1), folded.to(z.dtype), bias.to(z.dtype)).view(z.shape)


class CausalConvolution(nn.Module):
    """Convolution with kernel (3, side, side): an output frame depends on its input frame and the two before it.

    The cache contains the two input frames before the first of this call.
    """

    def __init__(self, inputs: int, outputs: int, side: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs, CACHED_FRAMES + 1, side, side))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor, old: Iterator[Tensor], new: list[Tensor]) -> Tensor:
        frames = x.shape[1]
        past = torch.cat((next(old), x.transpose(1, 2)), 2)
        new.append(past[:, :, -CACHED_FRAMES:].clone(memory_format=torch.contiguous_format))
        if frames > 1:
            seen = past.transpose(1, 2)
            taps = [seen[:, tap : tap + frames] for tap in range(CACHED_FRAMES + 1)]
            past = torch.stack(taps, 3).flatten(0, 1)
        weight = self.weight.flatten(1, 2)
        y = functional.conv2d(past.flatten(1, 2), weight, self.bias, padding=weight.shape[-1] // 2)
        return _frames(y, x)


class RMSNorm(nn.Module):
    """Root-mean-square norm over the channels of each pixel of [N, C, H, W].

    Squares are summed in fp32 or better, because they overflow in fp16.
    """

    def __init__(self, width: int, trailing: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(width, *(1,) * trailing))

    def forward(self, x: Tensor) -> Tensor:
        full = _fp32_or_better(x)
        # The factor of a vector of zeros must be finite in x's dtype, or their product is NaN; fp16's maximum is 65504.
        epsilon = 3e-10 if x.dtype == torch.float16 else 1e-24
        factor = torch.rsqrt((full * full).mean(1, keepdim=True) + epsilon)
        return x * factor.to(x.dtype) * self.gamma.view(-1, 1, 1)


class NormedConvolutions(nn.ModuleDict):
    """A sequence of norms, each with a SiLU, and causal convolutions. Names are those of the published checkpoints."""

    def forward(self, x: Tensor, old: Iterator[Tensor], new: list[Tensor]) -> Tensor:
        for layer in self.values():
            if isinstance(layer, RMSNorm):
                x = functional.silu(layer(x.flatten(0, 1))).view(x.shape)
            else:
                x = layer(x, old, new)
        return x


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.residual = NormedConvolutions(
            {
                "0": RMSNorm(inputs, 3),
                "2": CausalConvolution(inputs, outputs),
                "3": RMSNorm(outputs, 3),
                "6": CausalConvolution(outputs, outputs),
            }
        )
        self.shortcut = Shortcut(inputs, outputs) if inputs != outputs else nn.Identity()

    def forward(self, x: Tensor, old: Iterator[Tensor], new: list[Tensor]) -> Tensor:
        return self.residual(x, old, new) + self.shortcut(x)


class Shortcut(nn.Module):
    """A 1x1x1 convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs, 1, 1, 1))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.conv2d(x.flatten(0, 1), self.weight[:, :, 0], self.bias)
        return _frames(y, x)


class Attention(nn.Module):
    """Self-attention within each frame, with one head of all channels; the input is added to the result."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = RMSNorm(width, 2)
        self.to_qkv = nn.Conv2d(width, 3 * width, 1)
        self.proj = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        pictures = x.flatten(0, 1)
        positions = self.to_qkv(self.norm(pictures)).flatten(2).transpose(1, 2)[:, None]
        query, key, value = positions.chunk(3, -1)
        attended = functional.scaled_dot_product_attention(query, key, value)
        attended = attended[:, 0].transpose(1, 2).reshape(pictures.shape)
        return x + self.proj(attended).view(x.shape)


class Upsample(nn.Module):
    """Upsampling by two of height and width and, with `doubles_time`, of the frames, except the first of a stream."""

    def __init__(self, width: int, doubles_time: bool, first: bool) -> None:
        super().__init__()
        self.resample = nn.ModuleDict({"1": nn.Conv2d(width, width // 2, 3, padding=1)})
        self.time_conv = CausalConvolution(width, 2 * width, 1) if doubles_time else None
        self.first = first

    def forward(self, x: Tensor, old: Iterator[Tensor], new: list[Tensor]) -> Tensor:
        if self.time_conv is not None and self.first:
            new.append(next(old).clone())
        elif self.time_conv is not None:
            # The first half of the channels is the earlier of two frames.
            x = self.time_conv(x, old, new).unflatten(2, (2, -1)).flatten(1, 2)
        pictures = x.flatten(0, 1)
        count, width, height, length = pictures.shape
        doubled = pictures[:, :, :, None, :, None].expand(count, width, height, 2, length, 2)
        return _frames(self.resample["1"](doubled.reshape(count, width, 2 * height, 2 * length)), x)


def _fp32_or_better(x: Tensor) -> Tensor:
    """Return `x` in fp32; fp64 stays fp64."""
    return x if x.dtype == torch.float64 else x.to(torch.float32)


def _frames(pictures: Tensor, like: Tensor) -> Tensor:
    """Return pictures [B * T, C, H, W] as [B, T, C, H, W], with the B and T of `like`."""
    return pictures.view(*like.shape[:2], *pictures.shape[1:])
