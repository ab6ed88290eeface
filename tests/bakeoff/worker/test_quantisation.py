"""A variant counts as quantised only for named layers whose weights take fewer bytes than before."""

from dataclasses import replace

import torch
from torch import nn

from bakeoff.backends.backend import Prepared
from bakeoff.worker.build import check_quantisation, layer_bytes


def layers() -> nn.Module:
    return nn.ModuleDict({"used": nn.Linear(8, 8), "other": nn.Linear(8, 8)}).requires_grad_(False)


def test_each_named_layer_must_take_fewer_bytes() -> None:
    module = layers()
    given = layer_bytes(module)
    assert given[""] == given["used"] + given["other"] == 2 * 4 * (64 + 8)
    module.get_submodule("other").half()
    now = layer_bytes(module)
    assert now[""] < given[""], "the module as a whole became smaller"
    claimed = Prepared(module, dict.fromkeys(("used", "other"), "int8"))
    assert set(check_quantisation(claimed, {}, given, now)[0].skipped) == {"used"}


def test_a_layer_that_was_replaced_shrank_and_a_name_that_is_no_layer_is_unknown() -> None:
    module = layers()
    given = layer_bytes(module)
    module.used = nn.Identity()
    claimed = Prepared(module, dict.fromkeys(("used", "linear_3"), "int8"))
    assert check_quantisation(claimed, {}, given, layer_bytes(module)) == (claimed, None)


def test_a_layer_that_did_not_shrink_is_listed_as_skipped() -> None:
    module = layers()
    claimed = Prepared(module, {"used": "int8 dynamic", "other": "int8 dynamic"}, {"last": "too small"}, {"least": 0})
    before = layer_bytes(module)
    module.get_submodule("other").half()
    marked, _ = check_quantisation(claimed, {}, before, layer_bytes(module))
    assert marked.quantised == {"other": "int8 dynamic"}
    assert set(marked.skipped) == {"last", "used"}
    assert marked.skipped["last"] == "too small"
    assert (marked.module, marked.facts) == (claimed.module, claimed.facts)


def test_a_preparation_must_name_layers_that_shrink() -> None:
    module = layers()
    before = layer_bytes(module)
    claimed = Prepared(module, {"used": "int8 dynamic", "other": "int8 dynamic"})
    _, fallback = check_quantisation(claimed, {}, before, layer_bytes(module))
    assert fallback is not None
    assert "2 layers" in fallback
    module.get_submodule("other").half()
    checked, fallback = check_quantisation(claimed, {}, before, layer_bytes(module))
    assert fallback is None
    assert (set(checked.quantised), set(checked.skipped)) == ({"other"}, {"used"})
    inserted = replace(claimed, shrinks_weights=False)
    result = check_quantisation(inserted, {}, before, before)
    assert result == (inserted, None), "nodes that the build quantises may leave the weights as they are until then"


def test_nothing_quantised() -> None:
    def fallback(prepared: dict[str, str], built: dict[str, str], after: int) -> str | None:
        return check_quantisation(Prepared(nn.Identity(), prepared), built, {"": 8}, {"": after})[1]

    one = {"a": "int8"}
    assert fallback({}, {}, 4) is not None
    assert fallback(one, {}, 8) is not None
    assert fallback(one, {}, 4) is None
    assert fallback({}, one, 8) is None, "it quantised in its own build"


def test_stored_bytes_are_those_of_the_layer_alone() -> None:
    assert layer_bytes(nn.Sequential(nn.Linear(2, 2, bias=False, dtype=torch.float64)))["0"] == 32


class Packed(torch.Tensor):
    """As torchao's weights: fp32 to whoever looks, stored as integers and a scale."""

    @staticmethod
    def __new__(cls, integers: torch.Tensor, _scale: torch.Tensor) -> "Packed":
        return torch.Tensor._make_wrapper_subclass(cls, integers.shape, dtype=torch.float32)  # type: ignore[attr-defined]

    def __init__(self, integers: torch.Tensor, scale: torch.Tensor) -> None:
        self.integers, self.scale = integers, scale

    @classmethod
    def __torch_dispatch__(cls, *_: object) -> object:
        raise NotImplementedError

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["integers", "scale"], None


def test_a_quantised_weight_takes_the_bytes_of_its_integers_and_scales() -> None:
    layer = nn.Module()
    layer.register_buffer("weight", Packed(torch.zeros(8, 8, dtype=torch.int8), torch.ones(8)))
    assert layer.get_buffer("weight").dtype == torch.float32
    assert layer_bytes(layer)[""] == 64 + 8 * 4
