"""What a manifest says was measured: figures of the newest record of the same program on the same machine."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from records import measurement, record

from bakeoff.artifact.export import _figures, measured_figures, plan_export
from bakeoff.machine.identity import this_machine
from bakeoff.plan.request import Request
from bakeoff.record.regimes import Regime
from bakeoff.record.schema import Source
from bakeoff.record.source import component_hash
from bakeoff.record.store import Stored, save

pytest.importorskip("torch", reason="the backend of these plans needs it")

REQUEST = Request("toy", ("tiny",), ("world",), ("torch.export",), ("fp32",), "cpu")


def test_figures_are_of_the_newest_ok_record_of_this_machine_and_source(tmp_path: Path) -> None:
    row = plan_export(REQUEST).rows[0]
    source = Source(component_hash("toy"), (), "instrument")

    def measured(second: int, ms: float, status: str = "ok", **changes: Any) -> None:
        fields = {"config_id": row.config_id, "source": source, "machine": this_machine("cpu"), **changes}
        made = replace(record(made=measurement([ms] * 5, status)), variant=row.variant, **fields)
        save(tmp_path, replace(made, created=f"2026-01-02T03:04:0{second}.000000Z"))

    assert measured_figures(row, tmp_path) is None
    measured(0, 5.0)
    measured(1, 4.0)
    measured(2, 1.0, "unstable")
    measured(3, 1.0, machine=replace(this_machine("cpu"), id="another"))
    measured(4, 1.0, source=replace(source, component="another"))
    measured(5, 1.0, config_id="another")
    found = measured_figures(row, tmp_path)
    assert found is not None
    assert (found.median_ms, found.p1_ms, found.p99_ms, found.calls_per_s) == (4.0, 4.0, 4.0, 250.0)
    assert found.range is msgspec.UNSET, "of a record that lacks it"


def test_the_range_of_the_record_travels_to_the_manifest() -> None:
    made = measurement([4.0] * 5, "ok")
    assert made.parity is not None
    made = replace(made, parity=replace(made.parity, regimes=(Regime("x4", 1e-7, 1e-7, 1e-4), Regime("x16", 0.5))))
    figures = _figures(Stored("id", record(made=made)))
    assert figures.range == (
        "right up to 4 times the given inputs; from 16 times on eager itself is not right in this dtype"
    )
    assert b'"range":"right up to 4' in msgspec.json.encode(figures)
