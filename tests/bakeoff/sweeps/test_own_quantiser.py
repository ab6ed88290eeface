"""A user's own quantising backend in a real sweep: its class, its layers and its budget."""

from dataclasses import replace

import pytest
from lab import FAST, Swept, sweep

from bakeoff.plan.request import Request
from bakeoff.record.schema import Record

BUILDS, PREPARES, COARSE = "rounding:BUILDS", "rounding:PREPARES+eager", "rounding:BUILDS[bits=2]"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    request = Request(
        "toy", backends=(BUILDS, PREPARES, COARSE), dtypes=("fp32",), device="cpu", policy=replace(FAST, trace=True)
    )
    return sweep(request, tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def by_backend(swept: Swept) -> dict[str, Record]:
    return {stored.record.variant.backend: stored.record for stored in swept.done.stored}


@pytest.mark.parametrize("backend", ["rounding", "rounding-first+eager"])
def test_it_is_measured_and_passes_its_own_budget(backend: str, by_backend: dict[str, Record]) -> None:
    record = by_backend[backend]
    assert record.status in ("ok", "unstable"), record.measurement.reason  # other tests run beside this one
    assert record.quantisation == "weight-only"
    assert record.measurement.proof is not None
    assert record.measurement.proof.quantised == {"world": "int8 weights"}
    assert record.measurement.parity is not None
    assert all(output.passed for output in record.measurement.parity.outputs)


def test_too_few_bits_fail_that_budget(by_backend: dict[str, Record]) -> None:
    record = by_backend["rounding[bits=2]"]
    assert (record.status, record.quantisation) == ("parity_failed", "weight-only")
