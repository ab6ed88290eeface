"""Compares an artifact's host requirements with the facts of this host."""

import platform
from collections.abc import Iterable, Mapping
from dataclasses import replace

from packaging.version import Version

from bakeoff.backends.format import HostRequirement
from bakeoff.export.manifest import Manifest
from bakeoff.machine import host

_LIBRARIES = {
    "torch": "torch",
    "onnxruntime": "onnxruntime",
    "onnxruntime-gpu": "onnxruntime",
    "onnxruntime-ep-nv-tensorrt-rtx-cu13": "onnxruntime-ep-nv-tensorrt-rtx-cu13",
    "openvino": "openvino",
    "torch-tensorrt": "torch-tensorrt",
    "tensorrt": "tensorrt",
    "tensorrt-cu12": "tensorrt",
    "tensorrt-cu13": "tensorrt",
}
_ADVICE = {
    "cpu flags": "export it on a host with this CPU",
    "gpu": "export it on a host with this GPU",
    "compute capability": "export it on a host with a GPU like this one",
    "cuda": "install torch's build for that CUDA, or export it again",
    "driver": "update the NVIDIA driver",
    "machine": "export it on a host of this architecture",
}


_OF_MACHINES = ("machine", "cpu flags", "gpu", "compute capability")


def facts() -> dict[str, str]:
    """Return facts of this host, by the names that requirements use.

    Versions omit the part after a plus sign, which names a build of the same version (`2.13.0+cpu`).
    """
    machine = host.read_host()
    found = {
        "machine": platform.machine(),
        "system": platform.system(),
        "cpu": machine.cpu,
        "cpu flags": " ".join(machine.cpu_flags),
        "python": machine.python,
    }
    for distribution, version in host.read_versions().items():
        if distribution in _LIBRARIES:
            found[_LIBRARIES[distribution]] = version.partition("+")[0]
    if machine.gpus:
        names = {"name": "gpu", "driver": "driver", "compute_capability": "compute capability"}
        found |= {names[name]: str(value) for name, value in machine.gpus[0].items() if name in names}
        runtime = host.cuda_runtime()
        if runtime:
            found["cuda"] = runtime
    return found


def with_host_values(needs: Iterable[HostRequirement], here: Mapping[str, str]) -> tuple[HostRequirement, ...]:
    """Return the requirements without duplicates, each empty value filled in from the host's facts `here`.

    A requirement whose fact is unknown here is left out, since not even this host would meet it.
    """
    filled = (need if need.value else replace(need, value=here.get(need.what, "")) for need in needs)
    return tuple(dict.fromkeys(need for need in filled if need.value))


def machines(manifest: Manifest) -> tuple[str, ...]:
    """Return what a machine must be or have to load an artifact, beside libraries and drivers."""
    own = {need.what: need.value for need in manifest.needs if need.what in _OF_MACHINES}
    if "cpu flags" in own:
        own["cpu flags"] = f"of {manifest.built_on.get('cpu', 'the CPU that exported it')}"
    return tuple(f"{what} {value}" for what, value in own.items()) or (f"any {manifest.device}",)


def unmet(needs: Iterable[HostRequirement], here: Mapping[str, str]) -> tuple[str, ...]:
    """Return a text for each requirement that the host's facts `here` do not meet: expected, found, what to do."""
    return tuple(
        f"{need.what}: expected {_expected(need, here)}, found {here.get(need.what) or 'none'}; {_advice(need)}"
        for need in needs
        if not _met(need, here.get(need.what, ""))
    )


def _met(need: HostRequirement, found: str) -> bool:
    if need.rule == "is":
        return found == need.value
    if need.rule == "has":
        return set(need.value.split()) <= set(found.split())
    # Artifacts written before torch stated CUDA's version name a patch release of the runtime, 13.0.96.
    wanted = ".".join(need.value.split(".")[:2]) if need.what == "cuda" else need.value
    try:
        return Version(found) >= Version(wanted)
    except ValueError:  # not a version, or a number of more digits than Python reads
        return False


def _expected(need: HostRequirement, here: Mapping[str, str]) -> str:
    if need.rule == "has":
        return " ".join(sorted(set(need.value.split()) - set(here.get(need.what, "").split())))
    return f"{need.value} or newer" if need.rule == "at least" else need.value


def _advice(need: HostRequirement) -> str:
    if need.what in _ADVICE:
        return _ADVICE[need.what]
    sign = ">=" if need.rule == "at least" else "=="
    return f"run pip install '{need.what}{sign}{need.value}', or export it again"
