"""The small model of the trials of hosts and times: six layers of a convolution, a norm and gelu."""

from typing import Any


def small() -> Any:
    import torch
    from torch import nn

    layers = [
        layer
        for _ in range(6)
        for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.GELU(approximate="tanh"))
    ]
    return nn.Sequential(*layers).eval(), {"input": torch.randn(1, 16, 32, 32)}
