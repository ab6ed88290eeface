"""Version ranges of known upstream problems."""

import pytest

from bakeoff.machine import host
from bakeoff.machine.known_issues import known_issues
from bakeoff.models.component import Layer
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request


@pytest.mark.parametrize(
    ("version", "known"),
    [("9.7.1.26", False), ("9.8.0.87", True), ("9.14.0.64", True), ("9.15.0.57", False), ("10.0", False)],
)
def test_cudnn_range_of_slow_half_precision_conv3d(version: str, known: bool) -> None:
    found = known_issues({"nvidia-cudnn-cu13": version}, "cuda", ["bf16"])
    assert ("conv3d" in " ".join(found)) is known
    assert known_issues({"nvidia-cudnn-cu13": version}, "cuda", ["fp32"]) == []


@pytest.mark.parametrize("layers", [(), ("linear", "attention"), ("conv1d",)])
def test_problems_of_convolutions_are_of_models_that_have_such_ones(layers: tuple[Layer, ...]) -> None:
    assert "conv" not in " ".join(known_issues({"torch": "2.13.0"}, "cpu", ["bf16"], layers))
    assert known_issues({"nvidia-cudnn-cu13": "9.10.0"}, "cuda", ["bf16"], layers) == []
    found = known_issues({"torch": "2.13.0"}, "cpu", ["bf16"], ("conv2d", *layers))
    assert "conv2d" in " ".join(found)
    assert len(known_issues({"nvidia-cudnn-cu13": "9.10.0"}, "cuda", ["bf16"], ("conv3d",))) == 1


@pytest.mark.parametrize(("component", "known"), [("wm", False), ("image", True)])
def test_rows_have_the_problems_of_their_layers(component: str, known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "read_versions", lambda *_: {"torch": "2.13.0+cpu"})
    (row,) = make_plan(Request(component, presets=("tiny",), backends=("eager",), dtypes=("bf16",), device="cpu")).rows[
        :1
    ]
    assert ("conv2d" in " ".join(row.known_issues)) is known
