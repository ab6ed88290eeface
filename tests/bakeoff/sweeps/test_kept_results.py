"""An engine that keeps results on disk is ok while it computes, and is found at its next run by new values."""

from pathlib import Path

import pytest
from disk_backends import KEPT
from lab import FAST, outcome, sweep

from bakeoff.plan.request import Request


@pytest.mark.parametrize("backend", ["disk_backends:KEEPS_ALL", "disk_backends:KEEPS_TIMED"])
def test_results_kept_from_an_earlier_run_are_found(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setenv(KEPT, str(kept))
    request = Request("toy", workloads=("picture",), backends=(backend,), dtypes=("fp32",), device="cpu", policy=FAST)
    first, second = (sweep(request, tmp_path).records()[backend] for _ in range(2))
    assert outcome(first) == "ok", first.measurement.reason
    assert "memoised" not in {finding.code for finding in first.measurement.findings}
    assert list(kept.iterdir())
    assert "memoised" in {finding.code for finding in second.measurement.findings}
    assert second.status == "unstable"
    checks = [record.measurement.window_checks for record in (first, second)]
    assert checks[0] is not None
    assert checks[1] is not None
    assert checks[0].seed != checks[1].seed
