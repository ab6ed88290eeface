"""Arithmetic of the toy loop; tokens T, channels C. `spin` stands for work of a known length."""

import time

import torch
from torch import Tensor


def zeros(_session: int, _unit: int, _draw: object, shape: tuple[int, ...]) -> Tensor:
    """The state that a session starts with."""
    return torch.zeros(shape)


def levels(like: Tensor, *values: float) -> tuple[Tensor, ...]:
    """Inputs `t` [1, 1] of the world, one for each noise level, at least fp32, on the device of `like`."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return tuple(torch.full((1, 1), value, dtype=dtype, device=like.device) for value in values)


def euler(x: Tensor, velocity: Tensor, dt: float) -> Tensor:
    """A step of the sampler on x [1, T, C]."""
    return x - dt * velocity


def latent(x: Tensor) -> Tensor:
    """x [1, T, C] as a latent frame [1, 1, C, T, T] with equal columns."""
    column = x.transpose(1, 2)[:, None, :, :, None]
    return column.expand(*column.shape[:-1], x.shape[1]).contiguous()


def present(video: Tensor) -> Tensor:
    """Video in -1 to 1 as bytes on the host."""
    return video.add(1).mul_(127.5).clamp_(0, 255).to(torch.uint8).cpu()


def spin(milliseconds: float) -> tuple[()]:
    """Keep the host busy for this time; makes no value."""
    end = time.perf_counter_ns() + round(milliseconds * 1e6)
    while time.perf_counter_ns() < end:
        pass
    return ()
