"""What a gate races and sweeps, in which order, and what it makes of failures; the races themselves are canned."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import comparisons
import pytest
from lab import FAST, Recorder
from records import record

import bakeoff
from bakeoff.bring.bring import bring
from bakeoff.machine.identity import this_machine
from bakeoff.models.brought.about import read_about
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.record.gate import LOOKS, PROCESSES, GatedRow
from bakeoff.record.schema import Comparison, Status
from bakeoff.record.store import Records, Stored
from bakeoff.sweeps import gate
from bakeoff.sweeps.compare import Entrant, SideFailedError
from bakeoff.sweeps.run import SweepResult


def plan(*backends: str, workload: str = "picture") -> Plan:
    request = Request("toy", workloads=(workload,), backends=backends, dtypes=("fp32",), device="cpu", threads=1)
    return make_plan(replace(request, policy=FAST, ceilings=False))


Fails = Callable[[bool], Status]
"""The status of a side; the argument is whether it is the candidate."""


def gated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, candidate_ms: float = 2.0, fails: Fails = lambda _: "ok"
) -> tuple[GatedRow, list[str]]:
    """The row of a gate whose baseline takes 2 ms, and what it did in order."""
    mine, others, told = plan("eager"), plan("eager"), list[str]()

    def race_of(sides: tuple[Entrant, ...], _running: object, _seed: int, decided: Callable[[Comparison], bool]) -> Any:
        of_candidate = [side.row is mine.rows[0] for side in sides]
        for side, is_candidate in zip(sides, of_candidate, strict=True):
            if (status := fails(is_candidate)) == "crashed":
                raise SideFailedError(side.row, status, "crashed: SIGSEGV")
        times = [candidate_ms if is_candidate else 2.0 for is_candidate in of_candidate]
        made = [record("eager", [ms], fails(is_it)) for ms, is_it in zip(times, of_candidate, strict=True)]
        for pairs in range(1, LOOKS[-1] + 1):
            found = comparisons.final(*made, pairs=pairs)
            if decided(found):
                break
        told.append(f"{'A/A' if sides[0] is sides[1] else 'race'} {pairs}")
        return found

    monkeypatch.setattr(gate, "race_of", race_of)
    monkeypatch.setattr(gate, "with_works", lambda context: context)
    stated = lambda _row, size, pairs: told.append(f"found from {size:.2f}, {pairs} for 10 %")  # noqa: E731
    (row,) = gate.gate_live([(mine, others)], tmp_path, "", Recorder(), stated, 0.1)
    return row, told


@pytest.mark.parametrize(("candidate_ms", "outcome"), [(2.4, "regression"), (2.1, "unchanged"), (1.8, "faster")])
def test_a_change_is_of_the_candidate_over_the_baseline(
    candidate_ms: float, outcome: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row, _ = gated(monkeypatch, tmp_path, candidate_ms)
    assert row.outcome == outcome
    assert row.change is not None
    assert row.change.ratio == pytest.approx(candidate_ms / 2, rel=1e-3)


@pytest.mark.parametrize("status", ["crashed", "parity_failed"])
def test_the_status_of_each_side_is_known_whichever_fails(
    status: Status, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row, _ = gated(monkeypatch, tmp_path, fails=lambda candidate: status if candidate else "ok")
    assert (row.outcome, row.candidate, row.baseline, row.change) == ("status changed", status, "ok", None)
    row, _ = gated(monkeypatch, tmp_path, fails=lambda candidate: "ok" if candidate else status)
    assert (row.outcome, row.candidate, row.baseline) == ("now ok", "ok", status)
    row, told = gated(monkeypatch, tmp_path, fails=lambda _: status)
    assert (row.outcome, row.candidate, row.baseline) == ("not measured", status, status)
    assert not any(line.startswith("found") for line in told)


def test_a_row_that_the_baseline_lacks_is_only_checked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    two = plan("eager", "inductor[]")
    seen: list[int] = []

    def race_of(sides: tuple[Entrant, ...], *_: object) -> Comparison:
        seen.append(two.rows.index(sides[1].row))
        return comparisons.final(record("eager", [2.0]), record("eager", [2.0]), pairs=LOOKS[-1])

    monkeypatch.setattr(gate, "race_of", race_of)
    monkeypatch.setattr(gate, "with_works", lambda context: context)
    one = replace(two, rows=two.rows[:1])
    rows = gate.gate_live([(two, one)], tmp_path, "", Recorder(), lambda *_: None, 0.1)
    assert [row.outcome for row in rows] == ["unchanged", "not measured"]
    assert "no such row" in rows[1].reason
    assert seen == [0, 0, 1]
    rows = gate.gate_live([(one, two)], tmp_path, "", Recorder(), lambda *_: None, 0.1)
    assert [(row.outcome, row.candidate, row.variant) for row in rows] == [
        ("unchanged", "ok", str(two.rows[0].variant)),
        ("gone", None, str(two.rows[1].variant)),
    ]


def known(median_ms: float, status: Status = "ok", **changes: Any) -> Stored:
    facts = {"machine": this_machine("cpu"), **changes}
    return Stored("", record("eager", [median_ms] * 20 if status == "ok" else [], status, **facts))


def against(monkeypatch: pytest.MonkeyPatch, candidate: list[Stored], baseline: list[Stored]) -> GatedRow:
    monkeypatch.setattr(gate, "run_sweep", lambda *_: SweepResult("sweep", tuple(candidate), ()))
    (row,) = gate.gate_records(
        [plan("eager", workload="world")], Records(tuple(baseline), (), ()), Path(), "", Recorder(), 0.1
    )
    return row


def of(records: list[Stored], **changes: Any) -> list[Stored]:
    return [replace(each, record=replace(each.record, **changes)) for each in records]


def test_records_of_this_machine_and_lab_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    five, slower = [known(2.0)] * PROCESSES, [known(2.4)] * PROCESSES
    assert against(monkeypatch, five, five).outcome == "unchanged"
    assert against(monkeypatch, slower, five).outcome == "suspected", "they were made at another time"
    assert against(monkeypatch, slower, [*slower, *of(five, commit="new")][:5]).outcome == "unchanged"
    other = record("eager").source
    cases = {
        "other machines": of(five, machine=replace(five[0].machine, machine_class="there0000000")),
        "machines or hosts alone": of(five, machine=replace(five[0].machine, id="there0000000")),
        "another configuration": of(five, config={"width": 3}),
        "other seeds, another number of threads": of(five, input_seed=7, threads=64),
        "another version of this lab": of(five, source=replace(other, instrument="other")),
    }
    for why, records in cases.items():
        row = against(monkeypatch, slower, records)
        assert (row.outcome, row.change) == ("not measured", None)
        assert why in row.reason


def test_a_changed_model_of_the_user_s_is_compared_with_its_former_self(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content and its file decide the configuration's hash, but not which row it is."""

    def model(median_ms: float, content: str) -> list[Stored]:
        facts = {"config": {"content": content, "source": f"{content}/mine.py"}, "config_id": content}
        return of([known(median_ms)] * PROCESSES, **facts)

    row = against(monkeypatch, model(2.4, "new"), model(2.0, "old"))
    assert (row.outcome, row.reason) == ("suspected", "")
    assert row.change is not None
    assert row.change.ratio == pytest.approx(1.2)
    row = against(monkeypatch, model(2.4, "new"), of(model(2.0, "old"), threads=64))
    assert "another number of threads" in row.reason


