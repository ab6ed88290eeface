"""The time of a cache line between two CPUs: read where it can be, and without moving the thread that asks."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bakeoff.machine.paths import cache_folder
from bakeoff.worker.clocks import core_distance
from bakeoff.worker.clocks.core_distance import core_distance_reader, cores_moved

NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler on this host"
)
NEEDS_CPUS = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU has no distance to another")


@pytest.fixture(autouse=True)
def _compile_again() -> Iterator[None]:
    core_distance._library.cache_clear()
    yield
    core_distance._library.cache_clear()


def built() -> list[Path]:
    return sorted((cache_folder() / "instrument").iterdir())


@NEEDS_COMPILER
@NEEDS_CPUS
def test_a_round_trip_takes_nanoseconds_and_leaves_the_caller_where_it_was() -> None:
    before = os.sched_getaffinity(0)
    read = core_distance_reader("cpu")
    assert read is not None
    found = [distance for distance in (read() for _ in range(20)) if distance is not None]
    assert found, "a busy host spoils some readings, not all"
    assert all(1 < distance < 1_000_000 for distance in found)
    assert os.sched_getaffinity(0) == before


@NEEDS_COMPILER
@NEEDS_CPUS
def test_it_is_compiled_once() -> None:
    assert core_distance_reader("cpu") is not None
    (library,) = built()
    made = library.stat().st_mtime_ns
    core_distance._library.cache_clear()
    assert core_distance_reader("cpu") is not None
    assert [path.stat().st_mtime_ns for path in built()] == [made]


@NEEDS_CPUS
def test_there_is_no_reading_without_a_compiler_or_from_one_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert core_distance_reader("cpu") is None
    core_distance._library.cache_clear()
    monkeypatch.setenv("CC", "false")
    assert core_distance_reader("cpu") is None
    assert built() == [], "nothing half made is left"


def test_there_is_no_reading_for_cuda_or_one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert core_distance_reader("cuda") is None
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {3})
    assert core_distance_reader("cpu") is None


@pytest.mark.parametrize(
    ("cpus", "others"), [({0, 1}, {1}), ({4, 5, 6}, {5, 6}), (set(range(64)), {1, 22, 43}), ({0, 1, 2, 3}, {1, 2, 3})]
)
def test_the_largest_distance_of_up_to_three_pairs_counts(
    cpus: set[int], others: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    class Library:
        def core_distance(self, first: int, second: int, batches: int, _trips: int, batch_ns: list[float]) -> int:
            asked.append((first, second))
            for batch in range(batches):
                batch_ns[batch] = 1e6 if batch == 0 else 100.0 + second
            return 0

    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: cpus)
    monkeypatch.setattr(core_distance, "_library", Library)
    monkeypatch.setattr(core_distance._library, "cache_clear", lambda: None, raising=False)
    read = core_distance_reader("cpu")
    assert read is not None
    assert read() == 100.0 + max(others), "a batch in which a thread lost its CPU does not count"
    assert {first for first, _ in asked} == {min(cpus)}
    assert {second for _, second in asked} == others


def test_cores_moved_where_the_largest_third_is_over_twice_the_smallest() -> None:
    assert cores_moved([55.0] * 12 + [320.0] * 8) == (55.0, 320.0)
    assert cores_moved([55.0] * 18 + [320.0] * 2) is None, "two readings of twenty"
    assert cores_moved([100.0, 150.0, 190.0] * 5) is None
    assert cores_moved([55.0, 320.0, 55.0, 320.0]) is None, "too few readings"
    assert cores_moved([]) is None
