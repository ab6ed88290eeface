"""What the visible GPUs, or the driver, cannot do of what a sweep asks of them, and what to do about it."""

from collections.abc import Iterator, Mapping, Sequence

from bakeoff.machine import gpus
from bakeoff.models.types import Scalar

_LEAST_DRIVER = {"12": 525, "13": 580}
"""Oldest driver for any runtime of a CUDA major version (CUDA Compatibility, "Minor Version Compatibility")."""
_CAPABILITIES = (
    ((7, 0), "Triton does not support it, so inductor and aoti fail; measure eager and cudagraph"),
    ((8, 0), "it has no bf16 arithmetic, so bf16 is emulated or refused; measure fp16 and fp32"),
    ((8, 9), "it has no fp8 arithmetic, so torchao's fp8 kinds except weight-only are refused; use int8"),
)
"""The least compute capability, and what is lacking below it. Sources: torch/_inductor/exc.py (GPUTooOldForTriton),
torch/cuda/__init__.py (is_bf16_supported), torchao/quantization/quant_api.py (is_sm_at_least_89)."""


def gpu_limits(found: Sequence[Mapping[str, Scalar]], cuda: str) -> tuple[str, ...]:
    """A sentence for each limit of these GPUs with CUDA's runtime `cuda` ("13.0.96"; "" where it is unknown)."""
    return tuple(text for gpu in found for text in _limits(gpu, cuda))


def _limits(gpu: Mapping[str, Scalar], cuda: str) -> Iterator[str]:
    name, uuid, major = gpu["name"], str(gpu["uuid"]), cuda.partition(".")[0]
    driver = str(gpu.get("driver", ""))
    least = _LEAST_DRIVER.get(major)
    if least and driver.partition(".")[0].isdecimal() and int(driver.partition(".")[0]) < least:
        yield f"{name}: driver {driver} is older than {least}, which CUDA {major} needs; update it"
    if "compute_capability" in gpu:
        numbers = str(gpu["compute_capability"]).split(".")
        capability = (int(numbers[0]), int(numbers[1]))
        if major == "13" and capability < (7, 5):  # pytorch/test-infra, pytorch_pkg_helpers/cuda.py, get_cuda_arch_list
            text = "torch for CUDA 13 has no kernels for it (7.5 or newer); install torch's build for CUDA 12"
            yield f"{name}, compute capability {gpu['compute_capability']}: {text}"
        for least_capability, text in _CAPABILITIES:
            if capability < least_capability:
                yield f"{name}, compute capability {gpu['compute_capability']}: {text}"
    if uuid.startswith("MIG-"):
        yield (
            f"{name} is a MIG instance, a part of a GPU: no datasheet states its rates, and other instances affect the "
            "clocks and the power that are recorded; to measure the whole GPU turn MIG off (nvidia-smi -mig 0)"
        )
    elif _lacks_instances(uuid):
        yield (
            f"{name} is in MIG mode and has no instance, so CUDA finds no device in it; make one "
            "(nvidia-smi mig -cgi PROFILE -C), or turn MIG off (nvidia-smi -mig 0)"
        )


def _lacks_instances(uuid: str) -> bool:
    """Whether a GPU that is listed whole is in MIG mode all the same."""
    with gpus.nvml() as library:
        handle = None if library is None else gpus.find_gpu(library, uuid)
        mode = None if handle is None else gpus.ask(library, "nvmlDeviceGetMigMode", handle)
        return mode is not None and mode[0] == library.NVML_DEVICE_MIG_ENABLE
