"""A checkpoint of fp8 weights, each with its scale, which stays as it is stored until it is used (InvokeAI#9478).

Expected: weights and scales stay what the checkpoint has, in the references too; fp8 is no reason to refuse, and a
compiler without fp8 says so.
"""

import io
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Scaled(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, dtype=torch.float8_e4m3fn), requires_grad=False)
        self.weight_scale = nn.Parameter(torch.empty(()), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype) * self.weight_scale.to(x.dtype), self.bias)


def stored(network: nn.Sequential) -> io.BytesIO:
    """The checkpoint: weights divided by their scales, in fp8."""
    state = {}
    for name, tensor in network.state_dict().items():
        if name.endswith("weight"):
            scale = tensor.abs().max() / 448
            state |= {name: (tensor / scale).to(torch.float8_e4m3fn), f"{name}_scale": scale}
        else:
            state[name] = tensor
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return file


def model() -> Any:
    checkpoint = stored(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)))
    network = nn.Sequential(Scaled(64, 256), nn.GELU(), Scaled(256, 64))
    network.load_state_dict(torch.load(checkpoint, weights_only=True), assign=True)
    return network.eval(), {"input": torch.randn(32, 64)}
