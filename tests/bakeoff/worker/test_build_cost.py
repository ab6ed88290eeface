"""The cost of a build leaves out the instrument's own work, and states it."""

import time
from pathlib import Path

import canaries
import pytest

pytest.importorskip("torch", reason="builds are torch's")

from bakeoff.process.jobs import BackendStep, MeasureJob, Subject
from bakeoff.record.policy import Policy
from bakeoff.record.schema import BuildCost
from bakeoff.worker.build import _cpu_s, build_engine
from bakeoff.worker.subject import cast_subject, load_subject
from bakeoff.worker.torch_flags import flags


def cost_of(backend: str, folder: Path, overlapped: bool = False) -> BuildCost:
    subject = Subject("toy", "tiny", "world", 1, 0, 0, "", "cpu", 1)
    job = MeasureJob(
        subject, backend, (BackendStep(backend, {}),), "fp32", Policy(), "", str(folder), overlapped=overlapped
    )
    with flags("fp32", 1):
        loaded = load_subject(subject)
        return build_engine(job, loaded, cast_subject(loaded, "fp32", "cpu")).cost


def test_hashing_for_the_cache_is_stated_beside_the_build_and_not_within(tmp_path: Path) -> None:
    started = time.monotonic()
    cost = cost_of("canaries:HASHES", tmp_path)
    elapsed = time.monotonic() - started
    assert cost.untimed_s is not None
    assert cost.untimed_s >= 0.2, "both pauses count"
    assert cost.build_s is not None
    assert cost.build_s + cost.untimed_s <= elapsed, "and neither is counted twice"
    assert cost_of("eager", tmp_path).untimed_s == 0


def test_cpu_seconds_are_those_of_all_processes_without_the_pauses(tmp_path: Path) -> None:
    before_s = _cpu_s()
    cost = cost_of("canaries:BURNS", tmp_path)
    used_s = _cpu_s() - before_s
    assert cost.cpu_s is not None
    assert cost.cpu_s >= 0.9 * canaries.BURNT_S, "of the process that the build started"
    assert used_s - cost.cpu_s >= 0.9 * canaries.BURNT_S, "of the pause"
    assert not cost.overlapped


def test_a_build_is_warm_where_one_has_succeeded_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert [cost_of("canaries:STATES_CACHE", tmp_path).cache for _ in range(2)] == ["cold", "warm"]
    assert cost_of("eager", tmp_path).cache == "none"


def test_a_build_beside_others_has_no_seconds(tmp_path: Path) -> None:
    cost = cost_of("canaries:BURNS", tmp_path, overlapped=True)
    assert (cost.build_s, cost.untimed_s, cost.overlapped) == (None, None, True)
    assert cost.cpu_s is not None
    assert cost.cpu_s >= 0.9 * canaries.BURNT_S
