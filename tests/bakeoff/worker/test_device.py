"""Processes of others on the measured GPU."""

import pytest

pytest.importorskip("torch", reason="the device is torch's")

from bakeoff.worker.device import foreign_processes

PARENTS = {10: 1, 11: 1, 20: 2}
"""Processes and their parents: two workers of one comparison, and a process of somebody else."""


def parent_of(pid: int) -> int:
    return PARENTS[pid]


def test_a_worker_alone() -> None:
    assert foreign_processes([10], 10, parent_of) == ()


def test_workers_of_one_comparison_are_not_foreign() -> None:
    assert foreign_processes([10, 11], 10, parent_of) == ()


def test_somebody_elses_process_is_foreign() -> None:
    assert foreign_processes([11, 20, 10], 10, parent_of) == (20,)


def test_nothing_is_known_where_a_container_has_its_own_process_ids() -> None:
    assert foreign_processes([4711, 4712], 10, parent_of) == ()
