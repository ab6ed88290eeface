"""Windows of a signal by `as_strided` from an input in channels_last: its strides decide them (pytorch#174963).

Expected: references, rows and artifacts get the strides that were given; a compiler that drops them is wrong by the
size of the output, and `parity_failed` is true of it.
"""

from typing import Any

import torch
from torch import Tensor, nn


class Windows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        rolled = torch.roll(x, shifts=-1, dims=0)
        made: Tensor = self.layer(torch.as_strided(rolled, (32, 16), (4, 1), 0))
        return made


def model() -> Any:
    return Windows().eval(), {"x": torch.randn(2, 8, 4, 8).to(memory_format=torch.channels_last)}
