"""One sweep over backends that end their worker, are faulty, or unusual but correct: each row gets its status and says
why, and none harms another."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from lab import FAST, Swept, check_sweep, outcome, sweep

from bakeoff.machine import host, paths
from bakeoff.plan.request import Request
from bakeoff.process.supervisor import LOG_LIMIT_BYTES
from bakeoff.record.schema import MEASURED, Record, Status

pytestmark = pytest.mark.timeout(900)  # some three dozen workers

EXPECTED: dict[str, tuple[Status, str]] = {
    # These are refused before a worker starts.
    "canaries:MISSING_LIBRARY": ("unavailable", r"\bno_such_module_anywhere\b.*pip install no-such-thing"),
    "canaries:BF16_ONLY": ("unsupported", r"bf16-only\b.*\bfp32"),
    # These end the worker or the build.
    "canaries:UNAVAILABLE": ("unavailable", r"^libcanary.so is not installed; apt install canary$"),
    "canaries:UNSUPPORTED": ("unsupported", r"^canaries have no convolutions; use a bird$"),
    "canaries:SEGFAULT": ("crashed", r"SIGSEGV.*\bbuild"),
    "canaries:KILLED": ("crashed", r"SIGKILL.*\bbuild"),
    "canaries:KILLS_GUARD": ("crashed", r"\bguard\b"),
    "canaries:HANG_C": ("timeout", r"\bbuild\b.*\b5 s; .*--row-timeout"),
    "canaries:HOST_OOM": ("oom", r"^MemoryError"),
    "canaries:TORCH_OOM": ("oom", r"can't allocate memory"),
    "memory_at_import:BACKEND": ("oom", "MemoryError"),
    "leaving_at_import:BACKEND": ("build_failed", "SystemExit"),
    "canaries:RAISES_AT_BUILD": ("build_failed", r"^RuntimeError: no kernel in .*canaries.py for \?"),
    "canaries:EXITS_SILENTLY": ("crashed", r"exit code 0\b"),
    "canaries:EXITS_3": ("crashed", r"exit code 3\b.*\bbuild: giving up$"),
    "canaries:HOSTILE_RESULT": ("crashed", r"\bresult file\b"),
    "canaries:DEEP_RESULT": ("crashed", r"\bresult file\b"),
    "canaries:PIPE_RESULT": ("crashed", r"\bresult file\b"),
    "selftest_backends.tampering:EDITS_RESULT": ("crashed", ""),
    "bakeoff.selftest.faulty:SEALS_ITSELF": ("crashed", ""),
    # These give wrong numbers or no numbers.
    "canaries:RAISES_AT_CALL": ("call_failed", "RuntimeError"),
    "canaries:RAISES_AT_PROOF": ("unsupported", "canaries"),
    "canaries:NAN": ("parity_failed", "512 of 512"),
    "canaries:EXTRA_OUTPUT": ("parity_failed", "2 outputs"),
    "canaries:STALE": ("parity_failed", "1.00e-04"),
    "canaries:RECOMPILES": ("unstable", "compiles"),
    "rounding:BUILDS[bits=2]": ("parity_failed", ""),
    # These are unusual but correct.
    "canaries:GRANDCHILD": ("ok", ""),
    "canaries:NOISY": ("ok", ""),
    "canaries:NONSENSE": ("ok", ""),
    "canaries:WANDERS": ("ok", ""),
    "canaries:PREPARES+eager": ("ok", ""),
    "rounding:BUILDS": ("ok", ""),
    "rounding:PREPARES+eager": ("ok", ""),
    "eager": ("ok", ""),
}
"""Backend to the status of its row and what its reason must contain."""
POLICY = replace(FAST, build_deadline_s=5.0)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    request = Request("toy", backends=tuple(EXPECTED), dtypes=("fp32",), device="cpu", threads=1, policy=POLICY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CANARY", f"{Path.home()}/canary")
        return sweep(request, tmp_path_factory.mktemp("canaries"), note="about canaries")


@pytest.fixture(scope="module")
def records(swept: Swept) -> dict[str, Record]:
    """By the text that named the backend."""
    return dict(zip(EXPECTED, (stored.record for stored in swept.done.stored), strict=True))


@pytest.fixture
def record(records: dict[str, Record]) -> Record:
    """Plain eager's."""
    return records["eager"]


@pytest.mark.parametrize("backend", EXPECTED)
def test_a_row_has_the_status_of_its_fault_and_says_why(records: dict[str, Record], backend: str) -> None:
    status, reason = EXPECTED[backend]
    measurement = records[backend].measurement
    if status == "ok":
        assert outcome(records[backend]) == "ok", measurement.reason
        assert (measurement.status == "ok") == (measurement.reason == "")
    else:
        assert measurement.status == status, measurement.reason
        assert re.search(reason, measurement.reason), measurement.reason
    assert "\n" not in measurement.reason
    timed = (measurement.latency, measurement.parity, measurement.memory, measurement.proof)
    assert {each is not None for each in timed} == {measurement.status in MEASURED}, "numbers of a wrong row are kept"
    assert measurement.latency is None or len(measurement.latency.samples_ns) >= POLICY.min_samples


