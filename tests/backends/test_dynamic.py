"""Engines for a range of sizes: every backend that says that it takes one gives eager's outputs within it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import BuildContext, Unsupported
from bakeoff.backends.graphs import export, output_shapes
from bakeoff.models.component import DynamicAxis

SIZES = (DynamicAxis("x", 0, "x.0", 1, 4, 8), DynamicAxis("scale", 0, "x.0", 1, 4, 8))


class Network(nn.Module):
    """Two outputs, of which one has another size than the inputs along an axis."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.narrow = nn.Linear(16, 16), nn.Conv1d(1, 1, 3, stride=2, padding=1)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        x, scale = tensors
        return self.layer(x).relu() * scale.unsqueeze(-1), self.narrow(x.unsqueeze(1)).squeeze(1)


class Doubled(nn.Module):
    """Takes even sizes alone."""

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (x.reshape(-1, 2, 3).sum(1),)


def inputs(rows: int) -> dict[str, Tensor]:
    return {"x": torch.randn(rows, 16), "scale": torch.rand(rows)}


def network() -> nn.Module:
    return Network().eval().requires_grad_(False)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch.onnx uses what torch deprecates
@pytest.mark.parametrize("name", ["eager", "torch.export", "onnxruntime", "openvino"])
def test_one_engine_gives_eagers_outputs_at_every_size_in_its_range(name: str, tmp_path: Path) -> None:
    if name not in ("eager", "torch.export"):
        pytest.importorskip(name)
    backend = resolve_backend(name)
    assert backend.build is not None
    context = BuildContext("", "cpu", "fp32", 1, tmp_path, tmp_path / "cache", lambda _seed: {}, sizes=SIZES)
    module = network()
    with torch.inference_mode():
        engine = backend.build(module, inputs(4), backend.options(), context)
        for rows in (4, 1, 2, 6, 8):
            given = inputs(rows)
            for found, wanted in zip(engine.bind(given)(), module(*given.values()), strict=True):
                torch.testing.assert_close(found, wanted)
        if name != "eager":
            with pytest.raises(Unsupported, match=r"built for x as float32 \[1 to 8, 16\] on cpu and got float32 \[9"):
                engine.bind(inputs(9))


def test_the_shapes_of_outputs_follow_from_those_of_inputs() -> None:
    shapes = output_shapes(export(network(), inputs(4), SIZES))
    assert shapes(tuple(inputs(6).values())) == ((6, 16), (6, 8))
    even = output_shapes(export(Doubled(), {"x": torch.zeros(4, 3)}, [DynamicAxis("x", 0, "x.0", 2, 4, 8)]))
    assert even([torch.zeros(6, 3)]) == ((3, 3),)
