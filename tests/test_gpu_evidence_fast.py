"""The fast sequence of tools/gpu-evidence: its plan on pretended cards, its driver with stand-ins for sweeps."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from records import GPU_HOST, measurement, record
from typer.testing import CliRunner

from bakeoff.cli.common import app
from bakeoff.machine import build_cache, host, paths
from bakeoff.plan.plan import Plan
from bakeoff.plan.rows import Row
from bakeoff.record.codec import encode
from bakeoff.record.schema import BuildCost
from bakeoff.record.store import load_all, save
from bakeoff.sweeps.resume import begin, find_newest
from bakeoff.sweeps.run import SweepResult

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "tools"
sys.path.insert(0, str(TOOLS))

from gpu_evidence import fast  # noqa: E402
from gpu_evidence.archive import write_archive  # noqa: E402
from gpu_evidence.order import BESIDE, BEST, CUDA, FINAL, Line, order_of  # noqa: E402
from gpu_evidence.seconds import GUESS, Clock, make_planned  # noqa: E402
from gpu_evidence.state import State  # noqa: E402
from gpu_evidence.steps import SUBJECTS as ALL_SUBJECTS  # noqa: E402

SUBJECTS = {one.partition(":")[0]: one for one in reversed(ALL_SUBJECTS)}
H200, RTX_4090 = "NVIDIA H200, 143771 MiB, 9.0", "NVIDIA GeForce RTX 4090, 24564 MiB, 8.9"
RTX_4080, T4 = "NVIDIA GeForce RTX 4080, 16376 MiB, 8.9", "Tesla T4, 15360 MiB, 7.5"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAKEOFF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BAKEOFF_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(paths, "published_runs", lambda: ROOT / "runs/published")
    for name in ("read_host", "available_bytes", "usable_cores", "_version"):
        monkeypatch.setattr(host, name, getattr(host, name))  # put back what `pretend` sets
    return tmp_path


def clock_of(card: str, folder: Path) -> tuple[Clock, tuple[Line, ...]]:
    fast.pretend(card)
    order = order_of("cuda", SUBJECTS, host.half_dtype("cuda"))
    return Clock(make_planned(order, SUBJECTS, "cuda", anywhere=True), folder / "runs", folder, "cuda"), order


def rows_within(clock: Clock, order: Sequence[Line], budget_s: float, slower: float = 1.0) -> list[Row]:
    steps = fast.simulate(clock, order, budget_s, slower, anew=True)
    return [step.row for step in steps if step.is_row and step.row is not None]


def test_nine_minutes_of_an_h200_give_eighteen_rows_and_twelve_twentyfive(folder: Path) -> None:
    clock, order = clock_of(H200, folder)
    of_a_call = fast_grace()
    assert len(rows_within(clock, order, 540 - of_a_call)) >= 18
    assert len(rows_within(clock, order, 720 - of_a_call)) >= 25
    first = [row.subject.component for row in rows_within(clock, order, 540)[:12]]
    assert set(first) == set(SUBJECTS)
    doubled = rows_within(clock, order, 540 - of_a_call, 2.0)
    assert len(doubled) >= 10
    assert {row.subject.component for row in doubled} == set(SUBJECTS)


def fast_grace() -> float:
    from gpu_evidence.main import _FAST_GRACE_S

    return _FAST_GRACE_S


def test_seconds_are_seen_on_the_same_kind_of_card_alone(folder: Path) -> None:
    """The published records of an H200 took 35.7 s (window 15.8 s, trace 5 s) and 15.8 s."""
    clock, order = clock_of(H200, folder)
    seen = {line: clock.of(line) for line in order if line != BESIDE and clock.of(line).source != GUESS}
    assert {line[1:3] for line in seen} == {("eager", "bf16"), ("cudagraph", "bf16")}
    assert [round(one.seconds) for one in seen.values()] == [19, 16]
    assert all("dd086e2" in one.source or "2f9ce2f" in one.source for one in seen.values())
    clock, order = clock_of(RTX_4090, folder)
    assert {clock.of(line).source for line in order if line != BESIDE} == {GUESS}


def test_a_small_card_builds_in_groups_and_an_old_one_has_no_bf16(folder: Path) -> None:
    small, order = clock_of(RTX_4080, folder)
    first = fast.blocks(order)[0]
    groups = fast.beside(small, first, anew=True).groups
    assert len(groups) > 1
    assert all(
        sum(small.planned[one.component].rows[one].memory.device for one in group) < 10 << 30 for group in groups
    )
    large, order = clock_of(H200, folder)
    assert len(fast.beside(large, first, anew=True).groups) == 1
    _, order = clock_of(T4, folder)
    assert {line.dtype for line in order} == {"fp16", ""}
    assert len({line[:3] for line in order if line != BESIDE}) == len([line for line in order if line != BESIDE])


def test_a_build_that_times_many_kernels_is_never_beside_others(folder: Path) -> None:
    clock, order = clock_of(H200, folder)
    found = fast.beside(clock, fast.blocks(order)[1], anew=True)
    assert [line.what for line in found.alone] == ["inductor[mode=max-autotune,freezing]"]
    assert not set(found.alone) & set(found.builds)
    assert found.alone[0] in found.cold(1.0)


@dataclass
class StandIn:
    """Sweeps that store a record of each row at once; `age_s` is how long ago."""

    runs: Path
    cache: Path
    age_s: float = 0.0
    ran: list[str] = field(default_factory=list)

    def run(
        self, plan: Plan, runs: Path, _note: str, _resume: bool, progress: Any, rows: Sequence[Row] = ()
    ) -> SweepResult:
        newest = find_newest(plan.key, runs, self.cache)
        state = newest or begin(plan.key, plan.component.name, runs, self.cache)
        for row in rows:
            created = datetime.fromtimestamp(time.time() - self.age_s, UTC).isoformat().replace("+00:00", "Z")
            made = record(
                row.variant.backend, [1.0] * 20, variant=row.variant, sweep=state.sweep, created=created,
                config_id=row.config_id, baseline=row.baseline, host=host.read_host(), policy=plan.request.policy,
                dtype=row.variant.dtype,
            )  # fmt: skip
            save(runs, made)
            self.ran.append(f"{row.variant.component} {row.variant.backend} {row.variant.dtype}")
            progress.result(replace(made, created=datetime.now(UTC).isoformat().replace("+00:00", "Z")))
        return SweepResult(state.sweep, (), ())


@pytest.fixture
def driven(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[fast.Driver, StandIn]:
    (folder / "cache").mkdir()
    clock, order = clock_of(H200, folder)
    stand_in = StandIn(folder / "runs", folder / "cache")
    monkeypatch.setattr(fast, "run_sweep", stand_in.run)
    monkeypatch.setattr(fast.Driver, "prepare", lambda _self, _found: None)
    asked = fast.Asked("cuda", SUBJECTS, str(folder), str(folder / "to/evidence.tar.gz"), "")
    rows = [line for line in order if line != BESIDE and line.what not in (BEST, FINAL)]
    return fast.Driver(asked, clock, (BESIDE, *rows[:4])), stand_in


def archived(folder: Path) -> list[str]:
    with tarfile.open(folder / "to/evidence.tar.gz") as archive:
        return [name for name in archive.getnames() if "/records/" in name]


def test_each_component_is_one_sweep_and_a_second_call_goes_on(
    driven: tuple[fast.Driver, StandIn], folder: Path, capsys: "pytest.CaptureFixture[str]"
) -> None:
    driver, stand_in = driven
    driver.run()
    assert [one.split()[:2] for one in stand_in.ran[:3]] == [["wm", "eager"], ["image", "eager"], ["audio", "eager"]]
    printed = [line for line in capsys.readouterr().out.splitlines() if " ok " in line]
    assert len(printed) == len(archived(folder)) == 4
    driver.run()
    assert len(stand_in.ran) == 4
    driver.order = (*driver.order, BESIDE, *[line for line in CUDA if line[:2] == ("wm", "cudagraph")])
    driver.run()
    assert stand_in.ran[4:] == ["wm cudagraph bf16"]
    sweeps = {(entry.record.variant.component, entry.record.sweep) for entry in load_all(folder / "runs").current}
    assert len(sweeps) == 3


def test_a_row_that_comes_late_comes_with_eager_anew(driven: tuple[fast.Driver, StandIn], folder: Path) -> None:
    driver, stand_in = driven
    stand_in.age_s = fast.EAGER_AGE_S + 60
    driver.run()
    stand_in.age_s = 0.0
    late, later = [line for line in CUDA if line.component == "wm" and line.what in ("cudagraph", "aoti[]")]
    driver.order = (BESIDE, late, later)
    stand_in.ran.clear()
    driver.run()
    assert stand_in.ran == ["wm eager bf16", "wm cudagraph bf16", "wm aoti bf16"]
    rows = [each for each in load_all(folder / "runs").current if each.record.variant.component == "wm"]
    assert len({each.record.sweep for each in rows}) == 1
    assert [each.record.baseline for each in rows].count(True) == 3, "the aged one, one for the second row, one now"


def test_a_row_whose_build_was_stopped_comes_after_the_others(driven: tuple[fast.Driver, StandIn]) -> None:
    driver, stand_in = driven
    row = next(row for line, row in driver.planned(driver.order[1]).rows.items() if line == driver.order[2])
    driver.run()
    assert stand_in.ran[-1] == f"wm {row.variant.backend} bf16"
    stand_in.ran.clear()
    shutil.rmtree(driver.runs)
    build_cache.open_folder(row.cache_folder)
    build_cache.mark_finished(row.cache_folder)
    driver.run()
    assert stand_in.ran[1] == f"wm {row.variant.backend} bf16"


def test_an_archive_of_a_strange_card_is_merged_with_what_the_cache_kept(folder: Path) -> None:
    """A row whose record could not be written to the runs lies in the cache; without it the archive lost it."""
    runs, cache = folder / "runs", folder / "cache"
    strange = replace(GPU_HOST, gpus=({**GPU_HOST.gpus[0], "name": "NVIDIA Strange 1", "uuid": "GPU-strange"},))
    state = begin("key", "wm", runs, cache)
    cold = BuildCost(cache="cold", build_s=10.0, peak_bytes=1)
    whole = record("eager", [2.0] * 20, host=strange, sweep=state.sweep)
    timed = record("inductor", made=measurement([1.0] * 20, build=cold), host=strange, sweep=state.sweep)
    save(runs, whole)
    (cache / "sweeps" / state.name).mkdir()
    (cache / "sweeps" / state.name / "0123456789abcdef.json").write_bytes(encode(timed))
    target = folder / "to/evidence.tar.gz"
    write_archive(State(folder), runs, cache, target)
    merged = folder / "home"
    for told in ("2 records copied", "0 records copied"):
        done = CliRunner().invoke(app, ["--runs", str(merged), "records", "merge", str(target)])
        assert done.exit_code == 0, done.output
        assert done.output.startswith(told)
    found = {entry.record.variant.backend: entry.record for entry in load_all(merged).current}
    assert set(found) == {"eager", "inductor"}
    assert found["inductor"].latency == timed.latency


def hostile(folder: Path, *members: tuple[str, bytes]) -> Path:
    path = folder / "hostile.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        link = tarfile.TarInfo("runs/card/records/link.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return path


@pytest.mark.parametrize("name", ["../../evil.json", "/evil.json", "runs/../records/evil.json", "runs/x/evil.json"])
def test_an_archive_writes_nothing_but_records(folder: Path, name: str) -> None:
    path = hostile(folder, (name, b"{}"))
    done = CliRunner().invoke(app, ["--runs", str(folder / "home"), "records", "merge", str(path)])
    assert done.exit_code != 0
    assert not (folder / "home").exists()
    assert not list(folder.rglob("evil.json"))


@pytest.mark.parametrize("keep", [0, 10, 200, 1500])
def test_an_archive_that_was_cut_is_refused_and_merges_nothing(folder: Path, keep: int) -> None:
    save(folder / "runs", record("eager", [2.0] * 20))
    target = folder / "evidence.tar.gz"
    write_archive(State(folder), folder / "runs", folder / "cache", target)
    target.write_bytes(target.read_bytes()[:keep])
    done = CliRunner().invoke(app, ["--runs", str(folder / "home"), "records", "merge", str(target)])
    assert done.exit_code != 0
    assert getattr(done.exception, "code", None) == "not-readable"
    assert not (folder / "home").exists()


@pytest.mark.timeout(600)
def test_the_sequence_runs_on_a_host_that_has_only_what_it_needs(tmp_path: Path) -> None:
    """A copy of the tree without tests and published records, without an installed bakeoff, and without libraries that
    draw, test or compile: a row, one line for each thing that lacks, and the archive. The final never has time; a call
    that a busy host gives no time for a row is followed by a longer one, which goes on."""
    tree, site = tmp_path / "tree", tmp_path / "site"
    for name in ("bakeoff", "backends", "models", "export", "tools"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    lacking = ("vl_convert", "pytest", "onnxruntime", "openvino")
    site.mkdir()
    for path in Path(pytest.__file__).parents[1].iterdir():
        if not path.name.startswith(lacking) and "bakeoff" not in path.name:
            (site / path.name).symlink_to(path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BAKEOFF_")}
    environment |= {
        "PYTHONPATH": str(site),
        "BAKEOFF_CACHE": str(tmp_path / "cache"),
        "BAKEOFF_LOCKS": str(tmp_path / "locks"),
        "BIN": str(tmp_path / "bare/bin"),
    }
    venv.create(tmp_path / "bare", symlinks=True, with_pip=False)
    words = ("--fast", "--device", "cpu", "--subjects", "toy:tiny.world", "--to", str(tmp_path / "to"))
    rows: list[str] = []
    for budget_s in (36, 70, 70, 70):
        done = subprocess.run(
            [str(tree / "tools/gpu-evidence"), *words, "--budget", str(budget_s)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.returncode == 75, done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        assert [name for name in lacking if f"DOES NOT IMPORT: {name}: " not in done.stdout] == []
        with tarfile.open(tmp_path / "to/evidence.tar.gz") as archive:
            rows = [name for name in archive.getnames() if "_toy_tiny.world_" in name]
        if rows:
            break
    assert rows
