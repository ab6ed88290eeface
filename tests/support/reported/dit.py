"""A diffusion transformer in bf16 whose norms and tables of modulation the author left in fp32 (diffusers#13918).

Cast to one dtype it is another model; where a table is not cast where it is used, the next layer gets fp32. Expected:
swept as it was given, its baseline in the same precision, and no row accused of what the author's own casts do.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DIM, HEADS = 64, 4


class Float32LayerNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x.float(), self.normalized_shape, self.weight, self.bias, self.eps).to(x.dtype)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = Float32LayerNorm(DIM), Float32LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.feed = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU("tanh"), nn.Linear(4 * DIM, DIM))
        self.scale_shift_table = nn.Parameter(torch.randn(4, DIM) / DIM**0.5)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        scale1, shift1, scale2, shift2 = (self.scale_shift_table[None] + t.float()).to(x.dtype).unbind(1)
        q, k, v = (
            self.qkv(self.norm1(x) * (1 + scale1) + shift1).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        )
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        made: Tensor = x + self.feed(self.norm2(x) * (1 + scale2) + shift2)
        return made


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.blocks = nn.Linear(16, DIM), nn.ModuleList([Block() for _ in range(2)])
        self.time, self.head = nn.Linear(32, DIM), nn.Linear(DIM, 16)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        angles = t.float()[:, None] * torch.exp(-torch.arange(16, device=t.device) * 0.5)
        hidden, t = self.embed(x), self.time(torch.cat([angles.sin(), angles.cos()], -1).to(x.dtype))
        for block in self.blocks:
            hidden = block(hidden, t[:, None])
        made: Tensor = self.head(hidden)
        return made


def model() -> Any:
    module = Transformer().eval().to(torch.bfloat16)
    for name, parameter in module.named_parameters():
        if "norm" in name or "table" in name:
            parameter.data = parameter.data.float()
    return module, {"x": torch.randn(1, 64, 16, dtype=torch.bfloat16), "t": torch.tensor([937.5])}
