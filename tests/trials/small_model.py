"""The small models of the trials of hosts and times: six layers of a convolution or a matrix, a norm and gelu each."""

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


def linear() -> Any:
    import torch
    from torch import nn

    layers = [layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.GELU())]
    return nn.Sequential(*layers).eval(), {"input": torch.randn(32, 1024)}
