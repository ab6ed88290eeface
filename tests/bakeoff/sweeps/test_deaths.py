"""One sweep over backends that end their worker, or their build: each leaves a record that says how."""

import re
from dataclasses import replace

import pytest
from lab import FAST, Swept, check_sweep, sweep

from bakeoff.plan.request import Request
from bakeoff.record.schema import Status

pytestmark = pytest.mark.timeout(900)  # more than a dozen workers, each of which imports torch

# Backend to its status and what its reason must contain, in the order they run; eager last shows that it was harmed by
# none before it.
DYING: dict[str, tuple[Status, str]] = {
    "canaries:MISSING_LIBRARY": (
        "unavailable",
        r"\bno_such_module_anywhere\b.*pip install no-such-thing",
    ),
    "canaries:BF16_ONLY": ("unsupported", r"bf16-only\b.*\bfp32"),
    "canaries:UNAVAILABLE": ("unavailable", r"^libcanary.so is not installed; apt install canary$"),
    "canaries:UNSUPPORTED": ("unsupported", r"^canaries have no convolutions; use a bird$"),
    "canaries:SEGFAULT": ("crashed", r"SIGSEGV.*\bbuild"),
    "canaries:KILLED": ("crashed", r"SIGKILL.*\bbuild"),
    "canaries:HANG": ("timeout", r"\bbuild\b.*\b8 s; .*--deadline"),
    "canaries:HANG_C": ("timeout", r"\bbuild\b.*\b8 s; .*--deadline"),
    "canaries:HOST_OOM": ("oom", r"^MemoryError"),
    "canaries:TORCH_OOM": ("oom", r"can't allocate memory"),
    "canaries:RAISES_AT_BUILD": ("build_failed", r"^RuntimeError: no kernel in .*canaries.py for \?"),
    "canaries:EXITS_SILENTLY": ("crashed", r"exit code 0\b"),
    "canaries:EXITS_3": ("crashed", r"exit code 3\b.*\bbuild: giving up$"),
    "canaries:HOSTILE_RESULT": ("crashed", r"\bresult file\b"),
    "canaries:DEEP_RESULT": ("crashed", r"\bresult file\b"),
    "canaries:PIPE_RESULT": ("crashed", r"\bresult file\b"),
    "eager": ("ok", r"^$"),
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    policy = replace(FAST, build_deadline_s=8.0)
    request = Request("toy", backends=tuple(DYING), dtypes=("fp32",), device="cpu", policy=policy)
    return sweep(request, tmp_path_factory.mktemp("deaths"))


@pytest.mark.parametrize("backend", DYING)
def test_what_dies_says_how(swept: Swept, backend: str) -> None:
    status, reason = DYING[backend]
    measurement = swept.records()[backend].measurement
    assert measurement.status == status, measurement.reason
    assert re.search(reason, measurement.reason), measurement.reason
    assert "\n" not in measurement.reason
    assert (measurement.latency is not None) == (measurement.parity is not None) == (status == "ok")


def test_the_sweep_is_complete_and_leaves_nothing_behind(swept: Swept) -> None:
    check_sweep(swept)


def test_what_is_known_beforehand_starts_no_worker(swept: Swept) -> None:
    for backend in ("canaries:MISSING_LIBRARY", "canaries:BF16_ONLY"):
        record = swept.records()[backend]
        assert swept.progress.phases(str(record.variant)) == []
        assert record.wall_s == 0
        assert not (swept.cache / record.log).exists()
    assert "build" in swept.progress.phases(str(swept.records()["canaries:UNSUPPORTED"].variant))


def test_a_hang_costs_its_deadline_and_no_more(swept: Swept) -> None:
    for backend in ("canaries:HANG", "canaries:HANG_C"):
        record = swept.records()[backend]
        assert 8 <= record.wall_s < 60
        assert swept.progress.phases(str(record.variant))[-1] == "build"


def test_an_exception_keeps_its_traceback(swept: Swept) -> None:
    failed = swept.records()["canaries:RAISES_AT_BUILD"].measurement
    assert "RuntimeError: no kernel in" in failed.traceback
    assert "canaries.py" in failed.traceback
    assert "in _fail" in failed.traceback
    assert failed.weights
