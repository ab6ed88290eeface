"""A denoiser that takes whole timesteps and casts them to its own dtype before the sinusoid (DiffSynth-Studio#562).

In bf16, 937 becomes 936, and the sinusoid another one. Expected: fp32 rows as any others; in bf16 it is said that the
model itself does not survive the dtype, and no compiler is accused of it.
"""

from typing import Any

import torch
from torch import Tensor, nn


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rates", torch.exp(-torch.arange(32) * 0.25), persistent=False)
        self.time = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 32))
        nn.init.normal_(self.time[2].weight)  # as after training: the step decides much
        self.first, self.last = nn.Conv2d(4, 32, 3, padding=1), nn.Conv2d(32, 4, 3, padding=1)

    def forward(self, sample: Tensor, timestep: Tensor) -> Tensor:
        angles = timestep.to(sample.dtype)[:, None] * self.rates
        embedded = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        made: Tensor = self.last(torch.relu(self.first(sample) + embedded[:, :, None, None]))
        return made


def model() -> Any:
    return Denoiser().eval(), {"sample": torch.randn(2, 4, 16, 16), "timestep": torch.tensor([937, 833])}
