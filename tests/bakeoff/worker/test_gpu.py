"""The same flow with real rows on a GPU."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from lab import FAST, Recorder, Swept, check_sweep, marked_folder, sweep
from records import started_bakeoff

from bakeoff.machine import host, paths
from bakeoff.machine.floors import find_datasheet, peak_bandwidth, peak_flops
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.record.schema import Measurement
from bakeoff.sweeps.compare import compare
from bakeoff.sweeps.describe import known_ceilings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not host.read_host().gpus, reason="no NVIDIA GPU answers NVML here"),
]

BACKENDS = ("eager[]", "cudagraph[]", "inductor[mode=default]", "inductor[mode=reduce-overhead]")
WORKLOADS = ("world", "picture")
DTYPES = ("fp32", "bf16")
VARIANTS = [
    f"toy:small.{workload}/{backend.replace('[mode=default]', '').removesuffix('[]')}/{dtype}@cuda"
    for workload in WORKLOADS
    for dtype in DTYPES
    for backend in BACKENDS
]
MIB = 1 << 20


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    request = Request(
        "toy",
        presets=("small",),
        workloads=WORKLOADS,
        backends=BACKENDS,
        dtypes=DTYPES,
        device="cuda",
        policy=FAST,
    )
    return sweep(request, tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="module")
def tf32(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    request = Request(
        "toy",
        presets=("small",),
        workloads=("world",),
        backends=("eager[]",),
        dtypes=("fp32", "tf32"),
        device="cuda",
        policy=FAST,
    )
    return sweep(request, tmp_path_factory.mktemp("tf32"))


def measured(swept: Swept, variant: str) -> Measurement:
    (found,) = (stored.record for stored in swept.done.stored if str(stored.record.variant) == variant)
    return found.measurement


def test_the_sweep_is_complete_and_leaves_nothing_behind(swept: Swept) -> None:
    assert [str(stored.record.variant) for stored in swept.done.stored] == VARIANTS
    check_sweep(swept)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_row_is_ok(swept: Swept, variant: str) -> None:
    measurement = measured(swept, variant)
    assert (measurement.status, measurement.reason) == ("ok", "")
    assert measurement.parity is not None
    assert measurement.parity.passed
    assert measurement.parity.reference_dtype == "fp64"


@pytest.mark.parametrize("variant", VARIANTS)
def test_device_memory_is_metered(swept: Swept, variant: str) -> None:
    memory = measured(swept, variant).memory
    assert memory is not None
    assert memory.device_meter
    assert memory.allocated_peak_bytes is not None
    assert memory.reserved_peak_bytes is not None
    assert memory.device_peak_bytes is not None
    assert memory.weights_bytes <= memory.allocated_peak_bytes <= memory.reserved_peak_bytes
    assert memory.reserved_peak_bytes < memory.device_peak_bytes
    assert memory.unexplained_bytes is not None
    if "/eager/" in variant:  # cuBLAS and cuDNN load their kernels; other processes may be on the device too
        assert abs(memory.unexplained_bytes) < 1024 * MIB


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_full_queue_is_no_slower_than_waiting_for_each_call(swept: Swept, variant: str) -> None:
    measurement = measured(swept, variant)
    assert measurement.latency is not None
    assert measurement.throughput is not None
    assert measurement.throughput.figures is not None
    assert measurement.latency.figures is not None
    assert measurement.throughput.figures.median_ms <= measurement.latency.figures.median_ms * 1.1


@pytest.mark.parametrize("variant", VARIANTS)
def test_clocks_power_and_throttling_are_recorded(swept: Swept, variant: str) -> None:
    state = measured(swept, variant).device_state
    assert {"sm_mhz", "memory_mhz", "power_w", "temperature_c", "throttle_reasons"} <= set(state)
    assert isinstance(state["sm_mhz"], int)
    assert state["sm_mhz"] > 0


def test_small_weights_are_measured_cold(swept: Swept) -> None:
    for variant in VARIANTS:
        assert "cold" in {finding.code for finding in measured(swept, variant).findings}


def test_tf32_is_a_dtype_of_its_own(tf32: Swept) -> None:
    plain, short = (measured(tf32, f"toy:small.world/eager/{dtype}@cuda") for dtype in ("fp32", "tf32"))
    assert (plain.status, short.status) == ("ok", "ok")
    assert plain.settings["float32_matmul_precision"] == "highest"
    assert short.settings["float32_matmul_precision"] == "high"
    assert (plain.settings["cudnn_allow_tf32"], short.settings["cudnn_allow_tf32"]) == (False, True)
    assert plain.settings["cudnn_benchmark"] is True, "as every measured row on CUDA"
    assert plain.parity is not None
    assert short.parity is not None
    exact, coarse = plain.parity.outputs[0].rel_l2, short.parity.outputs[0].rel_l2
    assert exact is not None
    assert coarse is not None
    assert exact < 1e-5 < coarse < 1e-2, "fp32 is fp32"
    assert len({stored.record.config_id for stored in tf32.done.stored}) == 2


def test_the_clocks_cost_little(swept: Swept) -> None:
    for variant in VARIANTS:
        overhead = measured(swept, variant).overhead
        assert overhead is not None
        assert 0 < overhead.latency_ns <= 20_000
        assert 0 < overhead.throughput_ns <= 5_000


@pytest.mark.alone
def test_every_fault_is_detected_on_a_gpu(tmp_path: Path) -> None:
    ran = started_bakeoff(
        "selftest", "selftest_backends.expected:MORE", "--device", "cuda", "--json", cwd=tmp_path, timeout=1500
    )
    assert [check for check in json.loads(ran.out)["checks"] if not check["passed"]] == []
    assert ran.code == 0


@pytest.mark.alone
def test_ceilings_are_near_the_datasheet_and_below_it(tmp_path: Path) -> None:
    found = known_ceilings("cuda", 1, tmp_path / "runs", tmp_path, Recorder())
    assert {entry.dtype for entry in found if entry.kind == "product"} == {"fp32", "tf32", "bf16", "fp16", "int8"}
    sheet = find_datasheet(host.read_host(), "cuda")
    if sheet is None:
        pytest.skip(f"no datasheet of {host.read_host().gpus[0]['name']} is known")
    assert 0.5 < peak_bandwidth(found, 4 << 30) / sheet.bytes_per_s < 1.0
    for dtype, rate in sheet.flops.items():
        assert 0.3 < peak_flops(found, dtype) / rate < 1.05


def test_two_live_workers_share_a_gpu(tmp_path: Path) -> None:
    request = Request(
        "toy",
        workloads=("picture",),
        backends=("eager[]", "inductor[mode=reduce-overhead]"),
        dtypes=("bf16",),
        device="cuda",
        policy=FAST,
    )
    with marked_folder(tmp_path):
        plan = make_plan(replace(request, ceilings=False, final_s=1.0))
        comparison = compare(plan, paths.runs_folder(), "", Recorder()).record
    assert comparison.how == "interleaved"
    assert (comparison.a.status, comparison.b.status) == ("ok", "ok")
    assert len(comparison.rounds) >= 20


def test_a_captured_graph_launches_once_what_eager_launches(swept: Swept) -> None:
    for workload in WORKLOADS:
        proof = measured(swept, f"toy:small.{workload}/cudagraph/bf16@cuda").proof
        assert proof is not None
        assert (proof.fell_back, proof.graphs) == ("", 1)
        assert int(str(proof.facts["captures"])) >= 2, "one for each set of inputs"
