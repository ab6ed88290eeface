"""Version ranges of known upstream problems."""

import pytest

from bakeoff.machine.known_issues import known_issues


@pytest.mark.parametrize(
    ("version", "known"),
    [("9.7.1.26", False), ("9.8.0.87", True), ("9.14.0.64", True), ("9.15.0.57", False), ("10.0", False)],
)
def test_cudnn_range_of_slow_half_precision_conv3d(version: str, known: bool) -> None:
    codes = [code for code, _ in known_issues({"nvidia-cudnn-cu13": version}, "cuda", ["bf16"])]
    assert ("cudnn-conv3d" in codes) is known
    assert known_issues({"nvidia-cudnn-cu13": version}, "cuda", ["fp32"]) == []


@pytest.mark.parametrize(("version", "known"), [("2.13.0+cpu", True), ("2.14.0a0+git1234", False), ("2.12.1", False)])
def test_torch_release_of_the_bf16_convolution_problem(version: str, known: bool) -> None:
    codes = [code for code, _ in known_issues({"torch": version}, "cpu", ["bf16"])]
    assert ("cpu-bf16-conv2d" in codes) is known
