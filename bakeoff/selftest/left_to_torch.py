"""A component of which compilers leave work to PyTorch's kernels by design.

`waves` turns complex numbers and has a Fourier transform, `memory` is an LSTM; both have elementwise work too, which a
compiler fuses.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakeoff.models.component import Component, Preset, TensorSpec, Work, Workload
from bakeoff.models.errors import BakeoffError

if TYPE_CHECKING:
    from torch import Tensor, nn

WORKLOADS = ("waves", "memory")


@dataclass(frozen=True, slots=True)
class Config:
    width: int = 64
    """Channels, in pairs."""
    length: int = 64
    """Steps in time."""


def workload(config: Config, name: str, batch: int) -> Workload:
    """Raises BakeoffError for an unknown name."""
    if name not in WORKLOADS:
        raise BakeoffError(
            f"left-to-torch has no workload '{name}'; it has {', '.join(WORKLOADS)}", code="unknown-name"
        )
    shape = (batch, config.length, config.width)
    weights = config.width**2 * (1 if name == "waves" else 8)
    work = Work(2 * batch * config.length * weights, weights, 2 * batch * config.length * config.width)
    return Workload(name, "left to PyTorch", (TensorSpec("x", shape),), (TensorSpec("y", shape),), work)


def parameters(config: Config) -> int:
    return sum(workload(config, name, 1).work.weight_elements for name in WORKLOADS)


def build(config: Config, workload: str, _batch: int = 1) -> "nn.Module":
    """The module of one workload, in eval mode and fp32."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Waves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(config.width, config.width, bias=False)
            angles = torch.arange(config.length)[:, None] / (1.0 + torch.arange(config.width // 2))
            self.turn: Tensor
            self.register_buffer("turn", torch.polar(torch.ones_like(angles), angles))

        def forward(self, x: "Tensor") -> "tuple[Tensor]":
            pairs = torch.view_as_complex(self.mix(x).unflatten(-1, (-1, 2)))
            spectrum = torch.fft.rfft(torch.view_as_real(pairs * self.turn).flatten(-2), dim=1)
            return (x + F.gelu(torch.fft.irfft(spectrum, n=config.length, dim=1)) * torch.sigmoid(x),)

    class Memory(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTM(config.width, config.width, bias=False, batch_first=True)

        def forward(self, x: "Tensor") -> "tuple[Tensor]":
            return (x + F.gelu(self.cell(torch.tanh(x))[0]),)

    return (Waves() if workload == "waves" else Memory()).eval()


SPEC = Component(
    name="left-to-torch",
    summary="complex numbers, FFT and an LSTM; no figure means anything",
    credit="this project",
    presets=(Preset("tiny", Config(), "selftest"),),
    default_preset={"cpu": "tiny", "cuda": "tiny"},
    default_workloads={"cpu": WORKLOADS, "cuda": WORKLOADS},
    workload_names=lambda _config: WORKLOADS,
    workload=workload,
    parameters=parameters,
    tolerance_fp32=1e-4,
    network="bakeoff.selftest.left_to_torch",
    layers=("linear",),
)
