"""Errors of outputs against references, with values worked out by hand."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bakeoff.models.component import Quantisation, TensorSpec
from bakeoff.worker.reference.error import Difference, difference, expected_dtype, limits, worst

FP32 = torch.float32
PLAIN = TensorSpec("y", (2,))


def of(found: list[float], wanted: list[float]) -> Difference:
    return difference(torch.tensor(found), torch.tensor(wanted, dtype=torch.float64), FP32)


def test_a_difference_by_hand() -> None:
    # found - wanted = (0, 3), |wanted| = 5, found . wanted = 9 + 28, |found| = sqrt(9 + 49)
    entry = of([3.0, 7.0], [3.0, 4.0])
    assert entry.problem is None
    assert entry.rel_l2 == pytest.approx(3 / 5)
    assert entry.max_abs == pytest.approx(3.0)
    assert entry.cosine == pytest.approx(37 / (math.sqrt(58) * 5))
    assert entry.mean_square_error == pytest.approx(9 / 2)
    assert entry.mean_square == pytest.approx(25 / 2)


def test_no_difference_at_all() -> None:
    entry = of([3.0, 4.0], [3.0, 4.0])
    assert (entry.rel_l2, entry.max_abs, entry.mean_square_error) == (0.0, 0.0, 0.0)
    assert entry.cosine == pytest.approx(1.0)
    verdict = worst(PLAIN, [entry], 0.0)
    assert verdict.passed
    assert (verdict.rel_l2, verdict.sqnr_db, verdict.problem) == (0.0, None, "")


@pytest.mark.parametrize(("dtype", "share"), [("int64", 0.25), ("int32", 0.25), ("uint8", 1 / 510)])
def test_of_indices_the_share_that_differs_counts(dtype: str, share: float) -> None:
    """The next index is as wrong as any other; the next of 256 levels is nearly the same."""
    wanted = torch.full((4,), 255, dtype=getattr(torch, dtype))
    found = wanted - torch.tensor([1, 0, 0, 0], dtype=wanted.dtype)
    entry = difference(found, wanted, wanted.dtype)
    assert entry.rel_l2 == pytest.approx(share)
    assert not worst(TensorSpec("y", (4,), dtype=dtype), [entry], 1e-3).passed


def test_the_opposite_has_cosine_minus_one() -> None:
    entry = of([-3.0, -4.0], [3.0, 4.0])
    assert entry.rel_l2 == pytest.approx(2.0)
    assert entry.cosine == pytest.approx(-1.0)


@pytest.mark.parametrize(("found", "rel_l2", "passed"), [([0.0, 0.0], 0.0, True), ([0.0, 1e-9], math.inf, False)])
def test_a_reference_of_zeros_allows_zeros_only(found: list[float], rel_l2: float, passed: bool) -> None:
    entry = of(found, [0.0, 0.0])
    assert entry.rel_l2 == rel_l2
    verdict = worst(PLAIN, [entry], 1.0)
    assert verdict.passed is passed
    assert verdict.rel_l2 == (0.0 if passed else None), "JSON has no infinity"
    assert verdict.sqnr_db is None


def test_differences_are_computed_in_double_precision() -> None:
    wanted = torch.tensor([1.0, 1e-12], dtype=torch.float64)
    entry = difference(torch.tensor([1.0, 0.0]), wanted, FP32)
    assert entry.max_abs == pytest.approx(1e-12)
    assert entry.rel_l2 == pytest.approx(1e-12)


def test_half_precision_does_not_overflow_the_comparison() -> None:
    found = torch.full((1000,), 60000.0, dtype=torch.float16)
    entry = difference(found, torch.full((1000,), 30000.0, dtype=torch.float64), torch.float16)
    assert entry.rel_l2 == pytest.approx(60000.0 / 30000.0 - 1, rel=1e-3)


@pytest.mark.parametrize(
    ("output", "fact"),
    [
        (torch.tensor([1.0, math.nan]), "1 of 2 "),
        (torch.tensor([math.inf, -math.inf]), "2 of 2 "),
        (torch.ones(1, 2), "[1, 2]"),
        (torch.ones(3), "[3]"),
        (torch.ones(2).half(), "torch.float16"),
        (torch.ones(2).double(), "torch.float64"),
        (torch.ones(2).long(), "torch.int64"),
        (None, "NoneType"),
        ([1.0, 1.0], "list"),
        (torch.nn.Parameter(torch.ones(2)), "Parameter"),
    ],
)
def test_what_is_not_comparable_is_a_problem(output: object, fact: str) -> None:
    entry = difference(output, torch.ones(2, dtype=torch.float64), FP32)
    assert entry.problem is not None
    assert fact in entry.problem
    verdict = worst(PLAIN, [of([1.0, 1.0], [1.0, 1.0]), replace(entry, where="inputs 1")], math.inf)
    assert not verdict.passed
    assert verdict.problem == f"y: {entry.problem} (inputs 1)"
    assert (verdict.rel_l2, verdict.max_abs, verdict.sqnr_db) == (None, None, None)


def test_an_infinity_must_have_the_sign_and_the_place_of_the_references() -> None:
    assert of([math.inf, 4.0], [math.inf, 4.0]).rel_l2 == 0.0
    assert of([-math.inf, 4.0], [math.inf, 4.0]).problem
    assert of([4.0, 4.0], [math.inf, 4.0]).problem


def test_a_shape_that_would_broadcast_is_a_problem() -> None:
    assert difference(torch.ones(2, 1), torch.ones(1, 2), FP32).problem
    assert difference(torch.ones(1), torch.ones(2), FP32).problem


def test_the_worst_set_decides() -> None:
    entries = [of([1.0, 0.0], [1.0, 0.0]), of([1.0, 0.2], [1.0, 0.0]), of([1.0, 0.1], [1.0, 0.0])]
    verdict = worst(PLAIN, entries, 0.15)
    assert not verdict.passed
    assert verdict.rel_l2 == pytest.approx(0.2)
    assert verdict.max_abs == pytest.approx(0.2)
    assert "2.00e-01" in verdict.problem
    assert "1.50e-01" in verdict.problem
    assert worst(PLAIN, entries, 0.21).passed


def test_the_limit_itself_passes() -> None:
    entry = of([1.25, 0.0], [1.0, 0.0])
    assert entry.rel_l2 == 0.25
    assert worst(PLAIN, [entry], 0.25).passed
    assert not worst(PLAIN, [entry], 0.2499).passed


def test_decibels_by_hand() -> None:
    # signal (1 + 1) / 2, noise (0.1^2 + 0.1^2) / 2: 20 dB; a picture spans 2, so its peak is 4: 10 log10(4 / 0.01)
    entry = of([1.1, -0.9], [1.0, -1.0])
    plain = worst(PLAIN, [entry], 1.0)
    picture = worst(TensorSpec("y", (2,), signal="picture"), [entry], 1.0)
    audio = worst(TensorSpec("y", (2,), signal="audio"), [entry], 1.0)
    assert plain.signal_db is None
    for verdict in (plain, picture, audio):
        assert verdict.sqnr_db == pytest.approx(20.0, abs=1e-4)
    assert picture.signal_db == pytest.approx(10 * math.log10(400), abs=1e-4)
    assert audio.signal_db == pytest.approx(20.0, abs=1e-4)


def test_limits_are_twice_eager_and_at_least_the_components_own() -> None:
    specs = [TensorSpec("exact", (1,)), TensorSpec("coarse", (1,))]
    found = limits(specs, {"exact": 1e-7, "coarse": 3e-3}, 1e-4, "bf16")
    assert found == {"exact": 1e-4, "coarse": 6e-3}


@pytest.mark.parametrize(
    ("quantisation", "least"),
    [
        ("dynamic", 10**-1.25),
        ("weight-only", 10**-1.25),
        ("static", 10**-0.75),
        ("fp8", 10**-0.75),
        ("nvfp4", 10**-0.5),
    ],
)
def test_a_quantised_output_may_be_as_far_off_as_its_own_class_allows(quantisation: Quantisation, least: float) -> None:
    """25, 15 or 10 dB of the signal, or twice eager's own error where that is more."""
    specs = [TensorSpec("exact", (1,)), TensorSpec("coarse", (1,))]
    found = limits(specs, {"exact": 1e-7, "coarse": 0.4}, 1e-4, "bf16", quantisation)
    assert found == {"exact": pytest.approx(least), "coarse": 0.8}


@pytest.mark.parametrize(
    ("keep", "dtype", "expected"),
    [
        (False, "bf16", torch.bfloat16),
        (True, "bf16", torch.float32),
        (True, "fp16", torch.float32),
        (True, "fp64", torch.float64),
        (False, "fp32", torch.float32),
        (False, "given", torch.float32),
    ],
)
def test_an_output_that_stays_fp32(keep: bool, dtype: str, expected: torch.dtype) -> None:
    assert expected_dtype(TensorSpec("y", (1,), keep_fp32=keep), dtype) == expected


def test_an_output_that_needs_a_gradient_or_is_strided_compares_alike() -> None:
    wanted = torch.arange(6.0).reshape(2, 3)
    found: Tensor = torch.arange(6.0).reshape(2, 3).t().contiguous().t().requires_grad_()
    assert not found.is_contiguous()
    assert difference(found, wanted, FP32).rel_l2 == 0.0
