"""The network of `ranged`, and its kernels, which are attributes, so that an engine can have others."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from ranged import WIDE, WIDTH, Config
from torch import Tensor, nn


class Ranged(nn.Module):
    def __init__(self, workload: str) -> None:
        super().__init__()
        self.workload = workload
        self.first = nn.Linear(WIDE if workload == "norm" else WIDTH, WIDTH, bias=False)
        if workload == "attend":
            self.keys, self.values = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.softmax: Callable[[Tensor], Tensor] = lambda scores: scores.softmax(-1)
        self.norm: Callable[[Tensor], Tensor] = lambda x: F.layer_norm(x, x.shape[-1:])
        self.gate: Callable[[Tensor], Tensor] = F.silu
        self.rounded: Callable[[Tensor], Tensor] = lambda x: x
        self.product: Callable[[Tensor, nn.Linear], Tensor] = lambda x, layer: layer(x)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        if self.workload == "attend":
            queries, keys, values = self.first(x), self.keys(x), self.values(x)
            return (self.softmax(queries @ keys.transpose(-1, -2) / WIDTH**0.5) @ values,)
        if self.workload == "norm":
            x = self.norm(x)
        elif self.workload == "gate":
            x = self.gate(x)
        product = self.product(self.rounded(x), self.first)
        return (product.clamp(-4.0, 4.0) if self.workload == "bounded" else product,)


def build(_config: Config, workload: str, _batch: int = 1) -> nn.Module:
    return Ranged(workload).eval()


def _clipped_mass(scores: Tensor) -> Tensor:
    mass = scores.exp().clamp(max=400.0)
    return mass / mass.sum(-1, keepdim=True)


def _without_maximum(scores: Tensor) -> Tensor:
    mass = scores.exp()
    return mass / mass.sum(-1, keepdim=True)


def _sum_in_half(scores: Tensor) -> Tensor:
    mass = scores.float().exp()
    return (mass / mass.half().sum(-1, keepdim=True).float()).to(scores.dtype)


def _by_squares(x: Tensor) -> Tensor:
    mean, square = x.mean(-1, keepdim=True), x.square().mean(-1, keepdim=True)
    return (x - mean) * (square - mean.square() + 1e-5).rsqrt()


def _squares_in_half(x: Tensor) -> Tensor:
    wide = x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    squares = centred.half().square().sum(-1, keepdim=True).float()
    return (centred * (squares / x.shape[-1] + 1e-5).rsqrt()).to(x.dtype)


def _table_to_4(x: Tensor) -> Tensor:
    return F.silu(x.clamp(-4.0, 4.0))


def _quantised(x: Tensor, largest: Tensor) -> Tensor:
    step = largest / 127
    return (x / step).round().clamp(-127, 127) * step


def _int8_without_outliers(x: Tensor) -> Tensor:
    return _quantised(x, 6 * x.abs().median(-1, keepdim=True).values)


def _scale_of_the_batch(x: Tensor) -> Tensor:
    return _quantised(x, x.abs().max())


def _fixed_point(x: Tensor) -> Tensor:
    return (x * 8).round() / 8


def _static_range(x: Tensor) -> Tensor:
    return _quantised(x, torch.tensor(4.0))


def _last_item_in_less(x: Tensor, layer: nn.Linear) -> Tensor:
    products: Tensor = layer(x)
    products[-1] *= 1 + 2.5e-4
    return products


PLANTED = {
    "clipped mass": ("softmax", _clipped_mass),
    "no maximum": ("softmax", _without_maximum),
    "sum in half": ("softmax", _sum_in_half),
    "variance by squares": ("norm", _by_squares),
    "squares in half": ("norm", _squares_in_half),
    "table to 4": ("gate", _table_to_4),
    "int8 without outliers": ("rounded", _int8_without_outliers),
    "scale of the batch": ("rounded", _scale_of_the_batch),
    "fixed point": ("rounded", _fixed_point),
    "static range": ("rounded", _static_range),
    "last item in less": ("product", _last_item_in_less),
}
"""The attribute that each fault replaces, and its kernel."""
