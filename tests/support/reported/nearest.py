"""The nearest neighbours of points on a grid: distances, and indices that ties leave open (onnxruntime#19759).

Engines order equal distances differently, so that indices differ where both are right. Expected: distances are
compared by error, indices as indices; a row that orders ties in its own way is told so, not that it computes
something else.
"""

from typing import Any

import torch
from torch import Tensor, nn


class Nearest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(2, 2, bias=False)
        nn.init.eye_(self.embed.weight)

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        placed = self.embed(points)
        squared = (placed[:, :, None] - placed[:, None]).square().sum(-1)
        distances, indices = squared.topk(4, largest=False)
        return distances, indices


def model() -> Any:
    grid = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0))[None]
    return Nearest().eval(), {"points": grid}
