"""Floors computed by hand, from datasheets and from ceilings, and rows below them."""

from dataclasses import replace
from typing import Any

import pytest
from answers import present
from ceilings import CEILINGS, MIB
from records import GPU_HOST, clock, measurement, record

from bakeoff.machine.floors import Ceiling
from bakeoff.machine.host import Host
from bakeoff.record.floor import below_floor, floor, floors, is_above, share
from bakeoff.record.schema import Record


def bounded(samples_ms: list[float], **changes: Any) -> Record:
    """3 GFLOP at 150 GFLOP/s are 20 ms; 600 MiB at 15 GB/s are 41.9 ms."""
    facts = {"flops": 3 * 10**9, "minimum_bytes": 600 * MIB, "ceilings": CEILINGS, **changes}
    return record(samples_ms=samples_ms, **facts)


def test_traffic_bounds_by_hand() -> None:
    (found,) = floors(bounded([50.0]))
    assert (found.bound, found.source) == ("traffic", "measured")
    assert found.compute_ms == pytest.approx(20.0)
    assert found.ms == found.traffic_ms == pytest.approx(600 * MIB / 15e9 * 1e3)


def test_compute_bounds_what_fits_a_cache() -> None:
    found = present(floor(bounded([50.0], minimum_bytes=MIB)))
    assert (found.bound, found.ms) == ("compute", pytest.approx(20.0))
    assert found.traffic_ms == pytest.approx(MIB / 90e9 * 1e3)


def test_share_of_the_floor() -> None:
    assert share(bounded([80.0])) == pytest.approx(600 * MIB / 15e9 * 1e3 / 80)
    assert share(record(samples_ms=[1.0])) is None
    assert share(record(status="crashed")) is None


def test_only_rows_that_are_ok_are_above_a_floor_that_is_none() -> None:
    """The floor is 41.9 ms; a row of another status may have skipped work."""
    assert is_above(bounded([40.0]))
    assert not is_above(bounded([42.0]))
    assert not is_above(bounded([40.0], made=measurement([40.0], "parity_failed")))
    assert not is_above(bounded([40.0]), tuple(replace(entry, best=2 * entry.best) for entry in CEILINGS))
    assert not is_above(bounded([]))


@pytest.mark.parametrize("changes", [{"ceilings": ()}, {"minimum_bytes": 0}, {"ceilings": CEILINGS[:4]}])
def test_no_floor_without_its_facts(changes: dict[str, Any]) -> None:
    assert floors(bounded([50.0], **changes)) == ()
    assert below_floor(bounded([0.001], **changes)) is None


def test_times_below_seven_tenths_of_a_measured_floor_are_rejected() -> None:
    bound_ms = 600 * MIB / 15e9 * 1e3
    assert below_floor(bounded([0.71 * bound_ms])) is None
    reason = present(below_floor(bounded([0.69 * bound_ms])))
    assert all(fact in reason for fact in ("0.7", "measured", "traffic"))


def test_the_faster_of_two_clocks_decides() -> None:
    made = measurement([50.0], throughput=clock([1.0]))
    assert below_floor(bounded([], made=made)) is not None
    assert below_floor(bounded([50.0])) is None
    assert below_floor(bounded([])) is None


def gpu(name: str) -> Host:
    return replace(GPU_HOST, gpus=({"name": name},))


def on_gpu(name: str, samples_ms: list[float], dtype: str) -> Record:
    made = record(samples_ms=samples_ms, dtype=dtype, host=gpu(name), flops=10**12, minimum_bytes=48 * 10**8)
    return replace(made, variant=replace(made.variant, device="cuda"))


def test_a_datasheet_bounds_known_gpus() -> None:
    """On an H200 4.8 GB take 1 ms at 4.8 TB/s; a TFLOP takes 1.01 ms in bf16 and 14.9 ms in fp32."""
    (half,) = floors(on_gpu("NVIDIA H200", [2.0], "bf16"))
    (full,) = floors(on_gpu("NVIDIA H200", [20.0], "fp32"))
    assert (half.source, half.traffic_ms) == ("datasheet", pytest.approx(1.0))
    assert half.ms == pytest.approx(1e12 / 989.5e12 * 1e3)
    assert (full.bound, full.ms) == ("compute", pytest.approx(1e12 / 67e12 * 1e3))
    reason = present(below_floor(on_gpu("NVIDIA H200", [0.9], "bf16")))
    assert all(fact in reason for fact in ("datasheet", "traffic"))
    assert below_floor(on_gpu("NVIDIA H200", [1.1], "bf16")) is None


