"""A TorchScript file that was frozen before it was saved (pytorch#58237).

Loaded, it has no parameters: its weights are constants of a graph, and torch.export does not take it. Expected: eager
is measured as it is; compilers say that they take no TorchScript.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 1))

    def forward(self, image: Tensor) -> Tensor:
        scores: Tensor = self.body(image)
        if scores.size(1) > 4:
            scores = scores[:, :4]
        return scores


def model() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "scorer.pt")
        torch.jit.save(torch.jit.freeze(torch.jit.script(Scorer().eval())), file)
        return torch.jit.load(file), {"image": torch.randn(1, 3, 32, 32)}
