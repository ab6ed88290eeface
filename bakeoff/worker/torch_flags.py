"""Sets torch's global flags for a dtype, for references and measurements alike, and restores them afterwards.

Engines of different dtypes in one process each need their own flags: dynamo guards on the precision of matrix products,
reduced-precision reductions and the number of threads, so that a call under another engine's flags compiles again.
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from bakeoff.backends.attention import FLASH, flash_implementation, use_flash_implementation
from bakeoff.backends.torch_internals import change_inductor_settings, read_inductor_settings
from bakeoff.machine import host
from bakeoff.models.types import Scalar

TORCH_DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


@dataclass(frozen=True, slots=True)
class Flags:
    """Global flags of torch for one build and its calls: those of `settings` that can be set, by the same names.

    Whether gradients are recorded is not among them.
    """

    threads: int
    float32_matmul_precision: str
    cudnn_allow_tf32: bool
    cudnn_benchmark: bool
    bf16_reduced_precision_reduction: bool
    fp16_reduced_precision_reduction: bool
    flash_sdp: bool
    memory_efficient_sdp: bool
    cudnn_sdp: bool
    math_sdp: bool
    flash_attention: str
    fp16_accumulation: bool
    inductor: tuple[tuple[str, bool], ...] = ()
    """Settings of inductor that torchao changes, by name; empty if inductor was not imported yet."""


_UNUSUAL: Mapping[str, Scalar] = {FLASH: "", "fp16_accumulation": False}
"""Values with which these flags are left out of records: what no row had before a backend offered it."""
_applied: Flags | None = None
"""Flags last read or applied here, which should be in force; None if unknown. `read_flags` corrects them."""


def read_flags() -> Flags:
    """Return the flags in force. Call it after a build, and after other code that may have changed flags by itself."""
    global _applied
    matmul, attention = torch.backends.cuda.matmul, torch.backends.cuda
    found = Flags(
        threads=torch.get_num_threads(),
        float32_matmul_precision=torch.get_float32_matmul_precision(),
        cudnn_allow_tf32=torch.backends.cudnn.allow_tf32,
        cudnn_benchmark=torch.backends.cudnn.benchmark,
        bf16_reduced_precision_reduction=bool(matmul.allow_bf16_reduced_precision_reduction),
        fp16_reduced_precision_reduction=bool(matmul.allow_fp16_reduced_precision_reduction),
        flash_sdp=attention.flash_sdp_enabled(),
        memory_efficient_sdp=attention.mem_efficient_sdp_enabled(),
        cudnn_sdp=attention.cudnn_sdp_enabled(),
        math_sdp=attention.math_sdp_enabled(),
        flash_attention=flash_implementation(),
        fp16_accumulation=bool(getattr(matmul, "allow_fp16_accumulation", False)),
        inductor=tuple(read_inductor_settings().items()),
    )
    _applied = found
    return found


def apply_flags(flags: Flags) -> None:
    """Set the flags that differ from those last applied or read; cheap if none does, so call it before every call.

    It does not notice flags that other code has set since then: call `read_flags` after such code. If `flags` was read
    before inductor was imported, inductor's settings stay as they are.
    """
    global _applied
    if flags is _applied or flags == _applied:
        return
    before = read_flags() if _applied is None else _applied
    _applied = None  # unknown if one of the setters fails
    for entry in fields(Flags):
        value = getattr(flags, entry.name)
        if value != getattr(before, entry.name):
            _SETTERS[entry.name](value)
    _applied = flags


def _set_matmul(name: str) -> Callable[[bool], None]:
    return lambda value: setattr(torch.backends.cuda.matmul, name, value)


def _set_cudnn(name: str) -> Callable[[bool], None]:
    return lambda value: setattr(torch.backends.cudnn, name, value)


_SETTERS: Mapping[str, Callable[[Any], None]] = {
    "threads": torch.set_num_threads,
    "float32_matmul_precision": torch.set_float32_matmul_precision,
    "cudnn_allow_tf32": _set_cudnn("allow_tf32"),
    "cudnn_benchmark": _set_cudnn("benchmark"),
    "bf16_reduced_precision_reduction": _set_matmul("allow_bf16_reduced_precision_reduction"),
    "fp16_reduced_precision_reduction": _set_matmul("allow_fp16_reduced_precision_reduction"),
    "flash_sdp": torch.backends.cuda.enable_flash_sdp,
    "memory_efficient_sdp": torch.backends.cuda.enable_mem_efficient_sdp,
    "cudnn_sdp": torch.backends.cuda.enable_cudnn_sdp,
    "math_sdp": torch.backends.cuda.enable_math_sdp,
    "flash_attention": use_flash_implementation,
    "fp16_accumulation": _set_matmul("allow_fp16_accumulation"),
    "inductor": lambda values: change_inductor_settings(dict(values)),
}


@contextmanager
def flags(dtype: str, threads: int, search: bool = False) -> Iterator[None]:
    """Within this context, use `threads` intra-op threads, no gradients, and TF32 only if `dtype` is tf32.

    With `search`, cuDNN's benchmark mode is on: PyTorch times cuDNN's algorithms at the first call of a convolution and
    keeps the fastest for its shape. Measured and exported engines and the noise floor of eager on CUDA use it, whatever
    their backend: ONNX Runtime's CUDA provider searches by default (cudnn_conv_algo_search=EXHAUSTIVE), TensorRT
    searches its tactics, and inductor and captured graphs call PyTorch's convolutions. The search ends with the first
    call, before anything is captured or timed. References do not use it: cuDNN's own choice is the same in every
    process, the fastest algorithm may not be.

    Leaving the context restores these flags. Others, which a build changed on purpose, stay as the build set them.
    """
    before = read_flags()
    own: dict[str, Any] = {
        "threads": threads,
        "float32_matmul_precision": "high" if dtype == "tf32" else "highest",
        "cudnn_allow_tf32": dtype == "tf32",
        "cudnn_benchmark": search,
    }
    apply_flags(replace(before, **own))
    try:
        with torch.no_grad():
            yield
    finally:
        apply_flags(replace(read_flags(), **{name: getattr(before, name) for name in own}))


@contextmanager
def one_thread(wanted: bool) -> Iterator[None]:
    """Within this context, torch and the libraries that share its OpenMP runtime use one thread if `wanted`.

    For work beside other processes that keep the cores busy: there each operator of several threads waits for the one
    that the kernel has put aside. On two cores beside three workers, the figures of a decoder's references took 7.4 s
    with two threads and 0.15 s with one. OpenMP's own setting (omp_set_num_threads) is restored whole, while
    torch.set_num_threads would also end MKL's dynamic adjustment for good (aten/src/ATen/ParallelOpenMP.cpp).
    """
    threads = torch.get_num_threads()  # also lets torch decide on its number before it is changed here
    choose = getattr(ctypes.CDLL(None), "omp_set_num_threads", None) if wanted and threads > 1 else None
    if choose is None:
        yield
        return
    choose(1)
    try:
        yield
    finally:
        choose(threads)


def settings() -> dict[str, Scalar]:
    """Return the flags in force and facts such as library versions, as records store them.

    `memory_format` is constant: the layout of inputs, and of weights before the build. The layout of the built weights
    is an option of backends. `huge_pages` is the kernel's mode for the huge pages that workers request. If the process
    has imported inductor, its settings that torchao changes are included.
    """
    found = read_flags()
    return {
        **{
            entry.name: value
            for entry in fields(Flags)
            if entry.name != "inductor" and (value := getattr(found, entry.name)) != _UNUSUAL.get(entry.name)
        },
        "interop_threads": torch.get_num_interop_threads(),
        "cudnn_version": torch.backends.cudnn.version(),
        "cuda_version": torch.version.cuda,
        "mkldnn": torch.backends.mkldnn.is_available(),
        "memory_format": "contiguous",
        "huge_pages": host.huge_pages(),
        **dict(found.inductor),
    }
