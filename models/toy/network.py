"""The modules of the toy component, with each kind of layer that the real components have."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bakeoff.models.toy.spec import Config


class Toy(nn.Module):
    """The weights of all four workloads; `forward` computes the one of `workload`."""

    def __init__(self, config: Config, workload: str) -> None:
        super().__init__()
        width = config.width
        self.world = nn.Linear(width, 4 * width, bias=False)
        self.picture = nn.ModuleList(
            [nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1, bias=False)]
        )
        self.sound = nn.ModuleList(
            [nn.Conv1d(width, width, 7, padding=3), nn.Conv1d(width, 2, 7, padding=3, bias=False)]
        )
        self.stream = nn.Conv3d(width, 3, 3, padding=(0, 1, 1))
        forwards: dict[str, Callable[..., tuple[Tensor, ...]]] = {
            "world": self._world,
            "picture": self._picture,
            "sound": self._sound,
            "stream": self._stream,
        }
        self._forward = forwards[workload]

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return self._forward(*tensors)

    def _world(self, x: Tensor, t: Tensor, cache_k: Tensor, cache_v: Tensor) -> tuple[Tensor]:
        query, key, value, gate = self.world(x).chunk(4, dim=-1)
        keys, values = torch.cat((cache_k, key), 1), torch.cat((cache_v, value), 1)
        attended = F.scaled_dot_product_attention(query[:, None], keys[:, None], values[:, None])[:, 0]
        phase = torch.sin(100.0 * t).to(x.dtype)[:, None]
        return (x + attended * gate + phase,)

    def _picture(self, z: Tensor) -> tuple[Tensor]:
        hidden = F.silu(self.picture[0](z))
        batch, width, height, length = hidden.shape
        doubled = hidden[:, :, :, None, :, None].expand(batch, width, height, 2, length, 2)
        return (self.picture[1](doubled.reshape(batch, width, 2 * height, 2 * length)),)

    def _sound(self, z: Tensor) -> tuple[Tensor]:
        batch, width, length = z.shape
        stretched = z[..., None].expand(batch, width, length, 4).reshape(batch, width, 4 * length)
        return (torch.tanh(self.sound[1](F.silu(self.sound[0](stretched)))),)

    def _stream(self, z: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        frames = torch.cat((cache, z.transpose(1, 2)), 2)
        video = self.stream(frames).transpose(1, 2).clamp(-1, 1)
        return video.to(torch.promote_types(video.dtype, torch.float32)), frames[:, :, -2:].clone()


def build(config: Config, workload: str, _batch: int = 1) -> nn.Module:
    """Return the toy for one workload, in eval mode and fp32; `_batch` does not affect it."""
    return Toy(config, workload).eval()
