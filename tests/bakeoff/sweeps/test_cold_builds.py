"""A build counts as cold only where it found nothing, and as warm only after one that succeeded."""

import os
from pathlib import Path

import pytest
from lab import FAST, marked_folder, sweep

from bakeoff.machine import build_cache
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.process.environment import own_home
from bakeoff.record.schema import Record

HIDES, STATES = "canaries:HIDES_CACHE", "canaries:STATES_CACHE"
pytestmark = pytest.mark.timeout(600)


def request(*backends: str) -> Request:
    return Request("toy", backends=backends, dtypes=("fp32",), device="cpu", threads=1, policy=FAST)


def built(record: Record) -> tuple[str, str]:
    """The state of the cache as the record has it, and in which places the build found something."""
    made = record.measurement
    assert (made.status, made.reason) == ("ok", "")
    assert made.build is not None
    assert made.proof is not None
    return made.build.cache, str(made.proof.facts["found"])


def test_no_cache_survives_that_the_record_does_not_name(tmp_path: Path) -> None:
    """What a killed build left is neither used nor kept; what one left that ended well is found by the next."""
    with marked_folder(tmp_path):
        folder = make_plan(request(STATES)).rows[0].cache_folder
    home = folder / "home" / ".cache"
    home.mkdir(parents=True)
    (home / "canary").touch()
    assert not build_cache.is_warm(folder)
    first = {name: built(record) for name, record in sweep(request(HIDES, STATES), tmp_path).records().items()}
    assert first == {HIDES: ("none", ""), STATES: ("cold", "")}
    assert build_cache.is_warm(folder)
    second = {name: built(record) for name, record in sweep(request(HIDES, STATES), tmp_path).records().items()}
    assert second == {HIDES: ("none", ""), STATES: ("warm", "home xdg inductor")}


def test_what_users_keep_in_their_home_stays_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HF_HOME", "PYTHONUSERBASE", "BAKEOFF_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCH_HOME", "/data/torch")
    found = own_home(tmp_path)
    own = {name for name, value in found.items() if value.startswith(f"{tmp_path}{os.sep}")}
    assert own == {
        "HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR",
        "CUDA_CACHE_PATH", "CCACHE_DIR",
    }  # fmt: skip
    assert (found["HF_HOME"], found["TORCH_HOME"]) == ("/home/ann/.cache/huggingface", "/data/torch")
    assert found["XDG_CONFIG_HOME"] == "/home/ann/.config"
    assert found["BAKEOFF_CACHE"] == "/home/ann/.cache/bakeoff", "a worker finds the lab's cache"
