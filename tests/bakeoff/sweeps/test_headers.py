"""torch's C++ headers are precompiled once, by the first build that needs them, in a phase of its own."""

from collections import Counter
from pathlib import Path

import pytest
from lab import FAST, sweep
from shared_headers import counted_compiler

from bakeoff.backends.compilers import missing_cpp_compiler
from bakeoff.machine import paths
from bakeoff.machine.build_cache import header_folder
from bakeoff.plan.request import Request


@pytest.mark.timeout(900)
@pytest.mark.skipif(missing_cpp_compiler() is not None, reason="inductor needs a C++ compiler")
def test_two_builds_at_once_compile_them_once_and_later_cold_ones_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="the headers are torch's")
    monkeypatch.delenv("BAKEOFF_TEST_SHARED", raising=False)

    def request(workload: str, *backends: str) -> Request:
        asked = {"dtypes": ("fp32",), "device": "cpu", "policy": FAST, "final_s": 0.0, "ceilings": False}
        return Request("toy", workloads=(workload,), backends=backends, **asked)  # type: ignore[arg-type]

    with counted_compiler(tmp_path / "compiled"):
        stored = sweep(request("world", "inductor[]", "inductor[freezing]"), tmp_path).done.stored
        records = [entry.record for entry in stored]
        first = Counter((tmp_path / "compiled").read_text().split())
        (last,) = sweep(request("sound", "inductor[]"), tmp_path).done.stored
        later = last.record
        second = Counter((tmp_path / "compiled").read_text().split())
        kept = header_folder(paths.cache_folder())
    assert [record.status for record in (*records, later)] == ["ok"] * 3
    assert first["header"] == 1
    assert first["check"] >= 1
    assert second == first
    names = [path.name for path in kept.iterdir() if path.suffix != ".lock"]
    assert len(names) == sum(first.values()), "copies and locks are all that is left there"
    for record in records:
        build = record.measurement.build
        assert build is not None
        assert build.cache == "cold"
    assert max(record.phase_s["headers"] for record in records) > 2 * later.phase_s["headers"]
