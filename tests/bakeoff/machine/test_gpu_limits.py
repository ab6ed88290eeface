"""What `doctor` says of GPUs and drivers that cannot do all that a sweep asks."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeGpu, FakeNvml, NVMLError_GpuIsLost, NVMLError_NoPermission, whole_gpu

from bakeoff.machine import gpus, host
from bakeoff.machine.gpus import gpu_limits, with_settings
from bakeoff.report.pages import doctor
from bakeoff.report.render import terminal

UUID, INSTANCE = (f"{digit * 8}-0000-0000-0000-000000000000" for digit in "12")
CUDA = "13.0"


@pytest.fixture(autouse=True)
def _fresh_facts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    host.read_host.cache_clear()
    yield
    host.read_host.cache_clear()


def limits(
    monkeypatch: pytest.MonkeyPatch, gpu: FakeGpu, driver: str = "580.159.03", cuda: str = CUDA
) -> Sequence[str]:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([gpu], driver))
    return gpu_limits([*map(with_settings, gpus.read_gpus())], cuda)


@pytest.mark.parametrize(
    ("capability", "cuda", "words"),
    [
        ((6, 1), CUDA, ["CUDA 13", "Triton", "bf16", "fp8"]),
        ((7, 0), CUDA, ["CUDA 13", "bf16", "fp8"]),
        ((7, 0), "12.6.77", ["bf16", "fp8"]),
        ((7, 5), CUDA, ["bf16", "fp8"]),
        ((8, 0), CUDA, ["fp8"]),
        ((8, 6), CUDA, ["fp8"]),
        ((8, 9), CUDA, []),
        ((10, 0), CUDA, []),
        ((12, 0), CUDA, []),
    ],
)
def test_compute_capability(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], cuda: str, words: Sequence[str]
) -> None:
    found = limits(monkeypatch, whole_gpu(UUID, "NVIDIA X", CudaComputeCapability=capability), cuda=cuda)
    assert len(found) == len(words)
    for text, word in zip(found, words, strict=True):
        assert text.startswith(f"NVIDIA X, compute capability {capability[0]}.{capability[1]}: ")
        assert word in text


@pytest.mark.parametrize(
    ("driver", "cuda", "least"),
    [("575.57.08", CUDA, "580"), ("470.82", "12.8.90", "525"), ("575.57.08", "12.8.90", ""), ("580.65.06", CUDA, "")],
)
def test_driver(monkeypatch: pytest.MonkeyPatch, driver: str, cuda: str, least: str) -> None:
    found = limits(monkeypatch, whole_gpu(UUID), driver, cuda)
    assert len(found) == bool(least)
    assert all(f"driver {driver} is older than {least}" in text for text in found)


def test_a_fact_that_nvml_does_not_tell_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits(monkeypatch, FakeGpu(f"GPU-{UUID}", {"Name": "NVIDIA X"}), cuda="") == ()
    (gpu,) = map(with_settings, gpus.read_gpus())
    assert gpu.keys() == {"name", "uuid", "driver", "mps"}
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([], driver=None))
    assert with_settings(gpu) == gpu, "the driver may be gone meanwhile"
    lost = whole_gpu(UUID, **dict.fromkeys(SETTINGS, NVMLError_GpuIsLost()))
    assert limits(monkeypatch, lost) == ()


SETTINGS = ("ComputeMode", "PersistenceMode", "EnforcedPowerLimit", "PowerManagementDefaultLimit", "MigMode")


@pytest.mark.parametrize(
    ("facts", "remedy"),
    [
        ({"ComputeMode": 1}, "nvidia-smi -c DEFAULT"),
        ({"ComputeMode": 2}, "nvidia-smi -c DEFAULT"),
        ({"ComputeMode": 3}, "nvidia-smi -c DEFAULT"),
        ({"ComputeMode": 9}, ""),
        ({"PersistenceMode": 0}, "nvidia-smi -pm 1"),
        ({"EnforcedPowerLimit": 500_000}, "nvidia-smi -pl 700"),
        ({"EnforcedPowerLimit": 699_900}, ""),
        ({"EnforcedPowerLimit": 750_000}, ""),
        ({"EnforcedPowerLimit": NVMLError_NoPermission()}, ""),
    ],
)
def test_settings(monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], remedy: str) -> None:
    found = limits(monkeypatch, whole_gpu(UUID, **facts))
    assert len(found) == bool(remedy)
    assert all(f"({remedy})" in text for text in found)


@pytest.mark.parametrize("mode", [0, 3])
def test_a_gpu_that_is_shared_through_mps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int) -> None:
    """MPS is what makes a GPU of one process at a time usable by several."""
    (tmp_path / "control").touch()
    assert len(limits(monkeypatch, whole_gpu(UUID, ComputeMode=mode))) == bool(mode), "a socket is left by a daemon"
    (tmp_path / "nvidia-cuda-mps-control.pid").touch()
    (text,) = limits(monkeypatch, whole_gpu(UUID, ComputeMode=mode))
    assert "(echo quit | nvidia-cuda-mps-control)" in text


def test_mig(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance is a part of a GPU; without one NVML lists the whole GPU, which CUDA does not."""
    part = FakeGpu(f"MIG-{INSTANCE}", {"Name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb"})
    split = whole_gpu(UUID, MigMode=(1, 1))
    (text,) = limits(monkeypatch, split)
    assert "NVIDIA H100 80GB HBM3 is in MIG mode and has no instance" in text
    assert "nvidia-smi -mig 0" in text
    split.instances = [part]
    (text,) = limits(monkeypatch, split)
    assert text.startswith("NVIDIA H100 80GB HBM3 MIG 1g.10gb is a MIG instance")


def test_doctor_tells_how_each_gpu_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    limited = whole_gpu(UUID, "NVIDIA L4", EnforcedPowerLimit=60_000, PowerManagementDefaultLimit=72_000)
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([limited]))
    found = doctor.read()
    assert found.gpus == (
        {
            **found.host.gpus[0], "compute_mode": "default", "persistence": "on", "power_limit_w": 60,
            "default_power_limit_w": 72, "mig": "off", "mps": "off",
        },
    )  # fmt: skip
    lines = terminal.render(doctor.page(found)).splitlines()
    (line,) = [line for line in lines if line.startswith("GPU: ")]
    assert line.endswith("power_limit_w 60, default_power_limit_w 72, mig off, mps off")


def test_doctor_names_missing_compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml([whole_gpu(UUID)]))
    version = host._version
    monkeypatch.setattr(host, "_version", lambda name: version(name).removesuffix("+cpu"))  # as on a GPU's host
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    lines = terminal.render(doctor.page(doctor.read())).splitlines()
    gap = "Triton needs a C compiler and found none (looked for $CC, gcc, clang); install gcc"
    (row,) = [line.split() for line in lines if line.startswith("eager ")]
    assert row == ["eager", "yes", "yes"]
    (names,) = [line.removesuffix(f" on cuda: {gap}").split(", ") for line in lines if line.endswith(gap)]
    assert {"inductor", "aoti"} <= set(names)
