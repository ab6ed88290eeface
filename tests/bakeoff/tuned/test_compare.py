"""A user's pipeline end to end, with the original and with the programs."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="artifacts are opened with torch")

import torch
from toys import LIBRARY_WARNINGS
from tuned_artifacts import Denoiser, seeded, write_artifact

import bakeoff
from bakeoff.models.errors import BakeoffError
from bakeoff.record.statistics import summarise_ns
from bakeoff.record.verdict import pair_ratio
from bakeoff.tuned.apply import Applied
from bakeoff.tuned.compare import EndToEnd

pytestmark = LIBRARY_WARNINGS
X, LABEL = torch.ones(2, 4, 8), torch.tensor([3, 5])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    write_artifact(seeded(Denoiser), folder / "unet", (X, LABEL, 0.5), names=("x", "label", "scale"), place="unet")
    return folder / "unet"


@pytest.fixture
def pipe() -> SimpleNamespace:
    return SimpleNamespace(unet=seeded(Denoiser))


@pytest.fixture
def applied(pipe: SimpleNamespace, folder: Path) -> Iterator[Applied]:
    with torch.no_grad(), bakeoff.apply(pipe, folder) as made:
        yield made


def test_outputs_and_calls_are_compared(pipe: SimpleNamespace, applied: Applied) -> None:
    order: list[bool] = []

    def run() -> dict[str, Any]:
        order.append("forward" in vars(pipe.unet))
        samples = [pipe.unet(X * step, LABEL, 0.5).sample for step in range(3)]
        return {"images": [samples[-1].numpy()], "sum": float(samples[0].sum()), "name": "a cat"}

    found = applied.compare(run, rounds=7)
    assert (found.calls_tuned, found.calls_original, found.reasons) == (21, 0, {})
    assert (len(found.original_ns), len(found.tuned_ns), found.ratio.pairs) == (7, 7, 7)
    timed = order[-14:]
    assert all(set(timed[place : place + 2]) == {True, False} for place in range(0, 14, 2)), "in pairs"
    assert found.outputs.rel_l2 is not None
    assert found.outputs.rel_l2 < 1e-5
    assert found.itself.rel_l2 == 0.0
    assert found.ratio.interval is not None
    json.dumps(found.as_dict())
    text = str(found)
    assert "in this process, on this machine as it is now" in text
    assert "21 of 21 tuned" in text
    assert "forward" in vars(pipe.unet), "it stays applied"


def test_which_of_a_pair_is_first_is_drawn(pipe: SimpleNamespace, applied: Applied) -> None:
    order: list[bool] = []
    applied.compare(lambda: order.append("forward" in vars(pipe.unet)) or 1.0, rounds=40)
    assert set(order[-80::2]) == {True, False}


@pytest.mark.parametrize("seed", [None, lambda: torch.manual_seed(1)])
def test_random_output_is_said_to_differ_from_itself(
    seed: Callable[[], object] | None, pipe: SimpleNamespace, applied: Applied
) -> None:
    found = applied.compare(lambda: pipe.unet(X, LABEL, 0.5).sample + torch.randn(2, 4, 8), rounds=2, seed=seed)
    assert found.itself.rel_l2 is not None
    assert (found.itself.rel_l2 > 0.1) == (seed is None)
    assert ("differ: its output is random" in str(found)) == (seed is None)
    assert "no verdict, which needs 6 pairs" in str(found)


def test_calls_that_were_not_tuned_are_said(pipe: SimpleNamespace, applied: Applied) -> None:
    found = applied.compare(lambda: pipe.unet(X, LABEL, 0.25).sample, rounds=2)
    assert (found.calls_tuned, found.calls_original) == (0, 2)
    assert "2 ran the original: an argument is 0.25" in str(found)


def test_a_buffer_that_is_written_again_is_copied(pipe: SimpleNamespace, applied: Applied) -> None:
    """The second pass of a pair writes to the first one's output: without a copy both would be equal."""
    buffer = np.zeros(4)

    def run() -> np.ndarray[Any, Any]:
        buffer[:] = 2.0 if "forward" in vars(pipe.unet) else 1.0
        return buffer

    assert applied.compare(run, rounds=2).outputs.rel_l2 == 1.0


@dataclass
class Frames:
    images: list[Any]
    count: int


@pytest.mark.parametrize(
    ("make", "rel_l2", "problem"),
    [
        (lambda tuned: np.full(3, 4 + tuned, dtype=np.uint8), 0.25, ""),
        (lambda tuned: Frames([torch.ones(2)], 5 + tuned), 1 / np.sqrt(27), ""),
        (lambda tuned: (torch.ones(2, dtype=torch.complex64) * (1 + tuned * 1j),), 1.0, ""),
        (lambda tuned: torch.ones(2 + tuned), None, "has the shape"),
        (lambda tuned: [1.0] * (2 + tuned), None, "output.2 is in one of them only"),
        (lambda tuned: torch.tensor([1.0, float("nan") if tuned else 1.0]), None, "not finite"),
        (lambda tuned: torch.zeros(2) + 0.0 * tuned, 0.0, ""),
    ],
)
def test_trees_of_numbers(
    make: Any, rel_l2: float | None, problem: str, pipe: SimpleNamespace, applied: Applied
) -> None:
    found = applied.compare(lambda: make("forward" in vars(pipe.unet)), rounds=1)
    assert found.outputs.rel_l2 == (None if rel_l2 is None else pytest.approx(rel_l2))
    assert problem in found.outputs.problem
    assert str(found)


def test_what_cannot_be_compared(pipe: SimpleNamespace, applied: Applied) -> None:
    with pytest.raises(BakeoffError, match="rounds=0"):
        applied.compare(lambda: X, rounds=0)
    with pytest.raises(BakeoffError, match="returned no numbers"):
        applied.compare(lambda: "done", rounds=1)
    with pytest.raises(ZeroDivisionError):
        applied.compare(lambda: 1 / 0, rounds=1)
    assert "forward" in vars(pipe.unet)


@pytest.mark.parametrize(
    ("factor", "says"),
    [(0.5, "tuned is faster"), (1.5, "tuned lost: it is slower"), (1.0, ": no difference shown")],
)
def test_the_verdict_is_in_words(factor: float, says: str, pipe: SimpleNamespace, applied: Applied) -> None:
    found = applied.compare(lambda: pipe.unet(X, LABEL, 0.5).sample, rounds=1)
    first = tuple(10**7 + place for place in range(12))
    second = tuple(round(factor * value) for value in first)
    made: EndToEnd = replace(
        found,
        original=summarise_ns(first),
        tuned=summarise_ns(second),
        ratio=pair_ratio(first, second),
    )
    assert says in str(made)
    assert "12 pairs of passes" in str(made)