def gpu_of(samples_ms: list[float], dtype: str = "fp32", **work: Any) -> Record:
    return replace(on_gpu("NVIDIA H200", samples_ms, dtype), minimum_bytes=48 * 10**6, **work)


def test_a_boost_clock_above_the_datasheets_is_believed() -> None:
    """A TFLOP in bf16 takes 1.0106 ms at 1830 MHz, and 0.934 ms at the highest clock, 1980 MHz."""
    assert below_floor(gpu_of([0.934], "bf16")) is None
    reason = present(below_floor(gpu_of([0.9], "bf16")))
    assert "0.9096 ms, 0.9 of the floor by datasheet compute" in reason


def test_convolutions_may_be_computed_with_a_quarter_of_the_multiplications() -> None:
    """A TFLOP in fp32 takes 14.93 ms; if all of it is in 3x3 convolutions Winograd's F(4x4, 3x3) takes 3.73 ms."""
    assert below_floor(gpu_of([3.8])) is not None, "a matrix product has no such algorithm that libraries use"
    assert below_floor(gpu_of([3.8], convolution_flops=10**12)) is None
    reason = present(below_floor(gpu_of([3.3], convolution_flops=10**12)))
    assert "allowing for fast convolution" in reason
    half = gpu_of([8.0], convolution_flops=10**12 // 2)
    assert below_floor(half) is not None, "half of the work at a quarter: 9.33 ms, 8.40 at the highest clock"
    assert below_floor(replace(half, measurement=measurement([8.6]))) is None


def test_traffic_has_no_fast_algorithm() -> None:
    """4.8 GB take 1 ms on an H200, however they are used; a measured floor by compute allows for convolutions too."""
    fast = replace(on_gpu("NVIDIA H200", [0.99], "bf16"), convolution_flops=10**12)
    reason = present(below_floor(fast))
    assert "less than 1.0000 ms, the floor by datasheet traffic" in reason
    assert below_floor(bounded([6.0], minimum_bytes=MIB)) is not None
    assert below_floor(bounded([6.0], minimum_bytes=MIB, convolution_flops=3 * 10**9)) is None
    assert below_floor(bounded([2.0], minimum_bytes=MIB, convolution_flops=3 * 10**9)) is not None
    assert below_floor(bounded([6.0], minimum_bytes=MIB, convolution_flops=2**60)) is None


INT8 = (*CEILINGS, Ceiling("product", "int8", 10**9, 600e9, 500e9))


@pytest.mark.parametrize(
    ("quantisation", "ceilings", "compute_ms"),
    [
        ("", INT8, 20.0),
        ("dynamic", INT8, 5.0),
        ("static", INT8, 5.0),
        ("dynamic", (*CEILINGS, Ceiling("product", "int8", 10**9, 50e9, 50e9)), 20.0),
        ("dynamic", CEILINGS, 0.0),
        ("weight-only", INT8, 0.0),
        ("fp8", INT8, 0.0),
    ],
)
def test_quantised_rows_take_the_ceilings_of_the_integers_they_multiply(
    quantisation: Any, ceilings: tuple[Ceiling, ...], compute_ms: float
) -> None:
    """3 GFLOP take 20 ms at 150 GFLOP/s and 5 ms at 600; integers that are slower than fp32 bound nothing."""
    (found,) = floors(bounded([50.0], quantisation=quantisation, ceilings=ceilings, minimum_bytes=MIB))
    assert found.compute_ms == pytest.approx(compute_ms)
    assert found.traffic_ms > 0


def test_pages_may_hold_a_record_against_other_ceilings_than_its_own() -> None:
    made = bounded([80.0])
    faster = tuple(replace(entry, best=2 * entry.best) for entry in CEILINGS)
    assert share(made, faster) == pytest.approx((share(made) or 0) / 2)
    assert share(made, ()) is None
    assert below_floor(replace(made, measurement=measurement([25.0]))) is not None


@pytest.mark.parametrize("flops", [0, 1, 2**63 - 1, 10**300])
@pytest.mark.parametrize("minimum_bytes", [0, 1, 2**63 - 1])
@pytest.mark.parametrize("best", [0.0, -1.0, 1e-300, 1e300])
def test_odd_figures_give_a_floor_or_none(flops: int, minimum_bytes: int, best: float) -> None:
    ceilings = tuple(replace(entry, best=best) for entry in INT8)
    for quantisation in ("", "dynamic", "weight-only"):
        made = bounded([50.0], flops=flops, minimum_bytes=minimum_bytes, ceilings=ceilings, quantisation=quantisation)
        assert all(found.ms >= 0 for found in floors(made))
        assert (share(made) or 0) >= 0
