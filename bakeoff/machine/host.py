"""Reads the facts of this machine that affect measurements, without torch: CPU, GPUs, memory, versions, load."""

import contextlib
import json
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import NamedTuple

import psutil

import bakeoff
from bakeoff.backends.install import stated_by_torch, torch_version
from bakeoff.machine import cgroups, gpus
from bakeoff.machine.files import digest
from bakeoff.models.errors import BakeoffError
from bakeoff.models.types import Device, Dtype, Scalar, parse_device

DISTRIBUTIONS = (
    "torch",
    "triton",
    "torchao",
    "torch-tensorrt",
    "tensorrt",
    "tensorrt-cu12",
    "tensorrt-cu13",
    "nvidia-modelopt",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-ep-nv-tensorrt-rtx-cu13",
    "openvino",
    "numpy",
    "safetensors",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
)
_LOAD_MEMORY_S = 180
"""Seconds after which 5 % of an ended load are left in the load average of one minute."""
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
"""CPUs of the same core (Documentation/admin-guide/cputopology.rst)."""
_FLAGS = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "amx_fp16",
)
_BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}


@dataclass(frozen=True, slots=True)
class Host:
    """Facts of a machine that affect measurements; the host name is not included."""

    cpu: str
    cores: int
    logical_cores: int
    cpu_flags: tuple[str, ...]
    memory_bytes: int
    system: str
    python: str
    gpus: tuple[dict[str, Scalar], ...] = ()
    cpu_stepping: str = ""
    """Family, model and stepping; empty if the kernel does not report them."""
    all_flags: str = ""
    """Hash of all flags of the CPU, of which `cpu_flags` has those that matter to compilers."""
    hypervisor: str = ""
    """Vendor of a virtual machine, or `hypervisor` if the kernel does not report it; empty on bare metal."""

    def name(self, device: str) -> str:
        """Return the machine's name for the history and tables: the GPU for `cuda`, else the CPU and its cores."""
        if device == "cuda" and self.gpus:
            return str(self.gpus[0]["name"])
        return f"{self.cpu}, {self.cores} cores"


