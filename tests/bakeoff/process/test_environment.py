"""What a worker's environment keeps of the user's own."""

import pytest

from bakeoff.process.environment import worker_environment


def test_threads_are_those_of_the_row_and_inductors_caches_are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its caches a cold build is told from a warm one; what else the user set holds."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    found = worker_environment(2, {"MORE": "yes"})
    assert (found["OMP_NUM_THREADS"], found["MKL_NUM_THREADS"]) == ("2", "2")
    assert "TORCHINDUCTOR_FORCE_DISABLE_CACHES" not in found
    assert (found["MALLOC_TRIM_THRESHOLD_"], found["MALLOC_MMAP_MAX_"], found["MORE"]) == ("65536", "0", "yes")
