"""Rotary tables that the module keeps from its first call, until length, dtype or device change (xformers#728).

They are plain attributes, which no cast reaches, and a call changes them without changing what it returns. Expected:
no state to complain of; references in fp64 get tables in fp64.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Rotary(nn.Module):
    def __init__(self, wide: int) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 10000 ** (-torch.arange(0, wide, 2) / wide), persistent=False)
        self.kept: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.kept is None or self.kept[0].shape[0] != x.shape[-2] or self.kept[0].dtype != x.dtype:
            angles = torch.arange(x.shape[-2], device=x.device)[:, None] * self.inv_freq.repeat(2)
            self.kept = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        cos, sin = self.kept
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat([-second, first], -1) * sin


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.rotary = nn.Linear(64, 192), nn.Linear(64, 64), Rotary(16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        made = F.scaled_dot_product_attention(self.rotary(q), self.rotary(k), v, is_causal=True)
        out: Tensor = self.out(made.transpose(1, 2).flatten(2))
        return out


def model() -> Any:
    return Attention().eval(), {"x": torch.randn(1, 32, 64)}