def _cpuinfo() -> dict[str, str]:
    """Return the facts of the first CPU in /proc/cpuinfo (proc(5))."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            name, _, value = line.partition(":")
            found.setdefault(name.strip(), value.strip())
    return found


def _hypervisor(flags: set[str]) -> str:
    """Return the hypervisor of this machine, if it shows without privileges; empty on bare metal."""
    if "hypervisor" not in flags:
        return ""
    for path in ("/sys/hypervisor/type", "/sys/class/dmi/id/sys_vendor"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            return file.read().strip()
    return "hypervisor"


@cache
def read_host() -> Host:
    """Return the facts of this machine, read once per process."""
    facts = _cpuinfo()
    flags = set((facts.get("flags") or facts.get("Features", "")).split())
    return Host(
        cpu=facts.get("model name") or platform.processor() or platform.machine(),
        cores=psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
        logical_cores=psutil.cpu_count() or 1,
        cpu_flags=tuple(flag for flag in (*_FLAGS, "bf16") if flag in flags),
        memory_bytes=psutil.virtual_memory().total,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        gpus=gpus.read_gpus(),
        cpu_stepping=" ".join(facts.get(key, "") for key in ("cpu family", "model", "stepping")).strip(),
        all_flags=digest(sorted(flags)),
        hypervisor=_hypervisor(flags),
    )


def huge_pages(setting: str = "/sys/kernel/mm/transparent_hugepage/enabled") -> str:
    """Return the kernel's setting of transparent huge pages: `always`, `madvise` (for memory that requests them) or
    `never`; "" if unknown (Documentation/admin-guide/mm/transhuge.rst)."""
    with contextlib.suppress(OSError), open(setting, encoding="ascii") as file:
        return file.read().partition("[")[2].partition("]")[0]
    return ""


def usable_cores() -> int:
    """Return how many physical cores this process may use: at most the CPUs of its affinity mask and of its groups'
    quota."""
    quota = cgroups.cpu_quota()
    share = read_host().cores if quota is None else max(1, int(quota))
    return min(len(os.sched_getaffinity(0)), read_host().cores, share)


SHARE = "BAKEOFF_SHARE"
"""Environment variable with the share of the CPUs of a process that measures on one of several GPUs: 1/4 is the second
of four."""


def take_share() -> None:
    """Bind this process to the share of the CPUs that the variable `SHARE` names, if there is one."""
    place, _, shares = os.environ.pop(SHARE, "").partition("/")
    if int(shares or 1) > 1:
        os.sched_setaffinity(0, share_of_cpus(int(place), int(shares)))


def share_of_cpus(place: int, shares: int) -> set[int]:
    """Return the CPUs of one of equal shares of the usable cores: whole cores, one beside the other.

    If there are fewer cores than shares, each share is one core, which others have too.
    """
    cores: dict[str, list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        core = str(cpu)
        with contextlib.suppress(OSError), open(_SIBLINGS.format(cpu), encoding="ascii") as file:
            core = file.read()
        cores.setdefault(core, []).append(cpu)
    usable = [*cores.values()][: usable_cores()]
    first, end = (number * len(usable) // shares for number in (place, place + 1))
    return {cpu for core in usable[first : max(end, first + 1)] for cpu in core}


def has_native_bf16() -> bool:
    """Return whether the CPU has bf16 instructions (AVX512_BF16, AMX or Arm BF16); without them bf16 is slow."""
    return bool(_BF16_FLAGS & set(read_host().cpu_flags))


def gpu_capability() -> tuple[int, int]:
    """Return the compute capability of the first GPU; 8.0 if there is none, or if NVML does not report it."""
    facts = read_host().gpus
    major, _, minor = str(facts[0].get("compute_capability", "8.0") if facts else "8.0").partition(".")
    return int(major), int(minor)


def half_dtype(device: Device) -> Dtype:
    """Return the 16-bit dtype that `device` computes fast: bf16, or fp16 on a GPU without bf16; fp32 on a CPU without
    bf16.

    GPUs have bf16 from compute capability 8.0 on (CUDA C++ programming guide, compute capabilities).
    """
    if device == "cpu":
        return "bf16" if has_native_bf16() else "fp32"
    return "bf16" if gpu_capability() >= (8, 0) else "fp16"


def default_device() -> Device:
    return "cpu" if missing_device("cuda") else "cuda"


def usable_device(asked: str) -> Device:
    """Return `asked`, or this host's default if it is empty. Raises BakeoffError if it is unknown or not available
    here."""
    device = parse_device(asked or default_device())
    problem = missing_device(device)
    if problem is not None:
        raise BakeoffError(f"--device {device}: {problem}", "missing-device")
    return device


def missing_device(device: str) -> str | None:
    """Return why `device` cannot be used here; None if it can."""
    if device != "cuda":
        return None
    if not read_host().gpus:
        if os.environ.get(gpus.VISIBLE) is not None:
            return f"{gpus.VISIBLE}='{os.environ[gpus.VISIBLE]}' leaves no NVIDIA GPU; unset it, or use --device cpu"
        return "NVML finds no NVIDIA GPU; use --device cpu, or a host with a GPU and its driver"
    if _version("torch").endswith("+cpu"):
        return f"torch {_version('torch')} is built for CPUs alone; install torch's CUDA build, or use --device cpu"
    return None


@cache
def read_versions(python: str = "") -> dict[str, str]:
    """Return the versions of the installed libraries that affect measurements, and of the C++ compiler.

    `python` is an interpreter whose libraries are meant; "": this one. Raises BakeoffError if it does not run.
    """
    found = _versions_of(python) if python else {name: _version(name) for name in DISTRIBUTIONS}
    versions = {"bakeoff": bakeoff.__version__} | {name: version for name, version in found.items() if version}
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    if compiler:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [compiler, "-dumpfullversion"], capture_output=True, text=True, timeout=10, check=False
            )
            versions["c++"] = f"{os.path.basename(compiler)} {done.stdout.strip()}"
    return versions


def _versions_of(python: str) -> dict[str, str]:
    code = (
        "import json; from importlib import metadata, util; torch = util.find_spec('torch'); "
        "found = {d.name.lower(): d.version for d in metadata.distributions() if d.name}; "
        "print(json.dumps([found, [*torch.submodule_search_locations] if torch else []]))"
    )
    try:
        done = subprocess.run([python, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=True)
        installed, folders = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        text = f"{python} is no Python 3.11 or newer that runs here: {error}; give the interpreter's path"
        raise BakeoffError(text, "bad-option") from error
    installed.setdefault("torch", stated_by_torch(folders).get("__version__", ""))
    return {name: installed.get(name, "") for name in DISTRIBUTIONS}


def cuda_runtime() -> str:
    """Return the version of CUDA that torch is built for, such as "13.0"; "" if it is built for none."""
    return stated_by_torch().get("cuda", "")


def _version(distribution: str) -> str:
    if distribution == "torch":
        return torch_version()
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


NODE = "BAKEOFF_NODE"
"""Environment variable with the name of this node, set if a driver on another node started the run."""


def node() -> str:
    """Return the name of this node of a cluster; "" if it has none."""
    return os.environ.get(NODE, "")


def load_average() -> float:
    return os.getloadavg()[0]


class Load(NamedTuple):
    """What ran on this host beside a measurement."""

    others: float
    """Number of other processes running: the load average of the last minute, or the CPUs that are busy if that is less
    and the average still includes an earlier measurement."""
    average: float

    def __str__(self) -> str:
        return f"{self.others:.1f} CPUs' worth of other work, load average {self.average:.1f}"


def present_load(idle_s: float) -> Load:
    """Return the load on this host `idle_s` seconds after another measurement ended."""
    average = load_average()
    return Load(min(average, busy_cpus()) if idle_s < _LOAD_MEMORY_S else average, average)


def busy_cpus(seconds: float = 1.0) -> float:
    """Measure how many CPUs' worth of time all processes use within the next `seconds`."""
    return psutil.cpu_percent(interval=seconds) / 100 * (psutil.cpu_count() or 1)


def available_bytes(device: str) -> int:
    """Return the free memory in bytes: for `cpu`, what host and control groups allow; for `cuda`, that of the measured
    GPU.

    A board that shares the host's memory has none of its own, so the host's counts. Raises BakeoffError without a GPU.
    """
    if device == "cuda":
        if not read_host().gpus:
            raise BakeoffError(f"--device cuda: {missing_device('cuda')}", "missing-device")
        of_gpu = gpus.read_memory(str(read_host().gpus[0]["uuid"]))
        if of_gpu is not None:
            return of_gpu.free
    free, allowed = psutil.virtual_memory().available, cgroups.available_bytes()
    return free if allowed is None else min(free, allowed)
