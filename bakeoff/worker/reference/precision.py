"""In which dtype, and on which device, eager computes the references of a subject: fp64 wherever that is affordable.

A reference in fp32 on the device that is measured comes from the same kernels as the eager fp32 row: its error is then
zero by construction, and an error that all rows have in common is not seen.
"""

from dataclasses import dataclass

import torch
from torch import nn

from bakeoff.machine import host
from bakeoff.machine.datasheets import find_datasheet

_HOST_BYTES = 8 << 30
_GPU_SHARE = 0.7
"""Of the GPU's free memory; the rest is for activations and workspaces."""
_SECONDS = 60.0
_ON_CPU_SECONDS = 300.0
"""For a subject of a GPU whose reference does not fit there."""
_CPU_FLOPS = 1e10
"""Low estimate of fp64 FLOP/s."""
_UNKNOWN_GPU_FLOPS = 2e11
"""Of a GPU without a datasheet: a small consumer card's, with one fp64 unit for 64 of fp32."""
_OF_PEAK = 0.5


@dataclass(frozen=True, slots=True)
class Precision:
    """How references are computed."""

    dtype: str
    """fp64 or fp32."""
    device: str


def reference_precision(module: nn.Module, io_elements: int, flops: int, device: str) -> Precision:
    """fp64 on `device` where memory allows and the calls take at most a minute; for a GPU else fp64 on the CPU in at
    most five; else fp32 on `device`.

    `io_elements` are those of all inputs and outputs of one call, `flops` of all calls.
    """
    needed = 8 * (sum(parameter.numel() for parameter in module.parameters()) + 2 * io_elements)
    if needed <= _room(device) and flops / fp64_flops(device) <= _SECONDS:
        return Precision("fp64", device)
    on_cpu = needed <= host.available_bytes("cpu") / 2 and flops / fp64_flops("cpu") <= _ON_CPU_SECONDS
    return Precision("fp64", "cpu") if device == "cuda" and on_cpu else Precision("fp32", device)


def fp64_flops(device: str) -> float:
    """Low estimate of a device's fp64 FLOP/s."""
    if device == "cpu":
        return _CPU_FLOPS
    sheet = find_datasheet(host.read_host(), device)
    return _UNKNOWN_GPU_FLOPS if sheet is None else _OF_PEAK * sheet.flops["fp64"]


def _room(device: str) -> float:
    return _HOST_BYTES if device == "cpu" else _GPU_SHARE * torch.cuda.mem_get_info()[0]
