"""When a GPU's L2 cache is emptied before each call."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the device is torch's")

import torch

from bakeoff.models.component import Work
from bakeoff.worker.device import cache_flush

L2 = 50 << 20
"""Of an H100."""


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of each buffer that is written."""
    written: list[int] = []

    class Buffer:
        def __init__(self, size: int, **_: object) -> None:
            self.size = size

        def zero_(self) -> None:
            written.append(self.size)

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _index: SimpleNamespace(L2_cache_size=L2))
    monkeypatch.setattr(torch, "empty", Buffer)
    return written


def loaded(weights: int) -> Any:
    return SimpleNamespace(work=Work(flops=1, weight_elements=weights, io_elements=1))


@pytest.mark.parametrize("weights", [1 << 20, L2, L2 + 1, 3 * L2, 16 * L2])
def test_weights_that_partly_stay_in_the_cache_are_measured_cold(emptied: list[int], weights: int) -> None:
    """Whatever their dtype is in a row: in one byte each they would stay."""
    flush = cache_flush("cuda", loaded(weights))
    assert flush is not None
    flush()
    assert emptied == [4 * L2]


def test_weights_many_times_its_size_and_cpus_are_measured_as_they_are(emptied: list[int]) -> None:
    assert cache_flush("cuda", loaded(16 * L2 + 1)) is None
    assert cache_flush("cpu", loaded(1)) is None
    assert emptied == []
