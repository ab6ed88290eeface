"""The flags that measurements run under: which hold inside, and that they are restored."""

import pytest

pytest.importorskip("torch", reason="the flags are torch's")

import torch

from bakeoff.worker.torch_flags import flags, settings


@pytest.mark.parametrize("search", [True, False])
@pytest.mark.parametrize("dtype", ["fp32", "tf32"])
def test_flags_hold_inside_and_are_restored(dtype: str, search: bool) -> None:
    outside = settings()
    with flags(dtype, 1, search):
        inside = settings()
    assert inside["cudnn_benchmark"] is search
    assert inside["cudnn_allow_tf32"] is (dtype == "tf32")
    assert inside["float32_matmul_precision"] == ("high" if dtype == "tf32" else "highest")
    assert settings() == outside


def test_every_attention_kernel_and_reduced_reduction_is_a_setting() -> None:
    """A backend that changes one of them is found out, so each has a name."""
    matmul = torch.backends.cuda.matmul
    before = settings()
    for change, name in (
        (torch.backends.cuda.enable_cudnn_sdp, "cudnn_sdp"),
        (torch.backends.cuda.enable_math_sdp, "math_sdp"),
        (lambda on: setattr(matmul, "allow_bf16_reduced_precision_reduction", on), "bf16_reduced_precision_reduction"),
        (lambda on: setattr(matmul, "allow_fp16_reduced_precision_reduction", on), "fp16_reduced_precision_reduction"),
    ):
        change(False)
        try:
            assert {key for key, value in settings().items() if value != before[key]} == {name}
        finally:
            change(True)
    assert settings() == before
