"""Rows that are built for GPUs that are not here: they need no references, and nothing of them is called or timed."""

from pathlib import Path

import pytest
from lab import FAST, Swept, sweep
from targets import REFERENCE

from bakeoff import backends
from bakeoff.plan.request import Request
from bakeoff.record.store import load_all


@pytest.fixture(autouse=True)
def _in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends._TABLE, REFERENCE, REFERENCE)


def built(folder: Path, *uses: str) -> Swept:
    asked = Request("toy", ("tiny",), ("world",), uses, ("fp32",), policy=FAST, build_for=("sm89", "sm120"))
    return sweep(asked, folder)


def test_each_target_is_a_row_and_none_is_called(tmp_path: Path) -> None:
    swept = built(tmp_path, REFERENCE)
    records = [stored.record for stored in swept.done.stored]
    assert [record.status for record in records] == ["built", "built"], "a bound engine would have failed"
    assert [record.measurement.proof.facts["target"] for record in records if record.measurement.proof] == [
        "sm89",
        "sm120",
    ]
    for record in records:
        made = record.measurement
        assert (made.latency, made.throughput, made.parity, made.reason) == (None, None, None, "")
        assert made.build is not None
        assert made.build.build_s is not None
        assert made.proof is not None
        assert (made.build.artifact_bytes, made.proof.fell_back) == (96, "")
        assert made.settings
        assert (record.variant.device, record.baseline) == ("cpu", False)
    assert load_all(swept.runs).problems == ()
    assert swept.left_alive == ()


def test_no_references_are_made(tmp_path: Path) -> None:
    swept = built(tmp_path, REFERENCE)
    assert list(swept.cache.rglob("set0*")) == []
    for row in swept.plan.rows:
        phases = swept.progress.phases(str(row.variant))
        assert "build" in phases
        assert not [phase for phase in phases if phase in ("reference", "warmup", "timing", "parity")], phases


def test_one_is_built_beside_the_crash_of_the_other(tmp_path: Path) -> None:
    records = [stored.record for stored in built(tmp_path, f"{REFERENCE}[crashes=sm89]").done.stored]
    assert [(record.status, dict(record.variant.backends[0].options)["target"]) for record in records] == [
        ("crashed", "sm89"),
        ("built", "sm120"),
    ]
    assert records[0].measurement.proof is None
