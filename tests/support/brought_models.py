"""Factories of small models, each with one thing that a user's model may have."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import bakeoff


class Picture(nn.Module):
    """Convolutions with BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.body(x)
        return made


def picture() -> Any:
    return Picture().eval(), {"x": torch.randn(1, 3, 16, 16)}


def positional() -> Any:
    return Picture().eval(), torch.randn(1, 3, 16, 16)


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(100, 32), nn.Linear(32, 100)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        hidden = self.embedding(ids)
        if mask is not None:
            hidden = hidden * mask[..., None]
        logits = self.head(hidden.cumsum(1))
        return {"logits": logits, "best": logits.argmax(-1)}


def language() -> Any:
    return Language().eval(), {"ids": torch.randint(0, 100, (1, 16)), "mask": torch.ones(1, 16, dtype=torch.bool)}


@dataclass
class Result:
    hidden: Tensor
    parts: dict[str, Any]


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


class Structured(nn.Module):
    """Nested arguments, a keyword-only one, and a dataclass with a named tuple in it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, batch: dict[str, Tensor], scale: float = 1.0, *, flag: bool = True) -> Result:
        hidden = self.layer(batch["x"]) * scale
        return Result(hidden, {"pair": Pair(hidden + 1, batch["x"] * 2), "none": None, "flag": flag})


def structured() -> Any:
    return Structured().eval(), {"batch": {"x": torch.randn(2, 8)}, "scale": 0.5, "flag": False}


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        present = torch.tanh(self.layer(x) + past)
        return present * 2, present


def several() -> Any:
    sets = {"long": {"x": torch.randn(1, 3, 16, 16)}, "short": {"x": torch.randn(1, 3, 8, 8)}}
    return bakeoff.Model(Picture().eval(), sets=sets)


def recorded() -> Any:
    calls = [{"x": torch.full((1, 3, 16, 16), float(number)) + torch.randn(1, 3, 16, 16)} for number in range(6)]
    return bakeoff.Model(Picture().eval(), calls[0], more=calls[1:])


class Offsets(nn.Module):
    """Takes integers that must ascend, so that no others of them can be drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)

    def forward(self, x: Tensor, offsets: Tensor) -> Tensor:
        if not bool((offsets[1:] >= offsets[:-1]).all()):
            raise ValueError("offsets must ascend")
        made: Tensor = self.embedding(offsets) + x
        return made


def offsets() -> Any:
    return Offsets().eval(), {"x": torch.randn(4, 8), "offsets": torch.arange(4)}


class Wide(nn.Module):
    """Reads the bits of fp32 values, so that it computes in fp32 alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layer(x)
        return made * (1 + (made.view(torch.int32) & 1).view(2, 8))


def fp32_alone() -> Any:
    return Wide().eval(), torch.randn(2, 8)


class Upcast(nn.Module):
    """Its second output is fp32 in any dtype, its third depends on no input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.layer(x)
        return hidden, hidden.float(), self.layer.weight.sum(0)


def upcast() -> Any:
    return Upcast().eval(), torch.randn(2, 8)


class OnCpu(nn.Module):
    """Reads a value while it is built."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((8,), float(torch.linspace(0, 1, 8).sum().item())))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def not_on_meta() -> Any:
    return OnCpu().eval(), torch.randn(2, 8)


class Sound(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv1d(1, 4, 5, stride=2)

    def forward(self, wave: Tensor) -> Tensor:
        made: Tensor = self.body(wave)
        return made


def sound() -> Any:
    return Sound().eval(), {"wave": torch.randn(1, 1, 64)}


class Branching(nn.Module):
    """Takes another path for some values."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = (self.large if float(x.abs().max()) > 4.0 else self.small)(x)
        return made


def branching() -> Any:
    return Branching().eval(), torch.randn(8, 16)


class Greedy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Embedding(16, 16)

    def forward(self, token: Tensor) -> Tensor:
        return self.logits(self.logits(token).argmax(-1))


# What no compiler can be checked against, or what is wrong.


class Selects(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0.5] * 2


def selecting() -> Any:
    return Selects().eval(), torch.linspace(0, 1, 16)


def selecting_of_several() -> Any:
    return bakeoff.Model(Selects().eval(), torch.linspace(0, 1, 16), more=[torch.linspace(0, 2, 16)])


class Adds(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def one_value() -> Any:
    return Adds().eval(), torch.tensor([2.0])


def dropping() -> Any:
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), torch.randn(2, 8)


class Noisy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


def noisy() -> Any:
    return Noisy().eval(), torch.randn(2, 8)


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(2, 8))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x)  # type: ignore[union-attr, operator]
        return x * 2


def remembering() -> Any:
    return Remembering().eval(), torch.randn(2, 8)


class Counting(nn.Module):
    """Its buffer is in no state dict and changes no output."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)  # type: ignore[union-attr, operator]
        return x * 2


def counting() -> Any:
    return Counting().eval(), torch.randn(2, 8)


class Overwriting(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2)


def overwriting() -> Any:
    return Overwriting().eval(), torch.randn(2, 8)


class Constant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ones_like(x)


def constant() -> Any:
    return Constant().eval(), torch.randn(2, 8)


def raising() -> Any:
    raise RuntimeError("no such checkpoint")


def no_inputs() -> Any:
    return nn.Linear(2, 2)


def no_module() -> Any:
    return "resnet", torch.randn(2, 2)


def wrong_shape() -> Any:
    return nn.Linear(2, 2).eval(), torch.randn(3, 5)


def complex_input() -> Any:
    return nn.Identity().eval(), torch.randn(3, dtype=torch.complex64)


def not_finite() -> Any:
    return nn.ReLU().eval(), torch.full((2, 2), torch.inf)


def unknown_state() -> Any:
    return bakeoff.Model(
        Stateful().eval(), {"x": torch.randn(2, 8), "past": torch.zeros(2, 8)}, state={"present": "past"}
    )


def needing(size: int) -> Any:
    return nn.Linear(size, size), torch.randn(1, size)


def other_weights() -> Any:
    module = nn.Linear(4, 4).eval()
    with torch.no_grad():
        module.bias.copy_(torch.randn(4, generator=torch.Generator().manual_seed(torch.seed())))
    return module, torch.randn(2, 4)


class Rounded(nn.Module):
    """Rounds to bf16 within, whatever dtype it computes in."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).to(torch.bfloat16).to(x.dtype)


def rounded() -> tuple[nn.Module, Tensor]:
    return Rounded(), torch.randn(2, 64)
