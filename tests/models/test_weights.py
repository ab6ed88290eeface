"""Random weights are the same whatever the order, device or dtype of a module; fingerprints tell states apart."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from reported import frozen_script, quantised
from torch import Tensor, nn

from bakeoff.models.errors import BakeoffError
from bakeoff.models.weights import fingerprint, randomize, state_of


class Small(nn.Module):
    """One parameter of each kind the rule tells apart, registered in either order."""

    def __init__(self, backwards: bool = False) -> None:
        super().__init__()
        kinds = {
            "kernel": nn.Parameter(torch.zeros(8, 200, 3)),
            "gamma": nn.Parameter(torch.zeros(300, 1, 1)),
            "bias": nn.Parameter(torch.zeros(500)),
            "tail": nn.Parameter(torch.zeros(3)),
        }
        for name in reversed(kinds) if backwards else kinds:
            self.register_parameter(name, kinds[name])
        self.register_buffer("table", torch.arange(4.0))


def values(module: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


def drawn(seed: int = 7, **options: bool) -> Small:
    module = Small(**options)
    randomize(module, seed)
    return module


def test_each_kind_has_its_distribution() -> None:
    module = drawn()
    found = values(module)
    assert found["kernel"].mean().abs() < 0.005
    assert found["kernel"].std() == pytest.approx(600**-0.5, rel=0.05)
    assert found["gamma"].mean() == pytest.approx(1.0, abs=0.03)
    assert found["gamma"].std() == pytest.approx(0.1, rel=0.15)
    assert found["bias"].mean().abs() < 0.02
    assert found["bias"].std() == pytest.approx(0.1, rel=0.15)
    assert torch.equal(module.table, torch.arange(4.0))


def test_values_depend_on_seed_and_name_alone() -> None:
    first, again, backwards, other = (values(m) for m in (drawn(), drawn(), drawn(backwards=True), drawn(seed=8)))
    assert list(first) != list(backwards)
    for name in first:
        assert torch.equal(first[name], again[name])
        assert torch.equal(first[name], backwards[name])
        assert not torch.equal(first[name], other[name])
    assert not torch.equal(first["bias"][:3], first["tail"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_get_the_same_draw_rounded(dtype: torch.dtype) -> None:
    cast = Small().to(dtype)
    randomize(cast, 7)
    for name, parameter in values(drawn()).items():
        assert torch.equal(values(cast)[name], parameter.to(dtype))


def test_initial_std_overrides_zero_mean_parameters_only() -> None:
    asked = []

    def initial_std(name: str, shape: tuple[int, ...]) -> float | None:
        asked.append((name, shape))
        return 2.0 if name in ("kernel", "gamma") else None

    module = Small()
    randomize(module, 7, initial_std)
    found, default = values(module), values(drawn())
    assert found["kernel"].std() == pytest.approx(2.0, rel=0.05)
    assert torch.equal(found["gamma"], default["gamma"])
    assert torch.equal(found["bias"], default["bias"])
    assert ("kernel", (8, 200, 3)) in asked


def test_module_built_on_meta_is_filled_after_to_empty() -> None:
    with torch.device("meta"):
        module = Small()
    for refused in (lambda: randomize(module, 7), lambda: fingerprint(module)):
        with pytest.raises(BakeoffError) as error:
            refused()
        assert error.value.code == "meta-tensors"
    module.to_empty(device="cpu")
    randomize(module, 7)
    assert torch.equal(values(module)["kernel"], values(drawn())["kernel"])


def test_drawing_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(4)
    torch.manual_seed(1)
    drawn()
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("factory", [frozen_script.model, quantised.model])
def test_fingerprint_sees_weights_that_are_no_parameters(factory: Callable[[], Any]) -> None:
    def made(seed: int) -> str:
        torch.manual_seed(seed)
        module = factory()[0]
        assert any(tensor.dim() > 1 for tensor in state_of(module).values())
        return fingerprint(module)

    assert made(0) == made(0) != made(1)


def test_fingerprint_is_of_the_content() -> None:
    assert fingerprint(drawn()) == fingerprint(drawn(backwards=True)) == fingerprint(drawn().double())
    assert fingerprint(drawn()) != fingerprint(drawn(seed=8))
    assert fingerprint(drawn()) != fingerprint(drawn().to(torch.bfloat16))
    assert len(fingerprint(drawn())) == 64


@pytest.mark.parametrize("change", ["a late value", "two values swapped", "the shape", "a buffer", "a key"])
def test_fingerprint_sees_one_small_change(change: str) -> None:
    module = drawn()
    before = fingerprint(module)
    with torch.no_grad():
        if change == "a late value":
            module.kernel[-1, -1, -1] += 1e-6
        elif change == "two values swapped":
            module.kernel[-1, -1, [1, 2]] = module.kernel[-1, -1, [2, 1]].clone()
        elif change == "the shape":
            module.bias = nn.Parameter(module.bias.view(50, 10))
        elif change == "a buffer":
            module.table[2] = 0
        else:
            module.renamed = module.bias
            del module.bias
    assert fingerprint(module) != before


class RmsNorm(nn.Module):
    """A library's own class, told by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(300))
        self.bias = nn.Parameter(torch.zeros(300))


@pytest.mark.parametrize(
    "layer",
    [nn.LayerNorm(300), nn.BatchNorm2d(300), nn.GroupNorm(3, 300), nn.RMSNorm(300), RmsNorm()],
    ids=lambda layer: type(layer).__name__,
)
@pytest.mark.parametrize("inside", [True, False])
def test_gains_of_normalising_layers_are_drawn_around_one(layer: nn.Module, inside: bool) -> None:
    module = nn.Sequential(nn.Linear(4, 4), layer) if inside else layer
    randomize(module, 3)
    assert float(layer.weight.detach().mean()) == pytest.approx(1.0, abs=0.03)
    assert float(layer.weight.detach().std()) == pytest.approx(0.1, rel=0.2)
    if getattr(layer, "bias", None) is not None:
        assert float(layer.bias.detach().mean()) == pytest.approx(0.0, abs=0.03)
