"""torch's global flags for a dtype: set here for references and measurements alike, and restored afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bakeoff.models.types import Scalar

TORCH_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@contextmanager
def flags(dtype: str, threads: int) -> Iterator[None]:
    """TF32 off unless `dtype` is tf32, no cuDNN autotuning, `threads` intra-op threads, no gradients."""
    before = (
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.backends.cudnn.benchmark,
        torch.get_num_threads(),
    )
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = dtype == "tf32"
    torch.backends.cudnn.benchmark = False
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
    """The flags in force, as records store them. `memory_format` is constant: no backend is given another one."""
    return {
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_version": torch.backends.cudnn.version(),
        "cuda_version": torch.version.cuda,
        "flash_sdp": torch.backends.cuda.flash_sdp_enabled(),
        "memory_efficient_sdp": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "mkldnn": torch.backends.mkldnn.is_available(),
        "memory_format": "contiguous",
    }
