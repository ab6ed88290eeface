"""Real compilers on the toy are ok; a backend that falls back to inductor is detected, with a warm cache too."""

from dataclasses import replace

import pytest
from lab import FAST, Swept, check_sweep, sweep

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import NoOptions
from bakeoff.plan.request import Request

pytestmark = pytest.mark.timeout(900)  # a C++ compiler works for most of them

COMPILERS = ("inductor[freezing]", "aoti[]", "onnxruntime[]", "openvino[]", "int8[least=0]+inductor[]")
POLICY = replace(FAST, build_deadline_s=300.0)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    request = Request("toy", backends=COMPILERS, dtypes=("fp32",), device="cpu", threads=1, policy=POLICY)
    return sweep(request, tmp_path_factory.mktemp("compiled"))


@pytest.mark.parametrize("number", range(len(COMPILERS)), ids=COMPILERS)
def test_a_compiler_that_works_is_ok(compiled: Swept, number: int) -> None:
    record = compiled.done.stored[number].record
    if record.status == "unavailable":
        pytest.skip(record.measurement.reason)
    made = record.measurement
    assert (made.status, made.reason) == ("ok", "")
    assert {finding.code for finding in made.findings} <= {"busy-host", "warm-up", "left-to-aten"}
    assert made.proof is not None
    assert made.proof.facts["elementwise_dispatched"] == 0
    assert made.proof.facts["elementwise_dispatched_by_eager"] == 5
    assert set(made.proof.quantised) == ({"world"} if "int8" in COMPILERS[number] else set())


def test_the_sweep_of_compilers_is_complete(compiled: Swept) -> None:
    check_sweep(compiled)


def test_a_fallback_to_inductor_is_detected_when_the_graph_comes_from_a_cache(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Three backends with one graph: compiled, taken from inductor's cache, and with dynamo's counters cleared."""
    references = [f"bakeoff.selftest.compiler_faults:{name}" for name in ("FALLS_TO_INDUCTOR", "FALLS_AGAIN")]
    references.append("bakeoff.selftest.compiler_faults:HIDES_INDUCTOR")
    gap = resolve_backend(references[0]).unavailable(NoOptions(), "cpu")
    if gap:
        pytest.skip(gap)
    folder = tmp_path_factory.mktemp("falling")
    libraries = []
    for reference in references:
        request = Request("toy", backends=(reference,), dtypes=("fp32",), device="cpu", threads=1, policy=POLICY)
        swept = sweep(request, folder)
        (record,) = swept.records().values()
        assert record.status == "fell_back"
        assert record.measurement.proof is not None
        assert "inductor" in record.measurement.proof.fell_back
        libraries.append({path.relative_to(swept.cache) for path in swept.cache.rglob("*.so")})
    assert libraries[0], "C++ was compiled the first time"
    assert libraries[1] == libraries[0], "and not the second time"
