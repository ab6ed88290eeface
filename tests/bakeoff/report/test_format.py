"""Names of kernels, short."""

import pytest

from bakeoff.report.format import kernel_name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add"
            "<c10::BFloat16> >(at::TensorIteratorBase&, at::native::CUDAFunctor_add<c10::BFloat16> const&)::"
            "{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<c10::BFloat16> >(at::"
            "TensorIteratorBase&, at::native::CUDAFunctor_add<c10::BFloat16> const&)::{lambda(int)#1})",
            "elementwise_kernel<128, 4, <CUDAFunctor_add<BFloat16> >>",
        ),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float)",
            "vectorized_layer_norm_kernel<float, float, false>",
        ),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD (Device -> Device)"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
    ],
)
def test_a_kernel_is_named_without_what_all_of_torchs_have_in_common(name: str, shown: str) -> None:
    """Names as the profiler gave them on an H200."""
    assert kernel_name(name) == shown
