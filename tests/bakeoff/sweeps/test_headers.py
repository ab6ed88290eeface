"""torch's C++ headers are precompiled once, by the first build that needs them, in a phase of its own."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from compile_once import COMPILED
from lab import FAST, outcome, sweep

from bakeoff.backends.compilers import missing_cpp_compiler
from bakeoff.plan.request import Request


@pytest.mark.timeout(900)
@pytest.mark.skipif(missing_cpp_compiler() is not None, reason="inductor needs a C++ compiler")
@pytest.mark.skipif("CXX" in os.environ, reason="only the tests' own g++ counts what it compiles")
def test_two_builds_at_once_compile_them_once_and_later_cold_ones_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is that of all tests, so what earlier ones compiled there is not compiled at all here."""
    pytest.importorskip("torch", reason="the headers are torch's")
    monkeypatch.setenv(COMPILED, str(tmp_path / "compiled"))
    (tmp_path / "compiled").touch()

    def compiled() -> Counter[str]:
        return Counter((tmp_path / "compiled").read_text().split())

    backends = ("inductor[]", "inductor[freezing]")
    asked = Request("toy", workloads=("world",), backends=backends, dtypes=("fp32",), device="cpu", policy=FAST)
    both = sweep(asked, tmp_path / "both").done.stored
    first = compiled()
    (later,) = sweep(replace(asked, backends=backends[:1]), tmp_path / "later").done.stored
    assert compiled() == first
    assert first["header"] <= 1
    for record in (stored.record for stored in (*both, later)):
        assert outcome(record) == "ok", record.measurement.reason
        assert record.measurement.build is not None
        assert record.measurement.build.cache == "cold"
        assert "headers" in record.phase_s
