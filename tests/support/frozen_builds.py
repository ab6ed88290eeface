"""Builds models with inductor[freezing], one after the other, and prints what became of each as a list in JSON.

    python frozen_builds.py FOLDER SEED:SIZE …

The caches are in FOLDER, SEED is of the weights and SIZE an edge of the input. Of each: hits, misses and bypasses of
inductor's cache of graphs, the relative L2 error against eager in fp64, and a hash of the output.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import torch
from shared_headers import shared_headers
from torch import Tensor, nn

from bakeoff.backends.backend import BuildContext
from bakeoff.backends.inductor import BACKEND, Options


class Scaled(nn.Module):
    """A convolution and a linear layer, which oneDNN packs, a scalar and four values, which are written into the code,
    and a product of constants, which is folded."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(16, 16, 3, padding=1)
        self.linear = nn.Linear(32, 32)
        self.scale = nn.Parameter(torch.randn(()))
        self.shift = nn.Parameter(torch.randn(4))
        self.table = nn.Parameter(torch.randn(32))

    def forward(self, x: Tensor) -> tuple[Tensor]:
        hidden = nn.functional.silu(self.convolution(x)) + self.table * torch.arange(32, device=x.device)
        batches = hidden.reshape(4, -1, hidden.shape[-1])
        return (self.linear(batches) * self.scale + self.shift[:, None, None],)


def build(seed: int, size: int, folder: Path) -> dict[str, object]:
    torch._dynamo.reset()
    torch.manual_seed(seed)
    module = Scaled().bfloat16()
    torch.manual_seed(0)
    x = torch.randn(4, 16, size, 32).bfloat16()
    context = BuildContext("", "cpu", "bf16", 1, folder, folder, lambda _seed: {"x": x}, share=shared_headers())
    torch._dynamo.utils.counters.clear()
    assert BACKEND.build is not None
    with torch.no_grad():
        engine = BACKEND.build(module, {"x": x}, Options(freezing=True), context)
        (found,) = engine.bind({"x": x})()
        (wanted,) = module.double()(x.double())
    counters = torch._dynamo.utils.counters["inductor"]
    return {
        "hits": engine.prove().facts["graph_cache_hits"],
        **{name: counters[f"fxgraph_cache_{name}"] for name in ("miss", "bypass")},
        "error": float((found.double() - wanted).norm() / wanted.norm()),
        "output": hashlib.sha256(found.float().numpy().tobytes()).hexdigest(),
    }


def main() -> None:
    folder = Path(sys.argv[1])
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    torch.set_num_threads(1)
    made = [build(*(int(part) for part in asked.split(":")), folder) for asked in sys.argv[2:]]
    print(json.dumps(made))


if __name__ == "__main__":
    main()
