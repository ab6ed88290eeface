"""An engine that keeps results on disk is ok while it computes, and is found at its next run by new values."""

from itertools import count
from pathlib import Path

import pytest
from disk_backends import KEPT
from lab import FAST, outcome, sweep

from bakeoff.plan.request import Request
from bakeoff.sweeps import resume


@pytest.mark.parametrize(
    ("backend", "status", "code"),
    [
        ("disk_backends:KEEPS_ALL", "unstable", "memoised"),
        ("disk_backends:KEEPS_TIMED", "unstable", "memoised"),
        ("disk_backends:KEEPS_NEAREST", "parity_failed", ""),
    ],
)
def test_results_kept_from_an_earlier_run_are_found(
    backend: str, status: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, seeds = tmp_path / "kept", count(1)
    kept.mkdir()
    monkeypatch.setenv(KEPT, str(kept))
    monkeypatch.setattr(resume.secrets, "randbits", lambda _bits: next(seeds))  # factors that are not nearly the same
    request = Request("toy", workloads=("picture",), backends=(backend,), dtypes=("fp32",), device="cpu", policy=FAST)
    first, second = (sweep(request, tmp_path).records()[backend] for _ in range(2))
    assert outcome(first) == "ok", first.measurement.reason
    assert "memoised" not in {finding.code for finding in first.measurement.findings}
    assert list(kept.iterdir())
    assert second.status == status, second.measurement.reason
    assert {code} - {""} <= {finding.code for finding in second.measurement.findings}
    assert "changed inputs 0" in second.measurement.reason or code
    stated = [(record.measurement.window_checks, record.measurement.parity) for record in (first, second)]
    seeds_of_rows = {checks.seed for checks, _ in stated if checks is not None}
    changes = {parity.own_change for _, parity in stated if parity is not None}
    assert len(seeds_of_rows) == len(changes - {None}) == 2
