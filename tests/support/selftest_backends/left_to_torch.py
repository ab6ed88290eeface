"""A component whose work compilers leave in part to PyTorch's kernels, by design.

`waves` turns complex numbers and has a Fourier transform, `memory` is an LSTM; both have elementwise work too, which a
compiler fuses.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bakeoff.models.component import Component, Preset, TensorSpec, Workload
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
    """Return the workload `name`. Raises BakeoffError if it is unknown."""
    if name not in WORKLOADS:
        raise BakeoffError(
            f"left-to-torch has no workload '{name}'; it has {', '.join(WORKLOADS)}", code="unknown-name"
        )
    shape = (batch, config.length, config.width)
    return Workload(name, "left to PyTorch", (TensorSpec("x", shape),), (TensorSpec("y", shape),))


def build(config: Config, workload: str, _batch: int = 1) -> "nn.Module":
    """Return the module of one workload, in eval mode and fp32."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class LeftToTorch(nn.Module):
        """The weights of both workloads."""

        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Linear(config.width, config.width, bias=False)
            self.cell = nn.LSTM(config.width, config.width, bias=False, batch_first=True)
            angles = torch.arange(config.length)[:, None] / (1.0 + torch.arange(config.width // 2))
            self.turn: Tensor
            self.register_buffer("turn", torch.polar(torch.ones_like(angles), angles))

        def forward(self, x: "Tensor") -> "tuple[Tensor]":
            if workload == "memory":
                return (x + F.gelu(self.cell(torch.tanh(x))[0]),)
            pairs = torch.view_as_complex(self.mix(x).unflatten(-1, (-1, 2)))
            spectrum = torch.fft.rfft(torch.view_as_real(pairs * self.turn).flatten(-2), dim=1)
            return (x + F.gelu(torch.fft.irfft(spectrum, n=config.length, dim=1)) * torch.sigmoid(x),)

    return LeftToTorch().eval()


SPEC = Component(
    name="left-to-torch",
    summary="complex numbers, FFT and an LSTM; no figure means anything",
    credit="this project",
    presets=(Preset("tiny", Config(), 36_864, "selftest"),),
    default_preset={"cpu": "tiny", "cuda": "tiny"},
    default_workloads={"cpu": WORKLOADS, "cuda": WORKLOADS},
    workload_names=lambda _config: WORKLOADS,
    workload=workload,
    tolerance_fp32=1e-4,
    network="selftest_backends.left_to_torch",
    layers=("linear",),
)
