"""What may be said of a quantised variant: layers that shrank count, names and a smaller module alone do not."""

import torch
from torch import nn

from bakeoff.backends.backend import Prepared
from bakeoff.worker.build import _without, layer_bytes, not_shrunk, nothing_quantised


def layers() -> nn.Module:
    return nn.ModuleDict({"used": nn.Linear(8, 8), "other": nn.Linear(8, 8)}).requires_grad_(False)


def test_each_named_layer_must_take_fewer_bytes() -> None:
    module = layers()
    given = layer_bytes(module)
    assert given[""] == given["used"] + given["other"] == 2 * 4 * (64 + 8)
    module.get_submodule("other").half()
    now = layer_bytes(module)
    assert now[""] < given[""], "the module as a whole became smaller"
    assert not_shrunk(["used", "other"], given, now) == ["used"]


def test_a_layer_that_was_replaced_shrank_and_a_name_that_is_no_layer_is_unknown() -> None:
    module = layers()
    given = layer_bytes(module)
    module.used = nn.Identity()
    assert not_shrunk(["used", "linear_3"], given, layer_bytes(module)) == []


def test_a_layer_that_did_not_shrink_is_told_as_skipped() -> None:
    said = Prepared(layers(), {"used": "int8 dynamic", "other": "int8 dynamic"}, {"last": "too small"}, {"least": 0})
    told = _without(said, ["used"])
    assert told.quantised == {"other": "int8 dynamic"}
    assert told.skipped == {"last": "too small", "used": "takes as many bytes as before"}
    assert (told.module, told.facts) == (said.module, said.facts)
    assert _without(said, []) == said


def test_nothing_quantised() -> None:
    one, two = {"a": "int8"}, {"a": "int8", "b": "int8"}
    assert nothing_quantised({}, {}, shrank=True) == "the module as it was: not one layer was quantised"
    assert "1 layer is said to be quantised, no weight of theirs became smaller" in nothing_quantised(one, {}, False)
    assert "2 layers are said to be quantised" in nothing_quantised(two, {}, shrank=False)
    assert nothing_quantised(one, {}, shrank=True) == ""
    assert nothing_quantised({}, one, shrank=False) == "", "it quantised in its own build"


def test_stored_bytes_are_those_of_the_layer_alone() -> None:
    assert layer_bytes(nn.Sequential(nn.Linear(2, 2, bias=False, dtype=torch.float64)))["0"] == 32
