"""Factories of models whose function depends on how they were given: dtypes, layouts, state, casts in their code."""

import os
from collections import UserDict
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import bakeoff


class Rotated(nn.Module):
    """A rotation by complex numbers (pytorch#95337)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("turn", torch.polar(torch.ones(4), torch.arange(1.0, 5.0)))

    def forward(self, x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(self.layer(x).float().unflatten(-1, (4, 2)).contiguous())
        return torch.view_as_real(pairs * self.turn).flatten(-2).type_as(x)


def rotated() -> Any:
    return Rotated().eval(), torch.randn(16, 8)


class Weighted(nn.Module):
    """A complex parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(self.weight.dtype) @ self.weight).abs()


def weighted() -> Any:
    return Weighted().eval(), torch.randn(16, 8)


class NoHalf(nn.Module):
    """An operator that torch has no half-precision kernel for."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.solve(x @ x.mT + torch.eye(4, dtype=x.dtype), x)


def no_half() -> Any:
    return NoHalf().eval(), torch.randn(2, 4, 4)


class Overflowing(nn.Module):
    """Activations beyond fp16 (diffusers#7188)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * 3e5 * 1e-5


def overflowing() -> Any:
    return Overflowing().eval(), torch.randn(16, 8)


class Averaging(nn.Module):
    """One output averages, so that it hardly depends on the inputs (pytorch#105264)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        pixels = self.layer(x) + 1
        return pixels, pixels.mean()


def averaging() -> Any:
    return Averaging().eval(), torch.randn(256, 64)


class Autocast(nn.Module):
    """Casts by itself (pytorch#164455)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made: Tensor = self.second(torch.relu(self.first(x)))
        return made.float()


def autocast() -> Any:
    return Autocast().eval(), torch.randn(32, 64)


class Modulated(nn.Module):
    """The block of a diffusion transformer: norm and table in fp32, the rest in bf16 (diffusers#10992)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(32), nn.Linear(32, 32)
        self.table = nn.Parameter(torch.randn(2, 32))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        scale, shift = self.table + t
        made: Tensor = self.layer((self.norm(x.float()) * (1 + scale) + shift).type_as(x))
        return made


def _modulated(dtype: torch.dtype) -> tuple[nn.Module, dict[str, Tensor]]:
    module = Modulated().eval()
    module.layer.to(dtype)
    return module, {"x": torch.randn(16, 32).to(dtype), "t": torch.rand(1)}


def modulated() -> Any:
    return _modulated(torch.bfloat16)


def pinned() -> Any:
    """The same all in fp32, with what half precision must leave named."""
    module, inputs = _modulated(torch.float32)
    return bakeoff.Model(module, inputs, keep_fp32=("norm", "table", "t"))


class Embedded(nn.Module):
    """Its input `t` and the layer that embeds it have one name."""

    def __init__(self) -> None:
        super().__init__()
        self.t, self.layer = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        made: Tensor = self.layer(x) + self.t(torch.sin(torch.arange(16, dtype=x.dtype) * t))
        return made


def embedded() -> Any:
    return bakeoff.Model(Embedded().eval(), {"x": torch.randn(4, 16), "t": torch.tensor(0.5)}, keep_fp32=("t",))


class Phases(nn.Module):
    """Large positions times small frequencies (transformers#25681)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)
        self.register_buffer("inv_freq", 10000 ** (-torch.arange(16) / 16))
        self.register_buffer("positions", torch.arange(8000, 8032))

    def forward(self, x: Tensor) -> Tensor:
        angles = self.positions[:, None].to(self.inv_freq.dtype) * self.inv_freq
        turned = torch.cat([angles.cos(), angles.sin()], dim=-1).type_as(x)
        made: Tensor = self.layer(x) * turned
        return made


class FloatPhases(Phases):
    """The same with the product in fp32, so that keeping the frequencies is enough."""

    def forward(self, x: Tensor) -> Tensor:
        angles = self.positions[:, None].float() * self.inv_freq.float()
        turned = torch.cat([angles.cos(), angles.sin()], dim=-1).type_as(x)
        made: Tensor = self.layer(x) * turned
        return made


def phases() -> Any:
    return FloatPhases().eval(), torch.randn(32, 32)


class Ranking(nn.Module):
    """Values and their indices."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 512)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = self.layer(x).topk(64)
        return found.values, found.indices


def ranking() -> Any:
    return Ranking().eval(), torch.randn(32, 64)


class Masked(nn.Module):
    """Scores with minus infinity in fixed places (transformers#17468), and an empty cache (onnxruntime#26841)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 16)
        self.register_buffer("hidden", torch.arange(16) % 5 == 0)

    def forward(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.layer(x).masked_fill(self.hidden, -torch.inf)
        return scores, torch.cat([cache, x])


def masked() -> Any:
    return Masked().eval(), {"x": torch.randn(4, 8), "cache": torch.empty(0, 8)}


def channels_last() -> Any:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()
    picture = torch.randn(1, 3, 16, 16).to(memory_format=torch.channels_last)
    return module.to(memory_format=torch.channels_last), picture


class Cache:
    """A cache of its own class (pytorch#147326)."""

    def __init__(self, keys: Tensor, scale: float) -> None:
        self.keys = keys
        self.scale = scale


class Cached(nn.Module):
    def forward(self, x: Tensor, cache: Cache) -> Tensor:
        return torch.tanh(x @ cache.keys) * cache.scale


class Mode(IntEnum):
    LINEAR = 1
    TANH = 2


class Name(StrEnum):
    ADD = "add"
    SCALE = "scale"


class Switched(nn.Module):
    """Members of enums as arguments (pytorch#154674), and a torch.Size."""

    def forward(self, x: Tensor, mode: Mode, name: Name, size: Sequence[int]) -> tuple[Tensor, Mode]:
        made = torch.tanh(x) if mode is Mode.TANH else x
        made = made * 2 if name is Name.SCALE else made + 1
        return made.reshape(size), mode


def switched() -> Any:
    inputs = {"x": torch.randn(4, 8), "mode": Mode.TANH, "name": Name.SCALE, "size": torch.empty(2, 16).shape}
    return Switched().eval(), inputs


class Encoding(UserDict[str, Any]):
    """As transformers' BatchEncoding: its items are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self.data[name]
        except KeyError:
            raise AttributeError(name) from None


class Encoded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 8)

    def forward(self, batch: Encoding) -> Tensor:
        return self.embedding(batch.ids) * batch["mask"][..., None]


def encoded() -> Any:
    return Encoded().eval(), {"batch": Encoding(ids=torch.randint(0, 10, (2, 4)), mask=torch.rand(2, 4))}


class Image(Tensor):
    """As the tensors of torchvision.transforms.v2, which every operator passes on."""


def pictured() -> Any:
    return nn.Conv2d(3, 4, 3).eval(), torch.randn(1, 3, 8, 8).as_subclass(Image)


class Measured(nn.Module):
    """Returns a plain number too, which an export makes a constant."""

    def forward(self, x: Tensor) -> tuple[Tensor, float]:
        return x * 2, x.abs().mean().item()


def measured() -> Any:
    return Measured().eval(), torch.randn(4, 8)


class Aliasing(nn.Module):
    """Returns its input, a view of it, and one tensor twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        made = self.layer(x)
        return {"x": x, "view": x[:, :4], "made": made, "again": made}


def aliasing() -> Any:
    return Aliasing().eval(), torch.randn(4, 8)


def returning_a_buffer() -> Any:
    module = nn.BatchNorm1d(8).eval()
    module.forward = lambda x: {"x": x, "mean": module.running_mean}  # type: ignore[method-assign]
    return module, torch.randn(4, 8)


def returning_a_weight() -> Any:
    module = nn.Linear(8, 8).eval()
    module.forward = lambda x: {"x": x, "weight": module.weight}  # type: ignore[method-assign]
    return module, torch.randn(4, 8)


class WithoutGradients(nn.Module):
    @torch.inference_mode()
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


def without_gradients() -> Any:
    return WithoutGradients().eval(), torch.randn(4, 8)


class Mapped(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.vmap(lambda row: torch.softmax(row, 0) * row.sum())(x)


def mapped() -> Any:
    return Mapped().eval(), torch.randn(4, 8)


class ThroughNumpy(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(np.clip(x.numpy(), -1, 1))


def through_numpy() -> Any:
    return ThroughNumpy().eval(), torch.randn(4, 8)


class Wrapper(nn.Module):
    """Takes from the model inside what it lacks, as wrappers of fine-tuning do."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


def wrapped() -> Any:
    return Wrapper(nn.Sequential(nn.Linear(8, 8), nn.ReLU())).eval(), torch.randn(4, 8)


class Rounds(torch.autograd.Function):
    @staticmethod
    def forward(_context: Any, x: Tensor) -> Tensor:
        return torch.round(x * 8) / 8

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> Tensor:
        return gradient


class StraightThrough(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = Rounds.apply(x)
        return made


def straight_through() -> Any:
    return StraightThrough().eval(), torch.randn(4, 8)


class AskedForADtype(nn.Module):
    def forward(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return x.to(dtype)


def asked_for_a_dtype() -> Any:
    return AskedForADtype().eval(), {"x": torch.randn(4, 8), "dtype": torch.float32}


class Levels(nn.Module):
    """A backbone that returns its levels by number."""

    def forward(self, x: Tensor) -> dict[int, Tensor]:
        return {0: x, 1: x[:, ::2]}


def levels() -> Any:
    return Levels().eval(), torch.randn(4, 8)


def itself() -> Any:
    """One tensor as three inputs."""
    x = torch.randn(2, 4, 8)
    return nn.MultiheadAttention(8, 2, batch_first=True).eval(), {"query": x, "key": x, "value": x}


def compiled() -> Any:
    return torch.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), backend="eager"), torch.randn(4, 8)


@torch.compile(backend="eager")
def _fused(x: Tensor) -> Tensor:
    return torch.sin(x) * 2


class CompiledInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return _fused(self.layer(x))


def compiled_inside() -> Any:
    return CompiledInside().eval(), torch.randn(4, 8)


class WritesCache(nn.Module):
    """A cache in a buffer that calls write into at positions of theirs (executorch#5068)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("keys", torch.zeros(16, 8), persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        self.keys.index_copy_(0, positions, self.layer(x))
        return torch.softmax(x @ self.keys.mT, -1) @ self.keys


def writes_cache() -> Any:
    return WritesCache().eval(), {"x": torch.randn(4, 8), "positions": torch.tensor([1, 5, 7, 9])}


def declared_cache() -> Any:
    module, inputs = writes_cache()
    return bakeoff.Model(module, inputs, buffers=("keys",))


class KeepsFor(nn.Module):
    """Recomputes a part in every `period`-th call only (diffusers#9562)."""

    def __init__(self, period: int) -> None:
        super().__init__()
        self.layer, self.period = nn.Linear(8, 8), period
        self.calls, self.kept = 0, torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        if self.calls % self.period == 0:
            self.kept = torch.tanh(self.layer(x))
        self.calls += 1
        return x + self.kept


def keeps_for_2() -> Any:
    return KeepsFor(2).eval(), torch.randn(4, 8)


def keeps_for_4() -> Any:
    return KeepsFor(4).eval(), torch.randn(4, 8)


def keeps_for_7() -> Any:
    return KeepsFor(7).eval(), torch.randn(4, 8)


class Similar(nn.Module):
    """Reuses what it has where the inputs have hardly changed (diffusers#11180)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.before: Tensor | None = None
        self.kept = torch.zeros(1)

    def forward(self, x: Tensor) -> Tensor:
        if self.before is None or (x - self.before).abs().mean() > 0.1 * self.before.abs().mean():
            self.before, self.kept = x, torch.tanh(self.layer(x))
        return x + self.kept


def similar() -> Any:
    return Similar().eval(), torch.randn(4, 8)


class LazyTable(nn.Module):
    """Makes a table at the first call and counts calls; neither changes an output."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.table, self.calls = nn.Linear(8, 8), None, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.table is None:
            self.table = torch.arange(8.0).cos()
        made: Tensor = self.layer(x) * self.table
        return made


def lazy_table() -> Any:
    return LazyTable().eval(), torch.randn(4, 8)


class AbortsInHalf(nn.Module):
    """Ends its process in half precision, once a file says so."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.armed = nn.Linear(8, 8), Path("armed").absolute()

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.bfloat16 and self.armed.exists():
            os.abort()
        made: Tensor = self.layer(x)
        return made


def aborts_in_half() -> Any:
    return AbortsInHalf().eval(), torch.randn(4, 8)


class PlusOne(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1


def deaf_in_one_set() -> Any:
    return bakeoff.Model(PlusOne().eval(), sets={"good": torch.randn(4, 8), "deaf": torch.randn(4, 8) * 1e-6})


class Seeded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(7))
        made: Tensor = self.layer(x) + noise.to(x.dtype)
        return made


def seeded() -> Any:
    return Seeded().eval(), torch.randn(4, 8)