def test_a_baseline_without_any_of_the_rows_is_refused_before_they_are_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    for records in ([], of([known(2.0)], batch=2)):
        with pytest.raises(BakeoffError, match="no record of this suite's rows; sweep the suite there first"):
            against(monkeypatch, [], records)


def test_the_newest_code_of_the_baseline_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    old = of([known(1.0)] * PROCESSES, source=replace(record("eager").source, component="old"))
    row = against(monkeypatch, [known(2.0)] * PROCESSES, [*old, *[known(2.0)] * PROCESSES])
    assert row.change is not None
    assert (row.outcome, row.change.ratio) == ("unchanged", 1.0)


def test_a_status_counts_before_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    five, crashed, unstable = [known(2.0)] * PROCESSES, known(0, "crashed"), known(0, "unstable")
    assert against(monkeypatch, [*five[1:], crashed], five).outcome == "status changed"
    assert against(monkeypatch, [crashed] * PROCESSES, [crashed]).outcome == "not measured"
    assert against(monkeypatch, five, [crashed]).outcome == "now ok"
    assert against(monkeypatch, [*five[2:], unstable, unstable], five).outcome == "unchanged"
    assert against(monkeypatch, [*five[3:], *[unstable] * 3], five).outcome == "undecided"


def test_a_baseline_is_described_by_its_own_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has this lab's code, wherever parts of the package lie, and no other folder on its path."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexport STARTED_BY=me\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "mine.py").write_text(
        "import os\nimport torch\nimport bakeoff\ndef model():\n"
        f"    assert os.environ['STARTED_BY'] == 'me'\n"
        f"    assert os.path.realpath(bakeoff.__file__) == {os.path.realpath(bakeoff.__file__)!r}\n"
        "    return torch.nn.Linear(4, 4), torch.randn(2, 4)\n"
    )
    monkeypatch.chdir(tmp_path)
    described = bring("mine.py:model", 0, 1, Recorder(), python=str(python))
    assert read_about(Path(described)).parameters == 20
