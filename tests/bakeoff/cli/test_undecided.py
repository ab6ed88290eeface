"""`bakeoff compare --undecided` runs the finals that this machine's tables lack, and says what it cannot run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from comparisons import final
from records import record

from bakeoff.cli import compare as command
from bakeoff.machine import host
from bakeoff.machine.identity import Machine, this_machine
from bakeoff.plan.plan import Plan
from bakeoff.record.schema import Record, Source
from bakeoff.record.source import backend_source, component_hash, instrument_hash
from bakeoff.record.store import StoredComparison, load_all, save


def row(backend: str, median_ms: float, **changes: Any) -> Record:
    """A row of the toy as this code would make it now."""
    name = backend.partition("[")[0]
    facts: dict[str, Any] = {
        "machine": this_machine("cpu"),
        "versions": host.read_versions(),
        "source": Source(component_hash("toy"), (backend_source(name),), instrument_hash()),
        "threads": 1,
    }
    return record(backend, [median_ms] * 20, **{**facts, **changes})


TABLES: dict[str, tuple[Record, Record]] = {
    "lacks one": (row("eager", 4.0), row("inductor", 3.0)),
    "has one": (row("eager", 4.0, threads=2), row("inductor", 3.0, threads=2)),
    "needs a sweep": (row("eager", 4.0, batch=2), row("inductor", 3.0, batch=2)),
    "other code": tuple(
        row(each, ms, threads=3, source=Source("c", (), "i")) for each, ms in (("eager", 4.0), ("inductor", 3.0))
    ),  # type: ignore[dict-item]
    "another machine": tuple(
        row(each, ms, machine=Machine("there0000000", "", "Other CPU"))
        for each, ms in (("eager", 4.0), ("inductor", 3.0))
    ),  # type: ignore[dict-item]
}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for rows in TABLES.values():
        for each in rows:
            save(tmp_path / "runs", each)
    save(tmp_path / "runs", final(*TABLES["has one"]))
    return tmp_path / "runs"


def measured(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that are measured from now on; each gives a final that inductor wins."""
    plans: list[Plan] = []

    def measure(folder: Path, plan: Plan, note: str, said: str) -> StoredComparison:
        assert said.startswith(f"{len(plans) + 1} of 1: toy:tiny.world (toy), batch 1, ")
        plans.append(plan)
        made = final(*TABLES["lacks one"])
        made = replace(made, sides=tuple(replace(side, note=note) for side in made.sides))
        return StoredComparison(save(folder, made), made)

    monkeypatch.setattr(command, "_measure", measure)
    return plans


def test_each_table_that_lacks_a_final_gets_one(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans = measured(monkeypatch)
    command.compare(undecided=True, note="why")
    assert [[str(each.variant) for each in plan.rows] for plan in plans] == [
        ["toy:tiny.world/inductor/fp32@cpu", "toy:tiny.world/eager/fp32@cpu"]
    ]
    assert plans[0].request.threads == 1
    lines = capsys.readouterr().out.splitlines()
    assert "inductor fp32 is faster than eager fp32: 1.333x [1.333, 1.333]" in lines[0]
    others = [line for line in lines if ": not measured, " in line]
    assert any(line.endswith("its rows are of other code or libraries; sweep it again") for line in others)
    assert any(line.startswith("toy:tiny.world (toy), batch 2, ") for line in others)
    assert len(others) == 2
    assert any(line.startswith("bakeoff sweep toy --preset tiny") for line in lines)
    assert {entry.record.a.note for entry in load_all(runs).comparisons} == {"", "why"}
    command.compare(undecided=True)
    assert len(plans) == 1, "what was decided is not measured again"
