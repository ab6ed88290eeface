"""Conditions of use: planted faults are found under the condition that shows them, an honest artifact has none."""

import json
import math
import os
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="artifacts are opened with torch")

import torch
from artifacts import copy, exported, manifest_of, rewrite
from lab import Recorder, marked_folder
from msgspec import UNSET
from typer.testing import CliRunner

from bakeoff.artifact import export as parent
from bakeoff.cli import app
from bakeoff.export import load
from bakeoff.export.manifest import HELD, MANIFEST, Condition, exported_digest
from bakeoff.models.errors import BakeoffError
from bakeoff.process.jobs import CONDITIONS, VerifyResult
from bakeoff.process.supervisor import Outcome
from bakeoff.report.pages.artifact import inspected, verified
from bakeoff.report.render import terminal

pytestmark = pytest.mark.timeout(300)
CANARIES = Path(__file__).parents[2] / "support" / "condition_canaries"
IDLE_S = 1.5
"""The canaries that forget do so after a second."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("conditions")
    with marked_folder(folder):
        return exported("toy:tiny.world/torch.export/fp32@cpu", folder / "made", folder / "runs").folder


@pytest.fixture
def artifact(made: Path, tmp_path: Path) -> Path:
    return copy(made, tmp_path / "artifact")


def check(folder: Path, names: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Condition, ...]:
    """The rows of these conditions, of an artifact that is taken for verified."""
    monkeypatch.setattr(parent, "CONDITIONS", tuple(names))
    manifest = manifest_of(folder)
    result = VerifyResult(manifest.parity, 1, "", 0.1, (), 0, ())
    return parent.check_conditions(folder, manifest, result, False, IDLE_S, Recorder()).rows


@pytest.mark.parametrize(
    ("fault", "condition", "result", "seen"),
    [
        ("shares_scratch", "four threads at once", "wrong", "velocity differs from a plain call's by"),
        ("captures_for_its_thread", "four threads in turn", "wrong", "velocity differs"),
        ("dies_in_another_thread", "four threads in turn", "crashed", "SIGSEGV"),
        ("computes_in_a_thread_of_its_own", "fork", "crashed", "timeout: not done after"),
        ("belongs_to_the_first_process", "spawn", "wrong", "velocity differs from the sample in a plain call"),
        ("runs_a_loop_of_its_own", "asyncio's executor", "crashed", "RuntimeError: asyncio.run() cannot be called"),
        ("is_one_of_a_kind", "a second artifact alive", "wrong", "velocity differs"),
        ("splits_for_its_first_threads", "another number of threads", "wrong", "velocity differs"),
        ("remembers_inputs_by_version", "grad modes", "crashed", "RuntimeError: Inference tensors do not track"),
        ("ignores_strides", "strides and aliases", "wrong", "velocity differs"),
        ("returns_its_own_buffers", "strides and aliases", "wrong", "once another call was made"),
        ("reads_its_file_in_each_call", "files changed under it", "wrong", "velocity differs"),
        ("keeps_memory", "10,000 calls", "wrong", "MiB of memory"),
        ("counts_to_a_thousand", "10,000 calls", "wrong", "of 2,000 calls right"),
        ("forgets_while_idle", "idle", "wrong", "velocity differs"),
        ("slows_down_while_idle", "idle", "slower", "calls"),
    ],
)
def test_a_planted_fault_is_seen_under_its_condition(
    fault: str, condition: str, result: str, seen: str, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CANARIES), prepend=os.pathsep)
    monkeypatch.setenv("CANARY_FAULT", fault)
    if result == "crashed":
        monkeypatch.setattr(parent, "CONDITION_S", 4.0 if condition == "fork" else 12.0)  # the fork waits for ever
    (row,) = check(artifact, [condition], monkeypatch)
    assert (row.name, row.result) == (condition, result), row
    assert seen in row.seen
    assert (row.factor or 0) > 1.5 if result == "slower" else row.factor is None


def test_an_honest_artifact_is_right_or_refuses_by_name(artifact: Path, tmp_path: Path) -> None:
    before = manifest_of(artifact)
    with marked_folder(tmp_path):
        arguments = ["verify", str(artifact), "--conditions", "--idle", "1", "--json"]
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    kept = manifest_of(artifact)
    assert said["digest"] == kept.digest != before.digest
    assert exported_digest(kept) == before.digest
    rows = {row.name: row for row in kept.conditions.rows}  # type: ignore[union-attr]
    assert [row["name"] for row in said["conditions"]["rows"]] == [*rows] == [*CONDITIONS]
    refused = {name: row.seen for name, row in rows.items() if row.result == "refused"}
    assert refused == {"fork": rows["fork"].seen, "grad modes": rows["grad modes"].seen}
    assert refused["fork"].startswith("other-process; 0 of ")
    assert refused["grad modes"].startswith("needs-gradient; ")
    assert {row.result for name, row in rows.items() if name not in refused} <= {"right", "slower"}, rows
    assert rows["10,000 calls"].seen == "10,000 calls"
    load(artifact)
    result = VerifyResult(kept.parity, 1, "", 0.1, (), 1 << 20, ())
    for page in (verified(kept, result), inspected(kept, ())):
        lines = terminal.render(page, 120).splitlines()
        assert [line for line in lines if line.startswith("fork ") and "refused" in line and "other-process" in line]
        assert any(line.startswith("checked: ") and "idle for 1 s" in line for line in lines)


def test_state_of_one_stream_must_not_reach_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with marked_folder(tmp_path):
        folder = exported("toy:tiny.stream/torch.export/fp32@cpu", tmp_path / "made", tmp_path / "runs").folder
    names = ("four threads at once", "a second artifact alive", "strides and aliases")
    for row in check(folder, names, monkeypatch):
        assert row.result in ("right", "slower"), row
        assert row.seen.endswith(" streams")
    monkeypatch.setenv("PYTHONPATH", str(CANARIES), prepend=os.pathsep)
    monkeypatch.setenv("CANARY_FAULT", "returns_its_own_buffers")
    alone, beside = check(folder, ("another number of threads", "a second artifact alive"), monkeypatch)
    assert alone.result in ("right", "slower"), "a stream by itself reads its state before the next call overwrites it"
    assert beside.result == "wrong", beside
    assert "video differs from a plain call's by" in beside.seen


def test_every_condition_is_checked() -> None:
    from bakeoff.worker.export.conditions import CHECKS

    assert tuple(CHECKS) == CONDITIONS


def test_what_is_wrong_is_exit_code_1_and_kept(artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CANARIES), prepend=os.pathsep)
    monkeypatch.setenv("CANARY_FAULT", "captures_for_its_thread")
    monkeypatch.setattr(parent, "CONDITIONS", ("four threads in turn", "another number of threads"))
    with marked_folder(tmp_path):
        done = CliRunner().invoke(app, ["verify", str(artifact), "--conditions"])
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1].endswith(": four threads in turn [wrong-output]")
    assert [row.result for row in manifest_of(artifact).conditions.rows] != ["right", "right"]  # type: ignore[union-attr]


def test_inputs_that_must_keep_their_values_do(artifact: Path) -> None:
    """As offsets, of which the model takes no others."""
    from bakeoff.worker.export.conditions import CHECKS, Trial

    manifest = manifest_of(artifact)
    program = manifest.program(manifest.main)
    held, *_ = (port.name for port in program.inputs)
    ports = tuple(replace(port, values=HELD) if port.name == held else port for port in program.inputs)
    programs = tuple(replace(one, inputs=ports) if one is program else one for one in manifest.programs)
    rewrite(artifact, programs=programs)
    opened = load(artifact)
    trial = Trial(opened, "strides and aliases")
    CHECKS[trial.name](trial)
    assert trial.condition().result in ("right", "slower")
    sample = opened.sample()
    for inputs in trial.inputs:
        assert torch.equal(inputs[0, "world", held], sample[held])
    assert not all(torch.equal(trial.inputs[1][0, "world", name], tensor) for name, tensor in sample.items())


def test_indices_are_held_against_the_limit_of_a_verification() -> None:
    from bakeoff.worker.export.conditions import _distance

    wanted = torch.arange(100)
    assert _distance(torch.where(wanted == 7, 90, wanted), wanted) == 0.01
    assert _distance(wanted.float() * 1.01, wanted.float()) == pytest.approx(0.01)


def test_a_condition_for_which_memory_lacks_is_unchecked(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = Outcome("oom", "killed by the kernel's out-of-memory killer in phase open")
    monkeypatch.setattr(parent, "_run_alone", lambda *_: (killed, Path("log")))
    (row,) = check(artifact, ["fork"], monkeypatch)
    assert (row.result, row.seen) == ("unchecked", f"oom: {killed.reason}")


def test_results_are_not_written_over_another_artifact(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was exported there meanwhile."""
    manifest = manifest_of(artifact)
    rewrite(artifact, label="another")
    before = (artifact / MANIFEST).read_bytes()
    monkeypatch.setattr(parent, "CONDITIONS", ())
    with pytest.raises(BakeoffError) as refused:
        parent.check_conditions(artifact, manifest, VerifyResult((), 1, "", 0.1, (), 0, ()), False, 0.0, Recorder())
    assert refused.value.code == "bad-artifact"
    assert (artifact / MANIFEST).read_bytes() == before
    assert sorted(os.listdir(artifact)) == sorted([*manifest.files, MANIFEST])


