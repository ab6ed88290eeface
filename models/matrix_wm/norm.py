"""Norms of the Matrix-Game-2 world model; sums are in fp32 or better."""

import torch
from torch import Tensor, nn
from torch.nn import functional

EPSILON = 1e-6


def normalize_rms(u: Tensor) -> Tensor:
    """Divide by the root mean square over the last axis."""
    full = u.to(torch.promote_types(u.dtype, torch.float32))
    return (full * torch.rsqrt((full * full).mean(-1, keepdim=True) + EPSILON)).to(u.dtype)


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, u: Tensor) -> Tensor:
        return normalize_rms(u) * self.weight


def modulate(u: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """Layer norm without learned gains, then a scale and a shift of each frame."""
    return functional.layer_norm(u, u.shape[-1:], eps=EPSILON) * (1 + scale) + shift
