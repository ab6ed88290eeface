"""Reads the NVIDIA GPUs that CUDA programs started by this process see, from NVML and without torch.

NVML lists every GPU of the machine by PCI bus; CUDA lists those of CUDA_VISIBLE_DEVICES in an order of its own (CUDA
C++ Programming Guide, "CUDA Environment Variables"). Everything here is in CUDA's order, so that the first GPU is the
one that torch calls `cuda:0`. A GPU in MIG mode is replaced by its instances, which have UUIDs of their own.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bakeoff.machine import cuda_devices
from bakeoff.models.types import Scalar

POWER_CAP = 0x04
SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Reasons for lower clocks that make measured times unstable."""
REASONS = {POWER_CAP: "power cap", **SLOWDOWNS}


VISIBLE = "CUDA_VISIBLE_DEVICES"
_DRIVER_DEADLINE_S = 30.0


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """Initialise NVML and yield its binding, or None if there is no driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def ask(library: Any, function: str, *arguments: Any) -> Any:
    """Call an NVML function and return its result; None if the GPU, its driver or a container does not support it.

    Virtual GPUs, MIG instances, WSL and boards that share the host's memory lack some facts (NVML API Reference,
    NVML_ERROR_NOT_SUPPORTED and NVML_ERROR_NO_PERMISSION), and older drivers some functions.
    """
    try:
        return getattr(library, function)(*arguments)
    except library.NVMLError:
        return None


def read_gpus() -> tuple[dict[str, Scalar], ...]:
    """Return name, UUID, driver, memory in bytes and compute capability of each visible GPU; empty without a driver.

    Facts that NVML does not report are left out, except the name.
    """
    with nvml() as library:
        if library is None:
            return ()
        found = {str(facts["uuid"]): facts for facts in _list_gpus(library)}
    return tuple(found[uuid] for uuid in _visible(tuple(found)))


class GpuMemory(NamedTuple):
    """Memory of a whole GPU or MIG instance in bytes, whoever uses it."""

    free: int
    used: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU or MIG instance in NVML; facts that NVML does not report are None."""

    library: Any
    handle: Any
    whole: Any
    """The GPU that a MIG instance is part of, which alone has clocks and power; `handle` itself for a whole GPU."""

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call `nvmlDeviceGet` followed by `name` for the whole GPU; None if that is not supported."""
        return ask(self.library, f"nvmlDeviceGet{name}", self.whole, *arguments)

    def memory(self) -> GpuMemory | None:
        found = ask(self.library, "nvmlDeviceGetMemoryInfo", self.handle)
        return None if found is None else GpuMemory(int(found.free), int(found.used))

    def processes(self) -> Mapping[int, int | None] | None:
        """Return the bytes that each process uses, by process id; None if NVML hides them, as it does from
        containers."""
        found = ask(self.library, "nvmlDeviceGetComputeRunningProcesses", self.handle)
        return None if found is None else {process.pid: process.usedGpuMemory for process in found}


@contextlib.contextmanager
def open_gpu(uuid: str) -> Iterator[Gpu | None]:
    """Yield the GPU or MIG instance with this UUID; None if there is none, or no driver."""
    with nvml() as library:
        yield None if library is None else find_gpu(library, uuid)


def read_memory(uuid: str) -> GpuMemory | None:
    """Return the free and used memory of a GPU now; None if NVML does not report it."""
    with open_gpu(uuid) as gpu:
        return None if gpu is None else gpu.memory()


def find_gpu(library: Any, uuid: str) -> Gpu | None:
    """Return the GPU or MIG instance with this UUID; None if there is none.

    The UUID has NVML's prefix, `GPU-` or `MIG-`, or none, as torch states it.
    """
    for prefix in ("",) if uuid.startswith(("GPU-", "MIG-")) else ("GPU-", "MIG-"):
        handle = ask(library, "nvmlDeviceGetHandleByUUID", prefix + uuid)
        if handle is not None:
            whole = ask(library, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
            return Gpu(library, handle, handle if whole is None else whole)
    return None


def _list_gpus(library: Any) -> Iterator[dict[str, Scalar]]:
    """Yield the facts of all GPUs, and of MIG instances in place of their GPU, in NVML's order."""
    driver = ask(library, "nvmlSystemGetDriverVersion")
    for index in range(ask(library, "nvmlDeviceGetCount") or 0):
        handle = ask(library, "nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            continue
        for part in _mig_instances(library, handle) or [handle]:
            uuid = ask(library, "nvmlDeviceGetUUID", part)
            if uuid is None:
                continue
            name = ask(library, "nvmlDeviceGetName", part) or ask(library, "nvmlDeviceGetName", handle)
            memory = ask(library, "nvmlDeviceGetMemoryInfo", part)
            capability = ask(library, "nvmlDeviceGetCudaComputeCapability", handle)
            told = {
                "name": name or "NVIDIA GPU",
                "uuid": uuid,
                "driver": driver,
                "memory_bytes": memory and int(memory.total),
                "compute_capability": capability and f"{capability[0]}.{capability[1]}",
            }
            yield {name: value for name, value in told.items() if value is not None}


def _mig_instances(library: Any, handle: Any) -> list[Any]:
    """Return the handles of a GPU's MIG instances; empty for a GPU that is not in MIG mode."""
    mode = ask(library, "nvmlDeviceGetMigMode", handle)
    if mode is None or mode[0] != library.NVML_DEVICE_MIG_ENABLE:
        return []
    count = ask(library, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    found = (ask(library, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(count))
    return [instance for instance in found if instance is not None]


def _visible(uuids: Sequence[str]) -> Sequence[str]:
    """Return those of NVML's UUIDs that CUDA lists, in CUDA's order."""
    asked = os.environ.get(VISIBLE)
    if asked is None and len(uuids) <= 1:
        return uuids
    told = _told_by_driver()
    if told is not None:
        by_id = {uuid.partition("-")[2]: uuid for uuid in uuids}
        return [by_id[name] for name in told if name in by_id]
    return chosen(asked, uuids)


def chosen(asked: str | None, uuids: Sequence[str]) -> Sequence[str]:
    """Return the `uuids` that a value of CUDA_VISIBLE_DEVICES selects; None selects all.

    The value lists indices or beginnings of UUIDs; the list ends at the first entry that does not select one more GPU.
    """
    if asked is None:
        return uuids
    found: list[str] = []
    for text in (part.strip() for part in asked.split(",")):
        if text.isdecimal():
            fitting = list(uuids[int(text) :][:1])
        else:
            fitting = [uuid for uuid in uuids if text and uuid.startswith(text)]
        if len(fitting) != 1 or fitting[0] in found:
            break
        found += fitting
    return found


def _told_by_driver() -> Sequence[str] | None:
    """Return the driver's UUIDs without prefixes, in CUDA's order; None if its library does not load or does not
    answer.

    They are read in a process of its own, because a process that has started CUDA cannot fork.
    """
    command = [sys.executable, "-I", "-S", str(Path(cuda_devices.__file__))]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_DRIVER_DEADLINE_S, check=True)
        return msgspec.json.decode(done.stdout, type=list[str])
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError):
        return None


_LEAST_DRIVER = {"12": 525, "13": 580}
"""Oldest driver for any runtime of a CUDA major version (CUDA Compatibility, "Minor Version Compatibility")."""
_CAPABILITIES = (
    ((7, 0), "Triton does not support it, so inductor and aoti fail; measure eager and cudagraph"),
    ((8, 0), "it has no bf16 arithmetic, so bf16 is emulated or refused; measure fp16 and fp32"),
    ((8, 9), "it has no fp8 arithmetic, so torchao's fp8 kinds except weight-only are refused; use int8"),
)
"""The least compute capability, and what is lacking below it. Sources: torch/_inductor/exc.py (GPUTooOldForTriton),
torch/cuda/__init__.py (is_bf16_supported), torchao/quantization/quant_api.py (is_sm_at_least_89)."""


_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
"""By the values of nvmlComputeMode_t (NVML API Reference)."""
_SWITCH = {0: "off", 1: "on"}
_MPS_FILE = "nvidia-cuda-mps-control.pid"
"""A file that the daemon of MPS keeps in $CUDA_MPS_PIPE_DIRECTORY, by default /tmp/nvidia-mps, until it stops; the
sockets beside it stay."""


def with_settings(gpu: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return a GPU's facts, and how it is set: compute mode, persistence mode, the enforced and the default power limit
    in watts, MIG mode, and whether MPS runs. Facts that NVML does not report are left out."""
    with open_gpu(str(gpu["uuid"])) as opened:
        if opened is None:
            return dict(gpu)
        mode, persistence, mig = map(opened.ask, ("ComputeMode", "PersistenceMode", "MigMode"))
        limit, usual = map(opened.ask, ("EnforcedPowerLimit", "PowerManagementDefaultLimit"))
    pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"
    told = {
        "compute_mode": _COMPUTE_MODES.get(mode),
        "persistence": _SWITCH.get(persistence),
        "power_limit_w": limit and round(limit / 1000),
        "default_power_limit_w": usual and round(usual / 1000),
        "mig": mig and _SWITCH.get(mig[0]),
        "mps": _SWITCH[os.path.exists(os.path.join(pipes, _MPS_FILE))],
    }
    return {**gpu, **{name: value for name, value in told.items() if value is not None}}


def gpu_limits(found: Sequence[Mapping[str, Scalar]], cuda: str) -> tuple[str, ...]:
    """Return a sentence for each limitation of these GPUs, given by `with_settings`, with the CUDA runtime `cuda`
    ("13.0"; "" if unknown)."""
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
    elif gpu.get("mig") == "on":
        yield (
            f"{name} is in MIG mode and has no instance, so CUDA finds no device in it; make one "
            "(nvidia-smi mig -cgi PROFILE -C), or turn MIG off (nvidia-smi -mig 0)"
        )

    mode, shared = gpu.get("compute_mode", "default"), gpu.get("mps") == "on"
    if mode == "prohibited":
        yield f"{name} takes no process (compute mode prohibited); allow them (nvidia-smi -c DEFAULT)"
    elif mode != "default" and not shared:
        yield (
            f"{name} takes one process at a time (compute mode {mode}), and a comparison runs two side by side; allow "
            "more (nvidia-smi -c DEFAULT)"
        )
    if shared:
        yield (
            f"{name} may be shared through MPS, so that calls of other clients run beside those that are timed; stop "
            "its daemon (echo quit | nvidia-cuda-mps-control)"
        )
    usual = int(str(gpu.get("default_power_limit_w", 0)))
    limit = int(str(gpu.get("power_limit_w", usual)))
    if limit < usual:
        yield f"{name} is limited to {limit} of {usual} W, which lowers its clocks; raise it (nvidia-smi -pl {usual})"
    if gpu.get("persistence") == "off":
        yield (
            f"{name}: persistence mode is off, so that the driver initialises it again for each process that finds it "
            "idle, which takes seconds; turn it on (nvidia-smi -pm 1)"
        )
