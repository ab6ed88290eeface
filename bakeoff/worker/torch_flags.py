"""torch's global flags for a dtype: set here for references and measurements alike, and restored afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bakeoff.backends.torch_internals import read_inductor_settings
from bakeoff.models.types import Scalar

TORCH_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@contextmanager
def flags(dtype: str, threads: int, search: bool = False) -> Iterator[None]:
    """TF32 off unless `dtype` is tf32, `threads` intra-op threads, no gradients; with `search`, cuDNN's benchmark mode.

    In that mode PyTorch times cuDNN's algorithms at the first call of a convolution and keeps the fastest for its
    shape. Measured and exported engines and the noise floor of eager on CUDA get it, whatever their backend: ONNX
    Runtime's CUDA provider searches by default (cudnn_conv_algo_search=EXHAUSTIVE), TensorRT searches its tactics, and
    inductor and captured graphs call PyTorch's convolutions. The search ends with the first call, before anything is
    captured or timed. References do without: cuDNN's own choice is the same in every process, the fastest may not be.
    """
    before = (
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.get_num_threads(),
    )
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"
    torch.backends.cudnn.benchmark = search
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
        torch.backends.cudnn.benchmark = before[2]
        torch.set_num_threads(before[3])


def settings() -> dict[str, Scalar]:
    """The flags in force, as records store them. `memory_format` is constant: no backend is given another one.

    Where the process has imported inductor, those of its settings that torchao changes are included.
    """
    return {
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_version": torch.backends.cudnn.version(),
        "cuda_version": torch.version.cuda,
        "bf16_reduced_precision_reduction": bool(torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
        "fp16_reduced_precision_reduction": bool(torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction),
        "flash_sdp": torch.backends.cuda.flash_sdp_enabled(),
        "memory_efficient_sdp": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "cudnn_sdp": torch.backends.cuda.cudnn_sdp_enabled(),
        "math_sdp": torch.backends.cuda.math_sdp_enabled(),
        "mkldnn": torch.backends.mkldnn.is_available(),
        "memory_format": "contiguous",
        **read_inductor_settings(),
    }
