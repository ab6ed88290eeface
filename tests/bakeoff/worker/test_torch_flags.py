"""The flags that measurements run under: which hold inside, and that they are restored."""

from collections.abc import Iterator
from dataclasses import fields, replace

import pytest

pytest.importorskip("torch", reason="the flags are torch's")

import torch

from bakeoff.worker.torch_flags import Flags, apply_flags, flags, one_thread, read_flags, settings


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


def test_one_thread_lasts_only_as_long_as_its_context() -> None:
    with flags("fp32", 3):
        with one_thread(True):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
        with one_thread(False):
            assert torch.get_num_threads() == 3


def test_every_attention_kernel_and_reduced_reduction_is_a_setting() -> None:
    """A backend that changes one of them is found out, so each has a name."""
    matmul = torch.backends.cuda.matmul
    before = settings()
    for change, name in (
        (torch.backends.cuda.enable_cudnn_sdp, "cudnn_sdp"),
        (torch.backends.cuda.enable_math_sdp, "math_sdp"),
        (lambda on: setattr(matmul, "allow_bf16_reduced_precision_reduction", on), "bf16_reduced_precision_reduction"),
        (lambda on: setattr(matmul, "allow_fp16_reduced_precision_reduction", on), "fp16_reduced_precision_reduction"),
        (lambda off: setattr(matmul, "allow_fp16_accumulation", not off), "fp16_accumulation"),
    ):
        change(False)
        try:
            assert {key for key, value in settings().items() if value != before.get(key)} == {name}
        finally:
            change(True)
    assert settings() == before


def other_flags(flags: Flags) -> Flags:
    """Each flag with another value than it has, and at least one attention kernel."""
    return replace(
        flags,
        threads=flags.threads + 1,
        float32_matmul_precision="high" if flags.float32_matmul_precision == "highest" else "highest",
        math_sdp=True,
        inductor=tuple((name, not value) for name, value in flags.inductor),
        **{
            entry.name: not getattr(flags, entry.name)
            for entry in fields(Flags)
            if isinstance(getattr(flags, entry.name), bool) and entry.name != "math_sdp"
        },
    )


@pytest.fixture
def inductor() -> Iterator[None]:
    import torch._inductor.config as _config  # noqa: F401  # its settings exist once it is imported

    before = read_flags()
    yield
    read_flags()
    apply_flags(before)


@pytest.mark.usefixtures("inductor")
class TestApplied:
    def test_every_flag_that_can_be_set_is_restored_exactly(self) -> None:
        one = read_flags()
        first = settings()
        other = other_flags(one)
        apply_flags(other)
        assert read_flags() == other
        second = settings()
        fixed = {"interop_threads", "cudnn_version", "cuda_version", "mkldnn", "memory_format", "math_sdp"}
        fixed.add("huge_pages")
        assert {name for name in first if first[name] == second[name]} == fixed
        apply_flags(one)
        assert settings() == first
        apply_flags(other)
        assert settings() == second

    def test_a_context_restores_and_what_is_applied_afterwards_holds(self) -> None:
        tf32 = other_flags(read_flags())
        apply_flags(tf32)
        with flags("fp32", 1):
            assert settings()["float32_matmul_precision"] == "highest"
            apply_flags(replace(tf32, threads=3, flash_sdp=not tf32.flash_sdp))
            assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (3, "high")
        assert read_flags() == replace(tf32, flash_sdp=not tf32.flash_sdp), (
            "as it was before, but what was set on purpose"
        )
        apply_flags(tf32)
        assert read_flags() == tf32
