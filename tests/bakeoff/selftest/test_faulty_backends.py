"""One sweep over backends that are faulty, or unusual but correct: each row gets its status, and none harms another."""

import re
from pathlib import Path

import pytest
from lab import FAST, Swept, check_sweep, sweep

from bakeoff.machine import host, paths
from bakeoff.plan.request import Request
from bakeoff.process.supervisor import LOG_LIMIT_BYTES
from bakeoff.record.schema import MEASURED, Record, Status

pytestmark = pytest.mark.timeout(900)  # two dozen workers, each of which imports torch

FAULTY: dict[str, tuple[Status, str]] = {
    "canaries:RAISES_AT_CALL": ("call_failed", "RuntimeError"),
    "canaries:RAISES_AT_PROOF": ("unsupported", "canaries"),
    "canaries:NAN": ("parity_failed", "512 of 512"),
    "canaries:WRONG_SHAPE": ("parity_failed", "[1, 16, 31]"),
    "canaries:WRONG_DTYPE": ("parity_failed", "torch.float16"),
    "canaries:NO_OUTPUT": ("parity_failed", "0 outputs"),
    "canaries:EXTRA_OUTPUT": ("parity_failed", "2 outputs"),
    "canaries:BARE_TENSOR": ("parity_failed", "Tensor"),
    "canaries:CACHED_OUTPUT": ("parity_failed", "1.00e-04"),
    "canaries:STALE": ("parity_failed", "1.00e-04"),
    "canaries:HALF_PRECISION": ("parity_failed", "1.00e-04"),
    "canaries:STORED": ("parity_failed", "512 of 512"),
    "canaries:SILENT_EAGER": ("fell_back", "eager"),
    "canaries:RECOMPILES": ("unstable", "compiles"),
    "canaries:WRONG_AND_RECOMPILES": ("parity_failed", "512 of 512"),
    "canaries:ALL_WRONG": ("fell_back", "eager"),
    "canaries:GRANDCHILD": ("ok", ""),
    "canaries:NOISY": ("ok", ""),
    "canaries:NONSENSE": ("ok", ""),
    "canaries:WANDERS": ("ok", ""),
    "canaries:PREPARES+eager": ("ok", ""),
    "canaries:REPLAYS": ("ok", ""),
    "canaries:REPLAYS_COPIES": ("ok", ""),
    "eager": ("ok", ""),
}
"""Backend to the status of its row and one fact that its reason must name; a row that is ok has no reason."""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    request = Request("toy", backends=tuple(FAULTY), dtypes=("fp32",), device="cpu", threads=1, policy=FAST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CANARY", f"{Path.home()}/canary")
        return sweep(request, tmp_path_factory.mktemp("faulty"), note="about canaries")


@pytest.fixture
def record(swept: Swept) -> Record:
    """Plain eager's."""
    return swept.records()["eager"]


@pytest.mark.parametrize("backend", FAULTY)
def test_a_row_has_the_status_of_its_fault(swept: Swept, backend: str) -> None:
    status, fact = FAULTY[backend]
    measurement = swept.records()[backend].measurement
    assert measurement.status == status, measurement.reason
    assert fact in measurement.reason
    assert (measurement.reason == "") == (status == "ok")
    assert (measurement.latency is not None) == (status in MEASURED)
    assert (measurement.parity is not None) == (status in MEASURED)


def test_the_sweep_is_complete_and_leaves_nothing_behind(swept: Swept) -> None:
    check_sweep(swept)


def test_a_process_left_running_is_killed_and_reported(swept: Swept) -> None:
    findings = {finding.code: finding.text for finding in swept.records()["canaries:GRANDCHILD"].measurement.findings}
    assert re.findall(r"\d+", findings["leftovers"]) == ["1"]
    assert "leftovers" not in {finding.code for finding in swept.records()["eager"].measurement.findings}


def test_a_log_is_bounded_and_the_rest_is_reported(swept: Swept) -> None:
    noisy = swept.records()["canaries:NOISY"]
    log = swept.cache / noisy.log
    dropped = (1 << 30) - LOG_LIMIT_BYTES
    assert LOG_LIMIT_BYTES / 2 < log.stat().st_size < LOG_LIMIT_BYTES + (1 << 17)
    text = {finding.code: finding.text for finding in noisy.measurement.findings}["log"]
    (stated,) = re.findall(r"\d+", text)
    assert abs(int(stated) - dropped) < 1 << 17
    assert b" bytes left out ...\n" in log.read_bytes()


def test_numbers_of_a_wrong_row_are_kept(swept: Swept) -> None:
    for backend, (status, _) in FAULTY.items():
        measurement = swept.records()[backend].measurement
        if status in MEASURED:
            assert measurement.latency is not None
            assert len(measurement.latency.samples_ns) >= FAST.min_samples
            assert measurement.memory is not None
            assert measurement.proof is not None


def test_a_row_that_replays_a_capture_states_what_feeding_it_takes(swept: Swept) -> None:
    """Of one set of toy inputs: x and t, and the caches, which a graph reads at fixed addresses as well."""
    apart = swept.records()["canaries:REPLAYS"].measurement.input_copy
    within = swept.records()["canaries:REPLAYS_COPIES"].measurement.input_copy
    assert apart is not None
    assert within is not None
    assert (apart.in_call, within.in_call) == (False, True)
    assert apart.bytes == within.bytes == 4 * (16 * 32 + 1 + 2 * 64 * 32)
    assert len(apart.samples_ns) >= 20
    assert all(sample > 0 for sample in apart.samples_ns)
    assert within.median_ms is None
    assert swept.records()["eager"].measurement.input_copy is None


def test_facts_of_a_preparation_are_merged(swept: Swept) -> None:
    prepared = swept.records()["canaries:PREPARES+eager"]
    assert prepared.measurement.proof is not None
    assert prepared.measurement.proof.facts["layers_prepared"] == 3
    assert prepared.measurement.settings["flash_sdp"] is False
    assert str(prepared.variant) == "toy:tiny.world/prepares+eager/fp32@cpu"
    assert not prepared.baseline


def test_a_record_says_what_was_measured(record: Record, swept: Swept) -> None:
    entry = next(entry for entry in swept.plan.rows if str(entry.variant) == str(record.variant))
    assert str(record.variant) == "toy:tiny.world/eager/fp32@cpu"
    assert record.config_id == entry.config_id
    assert record.config == {"width": 32, "length": 16}
    assert (record.batch, record.weight_seed, record.input_seed, record.threads) == (1, 0, 0, 1)
    assert (record.label, record.checkpoint, record.note, record.baseline) == ("toy", "", "about canaries", True)
    assert record.parameters == swept.plan.component.preset("tiny").parameters
    assert record.policy == FAST
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", record.created)
    assert record.measurement.weights
    assert len({kept.config_id for kept in swept.records().values()}) == len(FAULTY)


def test_a_record_says_where_and_with_what(record: Record, swept: Swept) -> None:
    assert record.load_before >= 0
    assert record.environment["OMP_NUM_THREADS"] == record.environment["MKL_NUM_THREADS"] == "1"
    assert record.environment["MALLOC_MMAP_MAX_"] == "0", "a call does not pay for pages that the one before gave back"
    assert record.environment["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    assert record.environment["TORCH_CANARY"] == ".../canary"
    assert record.versions == host.read_versions()
    assert {"torch", "bakeoff", "numpy"} <= set(record.versions)
    assert (record.commit, record.dirty) == paths.commit()
    assert record.host == host.read_host()
    assert record.measurement.settings["threads"] == 1
    assert record.measurement.settings["float32_matmul_precision"] == "highest"
    assert "other_cpu_share" in record.measurement.device_state
    assert (swept.cache / record.log).is_file()
    assert record.wall_s > 0


def test_samples_are_whole_nanoseconds(record: Record) -> None:
    latency, throughput = record.measurement.latency, record.measurement.throughput
    assert latency is not None
    assert throughput is not None
    for samples in (latency.samples_ns, latency.warmup_ns, throughput.samples_ns):
        assert samples
        assert all(type(sample) is int and sample > 0 for sample in samples)
    assert throughput.calls_per_sample >= 2
    assert latency.stopped in ("narrow", "cap", "samples")


def test_a_record_has_parity_memory_and_build_cost(record: Record) -> None:
    parity, memory, build = record.measurement.parity, record.measurement.memory, record.measurement.build
    assert parity is not None
    assert (parity.reference_dtype, parity.sets, parity.passed) == ("fp64", 4, True)
    (velocity,) = parity.outputs
    assert velocity.name == "velocity"
    assert velocity.rel_l2 is not None
    assert 0 < velocity.rel_l2 < velocity.limit == 1e-4
    assert memory is not None
    assert memory.weights_bytes == 4 * record.parameters
    assert memory.io_bytes == 4 * 4 * (16 * 32 + 1 + 2 * 64 * 32)
    assert memory.host_peak_bytes is not None
    assert memory.host_peak_bytes > memory.weights_bytes
    assert memory.device_peak_bytes is None
    assert build is not None
    assert (build.cache, build.warm_s) == ("none", None)
