"""Real compilers on the toy are ok; a backend that falls back to inductor is detected, with a warm cache too."""

from dataclasses import replace
from pathlib import Path

import pytest
from lab import FAST, Swept, check_sweep, outcome, sweep

from bakeoff.backends.compilers import missing_cpp_compiler
from bakeoff.plan.request import Request

pytestmark = [
    pytest.mark.timeout(900),  # a C++ compiler works for some of them
    pytest.mark.skipif(missing_cpp_compiler() is not None, reason="inductor needs a C++ compiler"),
]

COMPILERS = ("onnxruntime[]", "openvino[]", "int8[least=0]+inductor[]")
FALLS, FALLS_AGAIN, HIDES = (
    f"selftest_backends.compiler_faults:{name}" for name in ("FALLS_TO_INDUCTOR", "FALLS_AGAIN", "HIDES_INDUCTOR")
)


def swept(folder: Path, *backends: str) -> Swept:
    policy = replace(FAST, build_deadline_s=300.0)
    return sweep(Request("toy", backends=backends, dtypes=("fp32",), device="cpu", threads=1, policy=policy), folder)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    return swept(tmp_path_factory.mktemp("compiled"), *COMPILERS, FALLS)


@pytest.mark.parametrize("number", range(len(COMPILERS)), ids=COMPILERS)
def test_a_compiler_that_works_is_ok(compiled: Swept, number: int) -> None:
    record = compiled.done.stored[number].record
    if record.status == "unavailable":
        pytest.skip(record.measurement.reason)
    made = record.measurement
    assert outcome(record) == "ok", made.reason
    busy = {"busy-host", "warm-up", "contention", "drift", "bimodal"}
    assert {finding.code for finding in made.findings} <= {"left-to-aten", *busy}
    assert made.proof is not None
    assert made.proof.facts["elementwise_dispatched"] == 0
    assert made.proof.facts["elementwise_dispatched_by_eager"] == 5
    assert set(made.proof.quantised) == ({"world"} if "int8" in COMPILERS[number] else set())


def test_the_sweep_of_compilers_is_complete(compiled: Swept) -> None:
    check_sweep(compiled)


def test_a_fallback_to_inductor_is_detected_also_when_the_graph_comes_from_a_cache(compiled: Swept) -> None:
    """Three backends with one graph: compiled, taken from inductor's cache, and with dynamo's counters cleared."""
    libraries = set(compiled.cache.rglob("*.so"))
    again = swept(compiled.cache.parent, FALLS_AGAIN, HIDES)
    for stored in (compiled.done.stored[-1], *again.done.stored):
        assert stored.record.status == "fell_back"
        assert stored.record.measurement.proof is not None
        assert "inductor" in stored.record.measurement.proof.fell_back
    assert set(compiled.cache.rglob("*.so")) == libraries, "C++ was compiled the first time, and not again"
