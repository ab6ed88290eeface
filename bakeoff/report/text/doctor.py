"""`bakeoff doctor`: the host, the versions, known-bad combinations, and why a backend cannot run here."""

from dataclasses import dataclass

from bakeoff.machine import host, paths
from bakeoff.machine.gpu_limits import gpu_limits
from bakeoff.machine.host import Host
from bakeoff.machine.known_issues import known_issues
from bakeoff.models.types import DEVICES, DTYPES
from bakeoff.models.words import counted
from bakeoff.report.format import INSTALL, MIB
from bakeoff.report.text.listing import BackendLine, read_backends


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """This host; `--json` prints it under these names."""

    host: Host
    versions: dict[str, str]
    load: float
    available_bytes: int
    native_bf16: bool
    known_bad: tuple[str, ...]
    gpu_limits: tuple[str, ...]
    backends: tuple[BackendLine, ...]
    runs: str
    cache: str


def read() -> Diagnosis:
    """Look at this host and its libraries."""
    versions = host.read_versions()
    devices = [device for device in DEVICES if not host.missing_device(device)]
    return Diagnosis(
        host=host.read_host(),
        versions=versions,
        load=host.load_average(),
        available_bytes=host.available_bytes("cpu"),
        native_bf16=host.has_native_bf16(),
        known_bad=tuple(text for device in devices for _, text in known_issues(versions, device, DTYPES)),
        gpu_limits=gpu_limits(host.read_host().gpus, host.cuda_runtime()),
        backends=read_backends(),
        runs=str(paths.runs_folder()),
        cache=str(paths.cache_folder()),
    )


def render(found: Diagnosis) -> str:
    """A line for each fact, then one for each backend and device."""
    machine = found.host
    busy = ": busy, so records will have a finding busy-host" if found.load > host.usable_cores() / 2 else ""
    lines = [
        f"CPU       {machine.cpu}, {counted(machine.cores, 'core')}, {host.usable_cores()} usable; "
        f"{' '.join(machine.cpu_flags)}",
        f"bf16      {'native' if found.native_bf16 else 'emulated on this CPU, so default sweeps leave it out'}",
        f"memory    {found.available_bytes // MIB} of {machine.memory_bytes // MIB} MiB free",
        f"load      {found.load:.2f}{busy}",
        f"system    {machine.system}, Python {machine.python}",
    ]
    lines += [f"GPU       {', '.join(f'{name} {value}' for name, value in gpu.items())}" for gpu in machine.gpus]
    if not machine.gpus:
        lines.append(f"GPU       none: {host.missing_device('cuda')}")
    lines.append("versions  " + ", ".join(f"{name} {version}" for name, version in found.versions.items()))
    if "torch" not in found.versions:
        lines.append(f"problem   torch is not installed. {INSTALL}")
    lines += [f"warning   {text}" for text in (*found.known_bad, *found.gpu_limits)]
    lines += [f"records   {found.runs}", f"caches    {found.cache}", ""]
    for line in found.backends:
        lines.append(f"{line.backend} on {line.device}: {line.why_not or 'ready'}")
    return "\n".join(lines)
