"""Conversions of tensors that the loops of pipelines share."""

import torch
from torch import Tensor


def wide(values: Tensor) -> Tensor:
    """Return the values in fp32 if narrower, so that they are rounded only once, to the dtype of the next program."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def pixels(video: Tensor) -> Tensor:
    """Return video in -1 to 1 as bytes 0 to 255 on the host."""
    return wide(video).add(1).mul_(127.5).clamp_(0, 255).to(torch.uint8).cpu()
