"""A module that allocates more memory than there is."""

import torch
from torch import Tensor, nn

from bakeoff.models.toy.network import Toy
from bakeoff.models.toy.spec import Config


class Greedy(Toy):
    def forward(self, *_tensors: Tensor) -> tuple[Tensor, ...]:
        return (torch.empty(1 << 48, dtype=torch.uint8),)


def build(config: Config, workload: str, _batch: int = 1) -> nn.Module:
    return Greedy(config, workload).eval()
