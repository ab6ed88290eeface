"""References that somebody changed are found, and are made anew; a row that changes them keeps its own status."""

import errno
import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from canaries import REMOVED
from describing import GIVEN, described, source_of
from disk import largest_file
from lab import FAST, TORCHLESS, Recorder, Swept, marked_folder, outcome, sweep

from bakeoff.machine import paths
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import Plan, make_plan
from bakeoff.plan.request import Request
from bakeoff.process import supervisor
from bakeoff.process.jobs import ReferenceJob
from bakeoff.process.supervisor import Launch, Outcome, run_job
from bakeoff.record.schema import Record
from bakeoff.sweeps import compare, row, wave
from bakeoff.sweeps.compare import CompareWorker, SideFailedError, wait_until_built
from bakeoff.sweeps.context import changed_files, read_seal, seal_folder
from bakeoff.sweeps.row import References
from bakeoff.sweeps.run import run_sweep

REWRITES, HALF = "selftest_backends.tampering:REWRITES_LIMITS", "selftest_backends.faulty:HALF_PRECISION"
REMOVES = "canaries:REMOVES_REFERENCES"
EAGER = "eager"


def describe(name: str, folder: Path) -> str:
    """The folder of a described model of given_models.py."""
    described(msgspec.structs.replace(source_of(GIVEN, name), working_folder=str(folder)), folder / name)
    return str(folder / name)


def swept(folder: Path, *backends: str) -> Swept:
    return sweep(Request("toy", backends=backends, dtypes=("fp32",), device="cpu", policy=FAST), folder)


def limit(found: Swept, backend: str) -> float:
    parity = found.records()[backend].measurement.parity
    assert parity is not None
    return parity.outputs[0].limit


def test_rewritten_limits_change_no_status(tmp_path: Path) -> None:
    """Neither of the row that rewrites them, nor of one that follows."""
    found = swept(tmp_path, REWRITES, HALF)
    assert "tampered" in [finding.code for finding in found.records()[REWRITES].measurement.findings]
    for backend in (REWRITES, HALF):
        assert found.records()[backend].status == "parity_failed"
        assert limit(found, backend) == pytest.approx(1e-4)


def reference_in(cache: Path) -> Path:
    (folder,) = (path for path in (cache / "references").iterdir() if path.is_dir())
    return folder


def before_workers(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object], times: int = 1) -> None:
    """Do something just before the first workers of rows are started, when the references are made."""
    opened, left = wave.open_folder, [action] * times

    def open_folder(*arguments: Any, **more: Any) -> None:
        opened(*arguments, **more)
        if left:
            left.pop()()

    monkeypatch.setattr(wave, "open_folder", open_folder)


def said(progress: Recorder, text: str) -> list[str]:
    return [entry for kind, entry in progress.told if kind == "say" and text in entry]


def run_again(record: Record) -> list[str]:
    return [finding.text for finding in record.measurement.findings if finding.code == "run-again"]


def test_references_are_used_again_until_a_file_of_theirs_changes(tmp_path: Path) -> None:
    first = swept(tmp_path, EAGER)
    folder = reference_in(first.cache)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    intact = swept(tmp_path, EAGER)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert said(intact.progress, folder.name) == []
    limits, outputs = (folder / name for name in ("eager-fp32.json", "changed0.safetensors"))
    original = {path: path.read_bytes() for path in (limits, outputs)}
    for path, content in original.items():
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    anew = swept(tmp_path, EAGER)
    assert json.loads(limits.read_bytes())["noise"] == json.loads(original[limits])["noise"]
    assert outputs.read_bytes() == original[outputs]
    assert all(said(anew.progress, path.name) for path in original)
    assert outcome(anew.records()[EAGER]) == "ok"


def test_references_are_made_without_other_regimes_where_these_take_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[bool]()

    def slow(job: Any, result: type, launch: Launch) -> Outcome:
        if isinstance(job, ReferenceJob):
            asked.append(job.regimes)
            if job.regimes:
                return Outcome("timeout", "not done after 600 s in phase reference")
        return run_job(job, result, launch)

    monkeypatch.setattr("bakeoff.sweeps.row.run_job", slow)
    found = swept(tmp_path, EAGER)
    assert asked == [True, False]
    (record,) = found.records().values()
    parity = record.measurement.parity
    assert (outcome(record), parity and parity.regimes) == ("ok", ())


def own_change(found: Swept) -> float | None:
    parity = found.records()[EAGER].measurement.parity
    assert parity is not None
    return parity.own_change