def test_the_sweep_is_complete_and_leaves_nothing_behind(swept: Swept) -> None:
    check_sweep(swept)


def test_what_is_known_beforehand_starts_no_worker(records: dict[str, Record], swept: Swept) -> None:
    for backend in ("canaries:MISSING_LIBRARY", "canaries:BF16_ONLY"):
        refused = records[backend]
        assert swept.progress.phases(str(refused.variant)) == []
        assert refused.wall_s == 0
        assert not (swept.cache / refused.log).exists()
    assert "build" in swept.progress.phases(str(records["canaries:UNSUPPORTED"].variant))


def test_a_hang_costs_its_deadline_and_no_more(records: dict[str, Record], swept: Swept) -> None:
    hanging = records["canaries:HANG_C"]
    assert POLICY.build_deadline_s <= hanging.wall_s < 60
    assert swept.progress.phases(str(hanging.variant))[-1] == "build"


def test_an_exception_keeps_its_traceback(records: dict[str, Record]) -> None:
    failed = records["canaries:RAISES_AT_BUILD"].measurement
    assert "RuntimeError: no kernel in" in failed.traceback
    assert "canaries.py" in failed.traceback
    assert "in _fail" in failed.traceback
    assert failed.weights


def test_a_process_left_running_is_killed_and_reported(records: dict[str, Record], record: Record) -> None:
    findings = {finding.code: finding.text for finding in records["canaries:GRANDCHILD"].measurement.findings}
    assert re.findall(r"\d+", findings["leftovers"]) == ["1"]
    assert "leftovers" not in {finding.code for finding in record.measurement.findings}


def test_a_log_is_bounded_and_the_rest_is_reported(records: dict[str, Record], swept: Swept) -> None:
    noisy = records["canaries:NOISY"]
    log = swept.cache / noisy.log
    dropped = (64 << 20) - LOG_LIMIT_BYTES
    assert LOG_LIMIT_BYTES / 2 < log.stat().st_size < LOG_LIMIT_BYTES + (1 << 17)
    text = {finding.code: finding.text for finding in noisy.measurement.findings}["log"]
    (stated,) = re.findall(r"\d+", text)
    assert abs(int(stated) - dropped) < 1 << 17
    assert b" bytes left out ...\n" in log.read_bytes()


def test_facts_of_a_preparation_are_merged(records: dict[str, Record]) -> None:
    prepared = records["canaries:PREPARES+eager"]
    assert prepared.measurement.proof is not None
    assert prepared.measurement.proof.facts["layers_prepared"] == 3
    assert prepared.measurement.settings["flash_sdp"] is False
    assert str(prepared.variant) == "toy:tiny.world/prepares+eager/fp32@cpu"
    assert not prepared.baseline


def test_a_users_own_quantiser_is_measured_by_the_budget_of_its_class(records: dict[str, Record]) -> None:
    """Two bits are too few for it."""
    for backend in ("rounding:BUILDS", "rounding:PREPARES+eager"):
        made = records[backend].measurement
        assert made.proof is not None
        assert made.proof.quantised == {"world": "int8 weights"}
        assert made.parity is not None
        assert all(output.passed for output in made.parity.outputs)
    assert {entry.quantisation for backend, entry in records.items() if "rounding" in backend} == {"weight-only"}


def test_a_record_says_what_was_measured(record: Record, records: dict[str, Record], swept: Swept) -> None:
    entry = next(entry for entry in swept.plan.rows if str(entry.variant) == str(record.variant))
    assert str(record.variant) == "toy:tiny.world/eager/fp32@cpu"
    assert record.config_id == entry.config_id
    assert record.config == {"width": 32, "length": 16}
    assert (record.batch, record.weight_seed, record.input_seed, record.threads) == (1, 0, 0, 1)
    assert (record.label, record.checkpoint, record.note, record.baseline) == ("toy", "", "about canaries", True)
    assert record.parameters == swept.plan.component.preset("tiny").parameters
    assert record.policy == POLICY
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", record.created)
    assert record.measurement.weights
    assert len({kept.config_id for kept in records.values()}) == len(EXPECTED)


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
    assert list(record.phase_s)[:4] == ["start", "import", "weights", "build"]
    assert sum(record.phase_s.values()) == pytest.approx(record.wall_s, abs=0.5)


def test_samples_are_whole_nanoseconds(record: Record) -> None:
    latency, throughput = record.measurement.latency, record.measurement.throughput
    assert latency is not None
    assert throughput is not None
    for samples in (latency.samples_ns, latency.warmup_ns, throughput.samples_ns):
        assert samples
        assert all(type(sample) is int and sample > 0 for sample in samples)
    assert throughput.calls_per_sample >= 2
    assert latency.stopped in ("narrow", "modes", "cap", "samples")


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
