"""The generator of a HiFi-GAN whose `weight_norm` was not removed, used once before it is given (executorch#3946).

The old `weight_norm` keeps its weight as a tensor that autograd made: `copy.deepcopy` refuses the module, and so did
export. Expected: swept as it is; the artifacts compute the same.
"""

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

warnings.filterwarnings("ignore", message=".*weight_norm.*", category=FutureWarning)


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.weight_norm
        self.first = norm(nn.Conv1d(20, 32, 7, padding=3))
        self.ups = nn.ModuleList([norm(nn.ConvTranspose1d(32 >> i, 16 >> i, 8, stride=4, padding=2)) for i in range(2)])
        self.blocks = nn.ModuleList([norm(nn.Conv1d(16 >> i, 16 >> i, 3, dilation=3, padding=3)) for i in range(2)])
        self.last = norm(nn.Conv1d(8, 1, 7, padding=3))

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel)
        for up, block in zip(self.ups, self.blocks, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            x = x + block(F.leaky_relu(x, 0.1))
        return torch.tanh(self.last(F.leaky_relu(x)))


def model() -> Any:
    module, mel = Generator().eval(), torch.randn(1, 20, 32)
    module(mel)
    return module, {"mel": mel}
