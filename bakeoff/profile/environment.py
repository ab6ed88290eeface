"""Facts of the machine and the libraries that a session ran on, read without importing anything large."""

import contextlib
import os
import platform
import sys
from importlib import metadata

from bakeoff.record.session import GPU_MEMORY

LIBRARIES = ("torch", "triton", "numpy", "diffusers", "transformers", "tensorrt", "torch_tensorrt", "onnxruntime")
"""Versions are those of what is loaded: of what is installed beside, a session says nothing."""


def environment(device: str) -> dict[str, str]:
    """CPU, cores, system, versions, and name and memory of the GPU where torch has used it already."""
    found = {
        "cpu": _cpu(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "bakeoff": _installed("bakeoff"),
        "device": device or "cpu",
    }
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)[:100]
    return found | _gpu(device)


def _cpu() -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "0"


def _gpu(device: str) -> dict[str, str]:
    """Name of the CUDA device and its memory in MiB; empty where none was asked for, or CUDA was not used."""
    cuda = sys.modules.get("torch.cuda")
    if not device.startswith("cuda") or cuda is None:
        return {}
    with contextlib.suppress(Exception):  # a name is not worth an error of CUDA
        if cuda.is_initialized():
            facts = cuda.get_device_properties(device)
            return {"gpu": str(facts.name), GPU_MEMORY: str(facts.total_memory >> 20)}
    return {}
