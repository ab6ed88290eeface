"""The model of other_timer.py: convolutions and a linear layer, some milliseconds a call."""

import torch
from torch import Tensor, nn


def model() -> tuple[nn.Module, dict[str, Tensor]]:
    network = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    return network.eval(), {"input": torch.randn(1, 3, 128, 128)}
