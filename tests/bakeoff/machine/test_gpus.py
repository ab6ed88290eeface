"""Which GPUs CUDA programs see, in which order, and what is left out where NVML does not tell."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_nvml import FakeGpu, FakeNvml, NVMLError_GpuIsLost, NVMLError_NoPermission, whole_gpu

from bakeoff.export import requirements
from bakeoff.machine import cuda_devices, gpus, host
from bakeoff.machine.floors import find_datasheet
from bakeoff.machine.identity import this_machine
from bakeoff.machine.locks import device_lock
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.process.environment import worker_environment

ONE, TWO, INSTANCE = (f"{digit * 8}-0000-0000-0000-000000000000" for digit in "123")
MIXED = (whole_gpu(ONE, "NVIDIA L4"), whole_gpu(TWO, "NVIDIA H200"))


@pytest.fixture(autouse=True)
def _fresh_facts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(gpus.VISIBLE, raising=False)
    caches = (host.read_host, this_machine)
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def install(
    monkeypatch: pytest.MonkeyPatch, present: Sequence[FakeGpu], cuda_order: Sequence[str] | None = None
) -> None:
    """GPUs that NVML lists, and the UUIDs that the driver tells; None: its library does not load."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(present))
    monkeypatch.setattr(gpus, "_told_by_driver", lambda: cuda_order)


def names() -> list[str]:
    return [str(facts["name"]) for facts in gpus.read_gpus()]


def test_all_facts_are_of_the_visible_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name, lock, machine, datasheet, free memory and requirements, with CUDA_VISIBLE_DEVICES=1 on a mixed host."""
    monkeypatch.setenv(gpus.VISIBLE, "1")
    h200 = whole_gpu(TWO, "NVIDIA H200", MemoryInfo=SimpleNamespace(total=141 << 30, free=140 << 30, used=0))
    install(monkeypatch, [MIXED[0], h200], [TWO])
    machine = host.read_host()
    assert machine.name("cuda") == this_machine("cuda").name == "NVIDIA H200"
    assert machine.gpus[0]["uuid"] == f"GPU-{TWO}"
    assert host.available_bytes("cuda") == 140 << 30
    sheet = find_datasheet(machine, "cuda")
    assert sheet is not None
    assert sheet.name == "NVIDIA H200"
    assert requirements.facts()["gpu"] == "NVIDIA H200"


def free(gibibytes: int) -> SimpleNamespace:
    return SimpleNamespace(total=141 << 30, free=gibibytes << 30, used=0)


def planned(monkeypatch: pytest.MonkeyPatch, visible: str) -> tuple[Plan, set[str]]:
    """The plan of a sweep on the one visible GPU of two, and the GPUs that it locks."""
    monkeypatch.setenv(gpus.VISIBLE, visible)
    present = [whole_gpu(ONE, "NVIDIA L4", MemoryInfo=free(1)), whole_gpu(TWO, "NVIDIA H200", MemoryInfo=free(140))]
    install(monkeypatch, present, [(ONE, TWO)[int(visible)]])
    host.read_host.cache_clear()
    this_machine.cache_clear()
    request = Request(
        "wm", presets=("1b",), workloads=("step",), backends=("eager",), dtypes=("bf16",), device="cuda", threads=1
    )
    locks = Path(os.environ["BAKEOFF_LOCKS"])
    with device_lock("cuda", lambda _text: None):
        held = {path.name for path in locks.glob("GPU-*.lock") if path.stat().st_size}
    return make_plan(request), held


def test_sweeps_on_two_gpus_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock, the machine of the records, the folder of compiled code, and the memory that decides `oom`."""
    host.read_versions()  # kept for the process, so with the real torch
    version = host._version
    monkeypatch.setattr(host, "_version", lambda name: version(name).removesuffix("+cpu"))
    (small, first), (large, second) = planned(monkeypatch, "0"), planned(monkeypatch, "1")
    assert (first, second - first) == ({f"GPU-{ONE}.lock"}, {f"GPU-{TWO}.lock"})
    (on_small,), (on_large,) = small.rows, large.rows
    assert on_small.precheck is not None
    assert on_small.precheck.status == "oom"
    assert on_large.precheck is None
    assert on_small.cache_folder != on_large.cache_folder
    assert small.key != large.key


def test_mig_instances_are_chosen_by_their_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA takes one instance for a process; without the driver's word all are listed, and a worker gets the first."""
    instances = [FakeGpu(f"MIG-{uuid}", {"MemoryInfo": free(9)}) for uuid in (TWO, INSTANCE)]
    split = whole_gpu(ONE, MigMode=(1, 1))
    split.instances = instances
    install(monkeypatch, [split])
    assert worker_environment(1)[gpus.VISIBLE] == f"MIG-{TWO}"
    for asked in (f"MIG-{INSTANCE}", "MIG-3"):
        monkeypatch.setenv(gpus.VISIBLE, asked)
        assert [facts["uuid"] for facts in gpus.read_gpus()] == [f"MIG-{INSTANCE}"]