def test_conditions_are_sealed(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(artifact, ["another number of threads"], monkeypatch)
    data = (artifact / MANIFEST).read_bytes()
    (artifact / MANIFEST).write_bytes(data.replace(b"another number of threads", b"another number of Threads"))
    with pytest.raises(BakeoffError, match="was edited"):
        load(artifact)


def test_a_manifest_without_conditions_has_the_bytes_that_it_had(artifact: Path) -> None:
    manifest = manifest_of(artifact)
    assert b"conditions" not in (artifact / MANIFEST).read_bytes()
    assert exported_digest(replace(manifest, digest="")) == manifest.digest


@pytest.mark.parametrize(
    ("fault", "code", "says"),
    [
        ("", 0, "right at x0.25, x4, x16, outlier, constant, sharper, flatter"),
        ("has_a_table_to_20", 0, "right at x0.25, x4, constant, sharper, flatter; not at x16, outlier"),
        ("has_a_table_to_5", 1, "; not at x4, x16, outlier, sharper"),
    ],
)
def test_verify_replays_the_regimes_that_were_exported(
    fault: str, code: int, says: str, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault:
        monkeypatch.setenv("PYTHONPATH", str(CANARIES), prepend=os.pathsep)
        monkeypatch.setenv("CANARY_FAULT", fault)
    with marked_folder(tmp_path):
        done = CliRunner().invoke(app, ["verify", str(artifact)])
    assert done.exit_code == code, done.output
    assert [line.endswith(says) for line in done.output.splitlines() if line.startswith("regimes: ")] == [True]
    assert ("world/velocity at x4" in done.stderr) == bool(code)
    assert ("narrow" in done.output) == bool(fault)


def test_the_range_travels_and_calls_outside_of_it_are_counted(artifact: Path) -> None:
    manifest = manifest_of(artifact)
    checked = {port.name: port.checked for port in manifest.program("world").inputs}
    sample = load(artifact).sample()
    assert {name for name, span in checked.items() if span} == {"x", "cache_k", "cache_v"}, "times are not scaled"
    size, top = float(sample["x"].square().mean().sqrt()), float(sample["x"].abs().max())
    assert checked["x"] == pytest.approx((size / 4, size * 16, top * 16), rel=1e-3)
    opened = load(artifact, count_outside=True)
    found = []
    for factor in (1.0, 0.26, 15.0, 30.0, 0.1, math.nan):
        opened(**{name: tensor * (factor if name == "x" else 1.0) for name, tensor in sample.items()})
        found.append(int(opened.outside))  # type: ignore[arg-type]
    spike = sample["x"].clone()
    spike[0, 0, 0] = top * 25
    opened(**{**sample, "x": spike})
    assert [*found, int(opened.outside)] == [0, 0, 0, 1, 2, 3, 4]  # type: ignore[arg-type]
    assert opened.outside.calls == 7  # type: ignore[union-attr]
    assert pickle.loads(pickle.dumps(opened)).outside.calls == 0
    assert load(artifact).outside is None
    program = manifest.program("world")
    inputs = tuple(replace(port, checked=UNSET) for port in program.inputs)
    rewrite(artifact, programs=(replace(program, inputs=inputs),))
    with pytest.raises(BakeoffError, match="no checked values") as refused:
        load(artifact, count_outside=True)
    assert refused.value.code == "unsupported"


def test_a_regime_of_another_version_is_refused_by_name(artifact: Path) -> None:
    sample = manifest_of(artifact).sample
    rewrite(artifact, sample=replace(sample, regimes={"x64": {"velocity": 1.0}}))
    with pytest.raises(BakeoffError, match="'x64', which this version does not know") as refused:
        parent.verify(artifact, manifest_of(artifact), False, Recorder())
    assert refused.value.code == "bad-artifact"
