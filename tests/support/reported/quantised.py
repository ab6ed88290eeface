"""Layers that torch's eager mode quantised to int8 after a calibration (pytorch#137111).

Their weights are packed, no parameters, and torch.export knows neither them nor quantised activations. Expected:
eager is measured as it is; each compiler that cannot take it says so, and none computes something else.
"""

import warnings
from typing import Any

import torch
from torch import nn
from torch.ao import quantization

warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*torch.ao.quantization.*")


def model() -> Any:
    layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    network = nn.Sequential(quantization.QuantStub(), layers, quantization.DeQuantStub()).eval()
    network.qconfig = quantization.get_default_qconfig("x86")  # type: ignore[assignment]
    x = torch.randn(32, 64)
    prepared = quantization.prepare(network)
    prepared(x)
    return quantization.convert(prepared), {"input": x}
