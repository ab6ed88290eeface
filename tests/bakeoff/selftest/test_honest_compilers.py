"""The real compilers on the toy are not accused of anything; one that falls to inductor is found with a warm cache."""

from dataclasses import replace

import pytest
from lab import FAST, Swept, check_sweep, sweep

from bakeoff.backends import resolve_backend
from bakeoff.backends.backend import NoOptions
from bakeoff.plan.request import Request

pytestmark = pytest.mark.timeout(900)  # a C++ compiler works for most of them

HONEST = ("inductor[freezing]", "aoti[]", "onnxruntime[]", "openvino[]", "int8[least=0]+inductor[]")
POLICY = replace(FAST, build_deadline_s=300.0)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    request = Request("toy", backends=HONEST, dtypes=("fp32",), device="cpu", threads=1, policy=POLICY)
    return sweep(request, tmp_path_factory.mktemp("honest"))


@pytest.mark.parametrize("number", range(len(HONEST)), ids=HONEST)
def test_an_honest_compiler_is_not_accused(honest: Swept, number: int) -> None:
    record = honest.done.stored[number].record
    if record.status == "unavailable":
        pytest.skip(record.measurement.reason)
    made = record.measurement
    assert (made.status, made.reason) == ("ok", "")
    assert {finding.code for finding in made.findings} <= {"busy-host", "warm-up"}
    assert made.proof is not None
    assert made.proof.facts["elementwise_dispatched"] == 0
    assert made.proof.facts["elementwise_dispatched_by_eager"] == 5
    assert set(made.proof.quantised) == ({"world"} if "int8" in HONEST[number] else set())


def test_the_sweep_of_compilers_is_complete(honest: Swept) -> None:
    check_sweep(honest)


def test_falling_to_inductor_is_found_when_the_graph_comes_from_a_cache(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Three canaries of one graph: compiled, taken from inductor's cache, and with dynamo's counters cleared."""
    names = ("FALLS_TO_INDUCTOR", "FALLS_AGAIN", "HIDES_INDUCTOR")
    references = tuple(f"bakeoff.selftest.compiler_faults:{name}" for name in names)
    gap = resolve_backend(references[0]).unavailable(NoOptions(), "cpu")
    if gap:
        pytest.skip(gap)
    request = Request("toy", backends=references, dtypes=("fp32",), device="cpu", threads=1, policy=POLICY)
    folder = tmp_path_factory.mktemp("falling")
    falls, again, hides = (stored.record.measurement for stored in sweep(request, folder).done.stored)
    assert falls.reason == again.reason == "what ran is inductor: it compiled 1 graph"
    assert hides.reason == "what ran is inductor: it compiled 1 of the graphs that a call runs"
    assert falls.build is not None
    assert again.build is not None
    assert again.build.build_s < falls.build.build_s / 2, "no C++ was compiled the second time"
