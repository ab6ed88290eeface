"""Measures the peak rates of this device: memory copies and reads, and matrix products and convolutions of each dtype.

Each figure is the fastest of 25 repeats after warm-up, as STREAM (McCalpin, 1995) and BLIS' test drivers report it; the
median is stored beside it and shows how busy the host was. For int8 only matrix products are measured.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Literal

import torch
import torch.nn.functional as F

from bakeoff.backends.torch_internals import int8_product
from bakeoff.machine.floors import Ceiling
from bakeoff.process.jobs import CeilingsJob, CeilingsResult
from bakeoff.worker.clocks.cpu_usage import measure_cpu_usage
from bakeoff.worker.reporter import Report
from bakeoff.worker.subject import synchronise
from bakeoff.worker.torch_flags import TORCH_DTYPES, flags

MIB = 1 << 20
_REPEATS = 25
_WARM_REPEATS = 3
_SIZES = {"cpu": (1, 8, 32, 128, 512), "cuda": (16, 64, 256, 1024, 4096)}
"""Sizes of the working set in MiB."""
_WIDTHS = {"cpu": (512, 1024, 2048), "cuda": (2048, 4096, 8192)}
_PICTURES = {"cpu": ((128, 32), (256, 64)), "cuda": ((256, 128), (512, 256))}
"""Channels, and pixels on a side, of the inputs of a 3x3 convolution."""
_LONGEST_S = 0.25
"""Longest time of one repeat; larger sizes are left out, because emulated dtypes would take minutes."""


def measure_ceilings(job: CeilingsJob, report: Report) -> CeilingsResult:
    """Measure the peak rates of `job.device` with `job.threads` threads.

    On two CPU cores this takes 8 s for fp32 and half a minute for all dtypes.
    """
    with measure_cpu_usage() as usage:
        found = tuple(_measure(job, report))
    return CeilingsResult(found, round(usage().other_share, 3))


def _measure(job: CeilingsJob, report: Report) -> Iterator[Ceiling]:
    device = job.device
    with flags("fp32", job.threads):
        for size in _SIZES[device]:
            report("ceilings", f"memory, {size} MiB")
            yield _copy(size * MIB, device)
            yield _read(size * MIB, device)
    for dtype in job.dtypes:
        if dtype == "int8":
            continue
        with flags(dtype, job.threads, search=device == "cuda"):
            report("ceilings", f"{dtype} products and convolutions")
            yield from _products(dtype, device)
            yield from _convolutions(dtype, device)
    if "int8" in job.dtypes:
        with flags("fp32", job.threads):
            report("ceilings", "int8 products")
            with suppress(RuntimeError):  # this device, or this build of torch, has no such kernel
                yield from _products("int8", device)


def _copy(size: int, device: str) -> Ceiling:
    """Measure the bytes per second of a copy; half of `size` is read, half is written."""
    source = torch.ones(size // 8, dtype=torch.float32, device=device)
    target = torch.zeros_like(source)
    seconds = _repeat(lambda: target.copy_(source), device)
    return Ceiling("copy", "fp32", size, size / min(seconds), size / median(seconds))


def _read(size: int, device: str) -> Ceiling:
    """Measure the bytes per second of reading `size` bytes, by the faster of a matrix-vector product and a sum."""
    matrix = torch.ones(size // 4 // 1024, 1024, dtype=torch.float32, device=device)
    vector = torch.ones(1024, dtype=torch.float32, device=device)
    tries = (_repeat(lambda: torch.mv(matrix, vector), device), _repeat(matrix.sum, device))
    seconds = min(tries, key=min)
    return Ceiling("read", "fp32", size, size / min(seconds), size / median(seconds))


def _products(dtype: str, device: str) -> Iterator[Ceiling]:
    """Measure products of square matrices; of int8, multiplications and additions count as FLOPs.

    There the right matrix is stored by columns, as a linear layer's weights are, because other layouts are several
    times slower.
    """
    for width in _WIDTHS[device]:
        if dtype == "int8":
            left, rows = (torch.randint(-127, 128, (width, width), dtype=torch.int8, device=device) for _ in range(2))
            work = partial(int8_product, left, rows.t())
        else:
            work = partial(torch.mm, *torch.randn(2, width, width, device=device).to(TORCH_DTYPES[dtype]))
        seconds = _repeat(work, device)
        yield _rate("product", dtype, 2 * width**3, seconds)
        if min(seconds) * 8 > _LONGEST_S:
            return


def _convolutions(dtype: str, device: str) -> Iterator[Ceiling]:
    for channels, side in _PICTURES[device]:
        picture = torch.randn(1, channels, side, side, device=device).to(TORCH_DTYPES[dtype])
        kernel = torch.randn(channels, channels, 3, 3, device=device).to(TORCH_DTYPES[dtype])
        if device == "cpu":
            picture, kernel = (tensor.to(memory_format=torch.channels_last) for tensor in (picture, kernel))
        seconds = _repeat(partial(F.conv2d, picture, kernel, padding=1), device)
        yield _rate("convolution", dtype, 2 * (channels * side * 3) ** 2, seconds)
        if min(seconds) * 16 > _LONGEST_S:
            return


def _rate(kind: Literal["product", "convolution"], dtype: str, flops: int, seconds: list[float]) -> Ceiling:
    return Ceiling(kind, dtype, flops, flops / min(seconds), flops / median(seconds))


def _repeat(work: Callable[[], object], device: str) -> list[float]:
    """Return the seconds of each of 25 repeats after three for warm-up; of two repeats if one takes over a second."""
    seconds: list[float] = []
    for number in range(_WARM_REPEATS + _REPEATS):
        started = time.perf_counter()
        work()
        synchronise(device)
        elapsed = time.perf_counter() - started
        if number >= _WARM_REPEATS or elapsed > 4 * _LONGEST_S:
            seconds.append(elapsed)
        if elapsed > 4 * _LONGEST_S and len(seconds) >= 2:
            break
    return seconds