def test_each_sweep_has_changed_values_of_its_own_and_states_their_factor(tmp_path: Path) -> None:
    first, second = (swept(tmp_path, EAGER) for _ in range(2))
    assert None not in {own_change(first), own_change(second)}
    assert own_change(first) != own_change(second)
    for found in (first, second):
        (seed,) = {record.order_seed for record in found.records().values()}
        drawn = 1 - random.Random(seed).uniform(1.2, 1.5) / 16
        assert own_change(found) == drawn, "so that a run can be replayed"
    assert list((tmp_path / "cache" / "changed").iterdir()) == []


def plan_of_eager() -> Plan:
    request = Request("toy", backends=(EAGER,), dtypes=("fp32",), device="cpu", threads=1, policy=FAST, final_s=0)
    return make_plan(replace(request, ceilings=False))


def made_own(cache: Path) -> dict[Path, int]:
    """When each file was made of the one folder of a sweep's own references."""
    (folder,) = (path for path in cache.glob("changed/*/*") if path.is_dir())
    return {path: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_calls_that_add_rows_to_a_sweep_share_its_own_values(tmp_path: Path) -> None:
    with marked_folder(tmp_path):
        plan, progress = plan_of_eager(), Recorder()
        times = []
        for _ in range(2):
            run_sweep(plan, paths.runs_folder(), "", False, progress, rows=plan.rows)
            times.append(made_own(tmp_path / "cache"))
    assert times[0] == times[1]
    cached = reference_in(tmp_path / "cache")
    own = {path.name: path for path in times[0]}
    assert set(own) == {path.name for path in cached.iterdir()}
    linked = {name for name, path in own.items() if path.samefile(cached / name)}
    assert set(own) - linked == {"changed0.safetensors", "reference.json"}


def test_a_folder_of_own_values_that_was_not_finished_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = row._link

    def interrupted(names: Sequence[str], cached: Path, own: Path) -> None:
        link(list(names)[:2], cached, own)
        (own / "changed0.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with marked_folder(tmp_path):
        plan, progress = plan_of_eager(), Recorder()
        monkeypatch.setattr(row, "_link", interrupted)
        assert run_sweep(plan, paths.runs_folder(), "", False, progress).interrupted
        before = {path: path.stat().st_mtime_ns for path in reference_in(tmp_path / "cache").iterdir()}
        assert list((tmp_path / "cache").glob("changed/*/*/changed0.safetensors"))
        monkeypatch.setattr(row, "_link", link)
        done = run_sweep(plan, paths.runs_folder(), "", True, progress)
    assert [outcome(entry.record) for entry in done.stored] == ["ok"]
    (line,) = said(progress, "cannot be used")
    assert "not made to the end" in line
    assert {path: path.stat().st_mtime_ns for path in before} == before, "the cached ones are whole"


def test_cached_files_are_copied_where_they_cannot_be_linked_or_the_sweep_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cached", "own"):
        (tmp_path / name).mkdir()
    (tmp_path / "cached" / "set0").write_bytes(b"x" * 1000)

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    with largest_file(100), pytest.raises(BakeoffError, match=r"cannot be written to .*own: File too large") as raised:
        row._link(["set0"], tmp_path / "cached", tmp_path / "own")
    assert raised.value.code == "not-writable"
    (tmp_path / "own" / "set0").unlink()
    row._link(["set0"], tmp_path / "cached", tmp_path / "own")
    assert (tmp_path / "own" / "set0").read_bytes() == b"x" * 1000


def test_a_row_whose_references_change_before_it_reads_them_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change() -> None:
        (reference_in(tmp_path / "cache") / "eager-fp32.json").write_bytes(b"changed")

    before_workers(monkeypatch, change)
    found = swept(tmp_path, EAGER)
    record = found.records()[EAGER]
    assert outcome(record) == "ok"
    (why,) = run_again(record)
    assert "eager-fp32.json" in why
    assert "of its references changed while it ran" in why
    assert "tampered" not in [finding.code for finding in record.measurement.findings]
    (line,) = said(found.progress, "it is run again")
    assert str(record.variant) in line
    assert "eager-fp32.json" in line


def test_a_row_whose_references_change_again_is_run_again_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def change() -> None:
        (reference_in(tmp_path / "cache") / "eager-fp32.json").write_bytes(b"changed")

    before_workers(monkeypatch, change, times=3)
    found = swept(tmp_path, EAGER)
    assert found.records()[EAGER].status == "crashed"
    assert len(said(found.progress, "it is run again")) == 1


def test_a_row_whose_references_vanish_while_it_is_built_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REMOVED, str(tmp_path / "removed"))
    found = swept(tmp_path, REMOVES)
    record = found.records()[REMOVES]
    assert outcome(record) == "ok"
    (why,) = run_again(record)
    assert "set0.safetensors" in why


def test_a_comparison_whose_references_change_is_run_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With workers that measure nothing: that real ones refuse changed references is seen in sweeps."""
    monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)
    monkeypatch.setenv("BAKEOFF_TEST_SURE", "1")
    changes = 1

    def fail(sides: Sequence[CompareWorker]) -> None:
        nonlocal changes
        if changes:
            changes -= 1
            (reference_in(tmp_path / "cache") / "eager-fp32.json").write_bytes(b"changed")
            raise SideFailedError(sides[0].row, "crashed", "it changed since it was made")
        wait_until_built(sides)

    monkeypatch.setattr(compare, "wait_until_built", fail)
    request = Request(
        "toy", backends=(EAGER, "inductor[]"), dtypes=("fp32",), device="cpu", threads=1, policy=FAST,
        final_s=0.1, ceilings=False,
    )  # fmt: skip
    progress = Recorder()
    found = compare.compare(make_plan(request), paths.runs_folder(), "", progress)
    assert [outcome(side) for side in found.record.sides] == ["ok", "ok"]
    assert len(said(progress, "this is run again")) == 1
    changes = 2
    with pytest.raises(SideFailedError, match="changed since it was made"):
        compare.compare(make_plan(request), paths.runs_folder(), "", progress)


def test_a_file_that_another_sweep_adds_is_no_change_of_a_running_row(tmp_path: Path) -> None:
    """Two sweeps of one subject in other dtypes share the folder, on two GPUs or halves of the CPUs."""
    (tmp_path / "own").mkdir()
    for name in ("eager-bf16.json", "outputs0.safetensors"):
        (tmp_path / "own" / name).write_text(name)
    references = References(tmp_path / "own", seal_folder(tmp_path / "own"))
    (tmp_path / "own" / "eager-fp32.json").write_text("of the other sweep")
    assert references.changed() == ()
    (tmp_path / "own" / "eager-bf16.json").write_text("wider limits")
    (tmp_path / "own" / "outputs0.safetensors").unlink()
    assert references.changed() == ("eager-bf16.json", "outputs0.safetensors")


def test_a_file_that_appears_or_goes_is_a_change(tmp_path: Path) -> None:
    folder = tmp_path / "reference"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text(name)
    seal = seal_folder(folder)
    assert read_seal(folder) == seal
    assert changed_files(folder, seal, trust_stat=True) == changed_files(folder, seal, trust_stat=False) == ()
    (folder / "a").unlink()
    (folder / "c").write_text("c")
    (folder / "b").write_text("x")
    for trust in (True, False):
        assert changed_files(folder, seal, trust_stat=trust) == ("a", "b", "c")


def test_a_file_touched_but_not_changed_is_no_change(tmp_path: Path) -> None:
    folder = tmp_path / "reference"
    folder.mkdir()
    (folder / "a").write_text("a")
    seal = seal_folder(folder)
    (folder / "a").touch()
    assert changed_files(folder, seal, trust_stat=True) == ()


def test_a_damaged_seal_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "reference"
    folder.mkdir()
    seal_folder(folder)
    (tmp_path / "reference.sha256.json").write_text(json.dumps({"a": 1}))
    assert read_seal(folder) is None


def test_eager_that_kills_its_worker_in_one_dtype_costs_no_row_of_another(tmp_path: Path) -> None:
    folder = describe("aborts_in_half", tmp_path)
    (tmp_path / "armed").touch()
    found = sweep(Request(folder, backends=(EAGER,), dtypes=("fp32", "bf16"), device="cpu", policy=FAST), tmp_path)
    status = {entry.record.variant.dtype: outcome(entry.record) for entry in found.done.stored}
    assert status["fp32"] == "ok"
    assert status["bf16"] == "crashed"


def test_a_workload_without_a_reference_costs_no_row_of_another(tmp_path: Path) -> None:
    folder = describe("deaf_in_one_set", tmp_path)
    found = sweep(Request(folder, backends=(EAGER,), dtypes=("fp32",), device="cpu", policy=FAST), tmp_path)
    records = {entry.record.variant.workload: entry.record for entry in found.done.stored}
    assert outcome(records["good"]) == "ok"
    assert records["deaf"].status == "crashed"
    assert "too little to check engines by" in records["deaf"].measurement.reason
