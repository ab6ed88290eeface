"""Rows that build beside each other: which may, that nothing is timed meanwhile, and what one does to the others."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from lab import FAST, TORCHLESS, Recorder

from bakeoff.machine import host
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.plan.rows import Row
from bakeoff.process import supervisor
from bakeoff.record.schema import Record
from bakeoff.sweeps.run import SweepResult, run_sweep
from bakeoff.sweeps.wave import next_wave

BACKENDS = ("eager", "inductor[]", "aoti[]", "onnxruntime[]", "openvino[]")
NAMES = ("eager", "inductor", "aoti", "onnxruntime", "openvino")
GIB = 1 << 30


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "usable_cores", lambda: 16)
    monkeypatch.setattr(host, "available_bytes", lambda _device: 64 * GIB)


def rows_of(*backends: str, **more: object) -> list[Row]:
    asked = Request("toy", backends=backends or BACKENDS, dtypes=("fp32",), device="cpu", threads=1)
    return list(make_plan(replace(asked, **more)).rows)


def names(rows: Sequence[Row]) -> list[str]:
    return [row.variant.backend for row in rows]


def torchless_sweep(monkeypatch: pytest.MonkeyPatch, runs: Path, **more: object) -> tuple[SweepResult, Recorder]:
    monkeypatch.setattr(supervisor, "WORKER", TORCHLESS)
    monkeypatch.setenv("BAKEOFF_TEST_SURE", "1")
    policy = replace(FAST, trace=True)
    asked = Request("toy", backends=BACKENDS, dtypes=("fp32",), device="cpu", threads=1, policy=policy, ceilings=False)
    progress = Recorder()
    return run_sweep(make_plan(replace(asked, final_s=0.0, **more)), runs, "", False, progress), progress


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


@pytest.mark.usefixtures("many_cores")
def test_baselines_come_by_themselves_and_compiled_rows_together() -> None:
    rows = rows_of()
    assert names(next_wave(rows)) == ["eager"]
    assert names(next_wave(rows[1:])) == names(rows[1:])


@pytest.mark.usefixtures("many_cores")
def test_a_build_that_times_kernels_is_alone() -> None:
    tuned = rows_of("inductor[mode=max-autotune]", "aoti", "onnxruntime")
    assert len(next_wave(tuned)) == 1
    assert names(next_wave(tuned[1:])) == ["aoti", "onnxruntime"]
    assert names(next_wave([tuned[1], tuned[0], tuned[2]])) == ["aoti", "onnxruntime"], "it is passed over"


@pytest.mark.usefixtures("many_cores")
def test_a_users_own_backend_is_alone() -> None:
    rows = rows_of("canaries:NAN", "aoti")
    assert names(next_wave(rows)) == names(rows[:1])


@pytest.mark.usefixtures("many_cores")
def test_processes_of_one_build_are_not_built_beside_each_other() -> None:
    rows = rows_of("inductor[]", "aoti[]", processes=2)
    wave = next_wave(rows)
    assert {row.process for row in wave} == {1}
    assert len({row.cache_folder for row in wave}) == len(wave) == 2


def test_as_many_as_cores_and_memory_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of()[1:]
    assert len(rows) == 4
    need = max(row.memory.device for row in rows)
    monkeypatch.setattr(host, "available_bytes", lambda _device: 64 * GIB)
    for cores, expected in ((1, 2), (2, 2), (3, 4), (16, 4)):
        monkeypatch.setattr(host, "usable_cores", lambda cores=cores: cores)
        assert len(next_wave(rows)) == expected
    monkeypatch.setattr(host, "available_bytes", lambda _device: round(2.5 * need / 0.6))
    assert len(next_wave(rows)) == 2
    monkeypatch.setattr(host, "available_bytes", lambda _device: round(1.2 * need))
    assert len(next_wave(rows)) == 1


@pytest.mark.usefixtures("many_cores")
def test_builds_overlap_and_no_timing_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done, _ = torchless_sweep(monkeypatch, tmp_path / "runs")
    records = [stored.record for stored in done.stored]
    assert {record.status for record in records} == {"ok"}
    builds = [record.build_span_s for record in records]
    alone = [record.alone_span_s for record in records]
    assert None not in builds
    assert None not in alone
    compiled = [span for span, record in zip(builds, records, strict=True) if not record.baseline]
    assert all(overlap(one, other) for one, other in combinations(compiled, 2))  # type: ignore[arg-type]
    for number, turn in enumerate(alone):
        others = [*builds, *alone[:number], *alone[number + 1 :]]
        assert not [span for span in others if overlap(turn, span)]  # type: ignore[arg-type]


@pytest.mark.usefixtures("many_cores")
def test_an_overlapped_build_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done, _ = torchless_sweep(monkeypatch, tmp_path / "runs")
    told = {stored.record.variant.backend: stored.record.measurement.build for stored in done.stored}
    assert {name: build.overlapped for name, build in told.items() if build} == {
        name: name != "eager" for name in NAMES
    }


@pytest.mark.usefixtures("many_cores")
def test_a_row_that_dies_beside_others_is_run_again_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BAKEOFF_TEST_DIES_BESIDE", "aoti")
    done, progress = torchless_sweep(monkeypatch, tmp_path / "runs")
    records: dict[str, Record] = {stored.record.variant.backend: stored.record for stored in done.stored}
    assert {record.status for record in records.values()} == {"ok"}
    (again,) = (finding for finding in records["aoti"].measurement.findings if finding.code == "run-again")
    assert "SIGKILL" in again.text
    assert not records["aoti"].measurement.build.overlapped  # type: ignore[union-attr]
    assert len([1 for kind, text in progress.told if kind == "start" and "aoti" in text]) == 1


@pytest.mark.usefixtures("many_cores")
def test_a_row_that_dies_while_it_is_traced_is_measured_without_a_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BAKEOFF_TEST_DIES_TRACING", "aoti")
    done, _ = torchless_sweep(monkeypatch, tmp_path / "runs")
    (made,) = (entry.record.measurement for entry in done.stored if entry.record.variant.backend == "aoti")
    assert made.status == "ok"
    assert {finding.code for finding in made.findings} >= {"run-again", "proof.incomplete"}
    assert made.proof is not None
    assert "SIGKILL" in made.proof.incomplete


@pytest.mark.usefixtures("many_cores")
def test_a_row_that_dies_alone_too_is_crashed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("BAKEOFF_TEST_DIES", "aoti")
    done, _ = torchless_sweep(monkeypatch, tmp_path / "runs")
    statuses = {stored.record.variant.backend: stored.record.status for stored in done.stored}
    assert statuses == {name: "crashed" if name == "aoti" else "ok" for name in NAMES}