@pytest.mark.parametrize(
    "error", [NVMLError_NoPermission(), NVMLError_GpuIsLost()], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize("function", ["Name", "MemoryInfo", "CudaComputeCapability", "MigMode"])
def test_no_error_of_nvml_ends_a_command(monkeypatch: pytest.MonkeyPatch, function: str, error: Exception) -> None:
    install(monkeypatch, [whole_gpu(ONE, **{function: error})])
    (found,) = gpus.read_gpus()
    assert found["uuid"] == f"GPU-{ONE}"
    everything = {"name", "uuid", "driver", "memory_bytes", "compute_capability"}
    absent = {"MemoryInfo": {"memory_bytes"}, "CudaComputeCapability": {"compute_capability"}}
    assert set(found) == everything - absent.get(function, set())
    assert host.available_bytes("cuda") > 0


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (None, [ONE, TWO]),
        ("", []),
        ("-1", []),
        ("1", [TWO]),
        ("1,0", [TWO, ONE]),
        ("0,7,1", [ONE]),
        (f"GPU-{TWO}", [TWO]),
        ("GPU-2", [TWO]),
        ("GPU-", []),
        ("1,1", [TWO]),
    ],
)
def test_without_the_drivers_word_the_variable_is_read(
    monkeypatch: pytest.MonkeyPatch, asked: str | None, found: list[str]
) -> None:
    if asked is not None:
        monkeypatch.setenv(gpus.VISIBLE, asked)
    install(monkeypatch, MIXED)
    assert [facts["uuid"] for facts in gpus.read_gpus()] == [f"GPU-{uuid}" for uuid in found]


def test_torch_for_cpus_has_no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, MIXED[:1])
    versions = {"torch": "2.13.0+cpu"}
    monkeypatch.setattr(host, "_version", lambda distribution: versions.get(distribution, ""))
    assert host.default_device() == "cpu"
    assert "built for CPUs" in str(host.missing_device("cuda"))
    versions["torch"] = "2.13.0"
    assert host.default_device() == "cuda"


def test_a_worker_sees_the_first_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it measures the GPU that was locked, whatever its program would take."""
    install(monkeypatch, MIXED, [TWO, ONE])
    assert worker_environment(1)[gpus.VISIBLE] == f"GPU-{TWO}"
    host.read_host.cache_clear()
    install(monkeypatch, MIXED[:1])
    assert gpus.VISIBLE not in worker_environment(1)


def test_a_gpu_in_mig_mode_is_replaced_by_its_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SimpleNamespace(total=10 << 30, free=9 << 30, used=1 << 30)
    instance = FakeGpu(f"MIG-{INSTANCE}", {"MemoryInfo": memory, "Name": "NVIDIA H100 80GB HBM3 MIG 1g.10gb"})
    split = whole_gpu(ONE, MigMode=(1, 1))
    split.instances = (instance,)
    install(monkeypatch, [split, MIXED[1]], [INSTANCE])
    (found,) = gpus.read_gpus()
    assert found["uuid"] == f"MIG-{INSTANCE}"
    assert found["memory_bytes"] == 10 << 30
    assert found["compute_capability"] == "9.0"
    assert host.available_bytes("cuda") == 9 << 30
    library = FakeNvml([split])
    gpu = gpus.find_gpu(library, INSTANCE)
    assert gpu is not None
    assert (gpu.handle, gpu.whole) == (instance, split), "torch's UUIDs have no prefix"
    whole = gpus.find_gpu(FakeNvml(MIXED), TWO)
    assert whole is not None
    assert whole.handle is whole.whole is MIXED[1]


def test_facts_that_nvml_refuses_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a virtual GPU, or a board that shares the host's memory."""
    install(monkeypatch, [FakeGpu(f"GPU-{ONE}", {"Name": "NVIDIA GB10"})])
    assert gpus.read_gpus() == ({"name": "NVIDIA GB10", "uuid": f"GPU-{ONE}", "driver": "580.159.03"},)
    assert host.available_bytes("cuda") == pytest.approx(host.available_bytes("cpu"), rel=0.2)
    assert "compute capability" not in requirements.facts()


def test_the_script_that_asks_the_driver_fails_quietly_without_one() -> None:
    if host.read_host().gpus:
        pytest.skip("this host has a driver")
    done = subprocess.run([sys.executable, "-I", "-S", cuda_devices.__file__], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


def test_the_scripts_answer_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"print('{json.dumps([TWO, ONE])}')")
    monkeypatch.setattr(cuda_devices, "__file__", str(script))
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(MIXED))
    assert names() == ["NVIDIA H200", "NVIDIA L4"]
