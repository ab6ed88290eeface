"""Glue of the toy loop, and of its faults."""

from collections.abc import Callable

import torch
from torch import Tensor

from bakeoff.models.pipelines.toy.glue import euler, latent, levels, present, spin, zeros

__all__ = ["euler", "latent", "levels", "noise_or_nan", "present", "roll", "same", "spin", "zeros"]
FIRST_NAN = 9
"""Unit."""


def roll(x: Tensor) -> Tensor:
    """The tokens of x [1, T, C], each in the place of the next."""
    return x.roll(1, 1)


def same(value: Tensor) -> Tensor:
    return value.clone()


def noise_or_nan(_session: int, unit: int, draw: Callable[..., Tensor]) -> Tensor:
    """The noise of the toy loop, and NaN from one unit on."""
    value = draw(f"noise:{unit}", (1, 16, 32), "normal")
    return value if unit < FIRST_NAN else torch.full_like(value, torch.nan)
