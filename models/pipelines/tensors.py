"""Arithmetic that loops share."""

import torch
from torch import Tensor


def wide(values: Tensor) -> Tensor:
    """Cast to fp32 if narrower, so that a hand-over rounds once: to the dtype of the next program."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def pixels(video: Tensor) -> Tensor:
    """Video in -1 to 1 as bytes on the host."""
    return wide(video).add(1).mul_(127.5).clamp_(0, 255).to(torch.uint8).cpu()
