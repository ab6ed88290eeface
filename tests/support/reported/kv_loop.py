"""A decoder of four steps in a loop, which writes its KV cache through a view of a slice (pytorch#80271).

The exporter to ONNX copied the slice, so that what was written into it was lost. Expected: every backend gives what
eager gives, or says why not; the given cache does not change.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bakeoff

STEPS, HEADS, LONG, WIDE = 4, 4, 16, 16


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(HEADS * WIDE, 3 * HEADS * WIDE), nn.Linear(HEADS * WIDE, HEADS * WIDE)

    def forward(self, x: Tensor, cache: Tensor, start: Tensor) -> dict[str, Tensor]:
        cache, made = cache.clone(), []
        keys, values = cache[0], cache[1]
        for step in range(STEPS):
            q, k, v = self.qkv(x).view(-1, 3, HEADS, 1, WIDE).unbind(1)
            position = start + step
            keys[:, :, position], values[:, :, position] = k, v
            mask = torch.arange(LONG, device=x.device) <= position
            x = x + self.out(F.scaled_dot_product_attention(q, keys, values, mask[None, None, None]).flatten(1))
            made.append(x)
        return {"hidden": torch.stack(made, 1), "cache": cache}


def model() -> Any:
    inputs = {
        "x": torch.randn(1, HEADS * WIDE),
        "cache": torch.randn(2, 1, HEADS, LONG, WIDE),
        "start": torch.tensor([5]),
    }
    return bakeoff.Model(Decoder().eval(), inputs, state={"cache": "cache"}, hold=("start",))
