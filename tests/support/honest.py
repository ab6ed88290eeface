"""Factories of small honest models, one of each kind whose rows or exports have been judged wrongly somewhere.

Their inputs are named, and weights and inputs come from torch's global generator: seed 0 makes those of a sweep.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def tiny() -> Any:
    """Calls of microseconds."""
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)).eval(), {"input": torch.randn(2, 8)}


class Complex(nn.Module):
    """Rotary positions as a complex buffer."""

    turn: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.register_buffer("turn", torch.polar(torch.ones(16, 32), torch.rand(16, 32) * 6))

    def forward(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(self.layer(x).float().unflatten(-1, (32, 2)).contiguous())
        return torch.view_as_real(pairs * self.turn).flatten(-2).type_as(x)


def complex_numbers() -> Any:
    return Complex().eval(), {"x": torch.randn(4, 16, 64)}


class Filter(nn.Module):
    """A learned filter in the spectrum."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.layer = nn.Parameter(torch.rand(65)), nn.Linear(128, 128)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layer(torch.fft.irfft(torch.fft.rfft(x) * self.gain, n=128))
        return made


def fft() -> Any:
    return Filter().eval(), {"x": torch.randn(16, 128)}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.LSTM(32, 64, num_layers=2, batch_first=True), nn.Linear(64, 32)

    def forward(self, x: Tensor, hidden: Tensor, cell: Tensor) -> dict[str, Tensor]:
        made, (hidden, cell) = self.body(x, (hidden, cell))
        return {"y": self.head(made), "hidden": hidden, "cell": cell}


def lstm() -> Any:
    return Recurrent().eval(), {
        "x": torch.randn(2, 24, 32),
        "hidden": torch.randn(2, 2, 64),
        "cell": torch.randn(2, 2, 64),
    }


class Messages(nn.Module):
    """A layer of a graph network: messages along edges, summed at their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(64, 32), nn.Linear(64, 32)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        first, last = edges
        sent = torch.relu(self.message(torch.cat([nodes[first], nodes[last]], -1)))
        got = torch.zeros_like(nodes).scatter_add(0, last[:, None].expand_as(sent), sent)
        made: Tensor = self.update(torch.cat([nodes, got], -1))
        return made


def scatter() -> Any:
    return Messages().eval(), {"nodes": torch.randn(50, 32), "edges": torch.randint(0, 50, (2, 200))}


class Sorted(nn.Module):
    """The best of many by score, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.layer = nn.Linear(32, 1), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        scores, order = self.score(x).squeeze(-1).sort(-1, descending=True)
        return {"best": self.layer(x.gather(1, order[:, :16, None].expand(-1, -1, 32))), "scores": scores}


def sort() -> Any:
    return Sorted().eval(), {"x": torch.randn(2, 64, 32)}


class Mixed(nn.Module):
    """Layers in bf16, the norm between them in fp32."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(64, 256), nn.LayerNorm(256), nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.last(F.gelu(self.norm(self.first(x).float())).to(x.dtype))
        return made


def mixed_precision() -> Any:
    module = Mixed().eval()
    module.first.to(torch.bfloat16)
    module.last.to(torch.bfloat16)
    return module, {"x": torch.randn(32, 64).to(torch.bfloat16)}


class Camera(nn.Module):
    """Bytes of a picture, normalised inside."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.SiLU(), nn.Conv2d(16, 8, 3, padding=1))

    def forward(self, picture: Tensor) -> Tensor:
        made: Tensor = self.body(picture.to(self.body[0].weight.dtype) / 127.5 - 1)
        return made


def uint8() -> Any:
    return Camera().eval(), {"picture": torch.randint(0, 256, (1, 3, 48, 48), dtype=torch.uint8)}


def channels_last() -> Any:
    layers = nn.Conv2d(8, 32, 3, padding=1), nn.BatchNorm2d(32), nn.SiLU(), nn.Conv2d(32, 32, 1), nn.PixelShuffle(2)
    module = nn.Sequential(*layers).eval().to(memory_format=torch.channels_last)
    return module, {"input": torch.randn(1, 8, 32, 32).to(memory_format=torch.channels_last)}


class Tied(nn.Module):
    """One matrix embeds words and scores them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(500, 64), nn.Linear(64, 64)
        self.head = nn.Linear(64, 500, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        made: Tensor = self.head(torch.tanh(self.layer(self.embed(ids))))
        return made


def tied() -> Any:
    return Tied().eval(), {"ids": torch.randint(0, 500, (2, 16))}


class Attention(nn.Module):
    """The first call of a stream: its cache has length 0."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: Tensor, past: Tensor) -> dict[str, Tensor]:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        present = torch.cat([past, torch.stack([k, v])], 3)
        made = F.scaled_dot_product_attention(q, present[0], present[1])
        return {"y": self.out(made.transpose(1, 2).flatten(2)), "present": present}


def empty_cache() -> Any:
    return Attention().eval(), {"x": torch.randn(1, 8, 64), "past": torch.randn(2, 1, 4, 0, 16)}


class Scan(nn.Module):
    """A gated running sum, as of linear attention."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.gate = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        gates = torch.sigmoid(self.gate(x))
        return (self.value(x) * gates).cumsum(1) / (gates.cumsum(1) + 1)


def scan() -> Any:
    return Scan().eval(), {"x": torch.randn(2, 64, 32)}


class Masked(nn.Module):
    """Scores of words, minus infinity where a word is not allowed."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 200)

    def forward(self, x: Tensor, allowed: Tensor) -> Tensor:
        made: Tensor = self.head(x).masked_fill(~allowed, float("-inf"))
        return made


def infinities() -> Any:
    return Masked().eval(), {"x": torch.randn(8, 64), "allowed": torch.rand(200) > 0.2}
