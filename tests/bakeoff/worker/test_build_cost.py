"""The cost of a build leaves out the instrument's own work, and states it."""

import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="builds are torch's")

from bakeoff.process.jobs import BackendStep, MeasureJob, Subject
from bakeoff.record.policy import Policy
from bakeoff.record.schema import BuildCost
from bakeoff.worker.build import build_engine
from bakeoff.worker.subject import cast_subject, load_subject
from bakeoff.worker.torch_flags import flags


def cost_of(backend: str, folder: Path) -> BuildCost:
    subject = Subject("toy", "tiny", "world", 1, 0, 0, "", "cpu", 1)
    job = MeasureJob(subject, backend, (BackendStep(backend, {}),), "fp32", Policy(), "", str(folder))
    with flags("fp32", 1):
        loaded = load_subject(subject)
        return build_engine(job, loaded, cast_subject(loaded, "fp32", "cpu")).cost


def test_hashing_for_the_cache_is_stated_beside_the_build_and_not_within(tmp_path: Path) -> None:
    started = time.monotonic()
    cost = cost_of("canaries:HASHES", tmp_path)
    elapsed = time.monotonic() - started
    assert cost.untimed_s is not None
    assert cost.untimed_s >= 0.2, "both pauses count"
    assert cost.build_s + cost.untimed_s <= elapsed, "and neither is counted twice"
    assert cost_of("eager", tmp_path).untimed_s == 0
