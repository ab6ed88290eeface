"""Weights of convolutions in channels_last: what is laid out, that values stay, and that such eager is no baseline."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="layouts are torch's")

import torch
from torch import Tensor, nn
from torch.nn import functional
from toys import build_toy

from bakeoff.backends.backend import Unsupported
from bakeoff.backends.channels_last import store_channels_last
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request


class Joined(nn.Module):
    """A two-dimensional convolution over the channels of successive frames, with the weight of a Conv3d."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, 3, 2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.weight.flatten(1, 2))


class Split(nn.Module):
    """Reads a weight whose one dimension is split, for which no strides give channels_last."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4 * 3 * 3))

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.weight.view(6, 4, 3, 3))


class Computed(nn.Module):
    """Reads a weight that each call computes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return functional.conv2d(x, self.weight * 2)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(4, 6, 3), (1, 4, 9)),
        (nn.Conv2d(4, 6, 3), (1, 4, 9, 9)),
        (nn.Conv2d(4, 8, 3, groups=2), (1, 4, 9, 9)),
        (nn.ConvTranspose2d(4, 6, 3), (1, 4, 9, 9)),
        (nn.Conv3d(4, 6, 3), (1, 4, 5, 9, 9)),
        (Joined(), (1, 12, 9, 9)),
    ],
)
def test_a_convolution_computes_in_channels_last_and_gives_the_same_values(
    module: nn.Module, shape: tuple[int, ...]
) -> None:
    x = torch.randn(shape)
    with torch.no_grad():
        before, weight = module(x), module.weight.clone()
        assert store_channels_last(module, {"x": x}) == 1
        after = module(x)
    assert torch.equal(module.weight, weight)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)
    if x.dim() == 5:  # ATen's three-dimensional convolution on a CPU returns another layout than cuDNN's and oneDNN's
        assert module.weight.is_contiguous(memory_format=torch.channels_last_3d)
    else:
        assert (after.unsqueeze(2) if x.dim() == 3 else after).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("module", [nn.Linear(9, 4), Split(), Computed()])
def test_where_no_weight_can_be_laid_out_it_is_refused(module: nn.Module) -> None:
    before = {name: (weight.clone(), weight.stride()) for name, weight in module.named_parameters()}
    with pytest.raises(Unsupported, match="channels_last"):
        store_channels_last(module, {"x": torch.randn(1, 4, 9, 9)})
    for name, weight in module.named_parameters():
        assert torch.equal(weight, before[name][0])
        assert weight.stride() == before[name][1]


@pytest.mark.parametrize("workload", ["picture", "sound"])
def test_eager_with_it_gives_what_eager_gives(workload: str, tmp_path: Path) -> None:
    toy = build_toy(f"{workload}/eager[channels_last]/fp32", tmp_path)
    assert toy.error() < 1e-5
    assert toy.proof.facts["channels_last_weights"] > 0


def test_it_is_no_baseline() -> None:
    request = Request("toy", backends=("eager[]", "eager[channels_last]"), dtypes=("fp32",), device="cpu")
    plain, laid_out = make_plan(request).rows
    assert (plain.baseline, plain.is_eager_fp32) == (True, True)
    assert (laid_out.baseline, laid_out.is_eager_fp32) == (False, False)
