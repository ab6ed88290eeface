"""Who else computes on the GPU that is measured on."""

import pytest

pytest.importorskip("torch", reason="the device is torch's")

from bakeoff.worker.device import strangers

LABS = {10: 1, 11: 1, 20: 2}
"""Processes, and the lab that started them: two live workers of one comparison, and somebody else's."""


def lab_of(pid: int) -> int:
    return LABS[pid]


def test_a_worker_alone() -> None:
    assert strangers([10], 10, lab_of) == ()


def test_workers_of_one_comparison_are_no_strangers() -> None:
    assert strangers([10, 11], 10, lab_of) == ()


def test_somebody_elses_process_is() -> None:
    assert strangers([11, 20, 10], 10, lab_of) == (20,)


def test_nobody_is_accused_where_a_container_hides_the_numbers() -> None:
    assert strangers([4711, 4712], 10, lab_of) == ()
