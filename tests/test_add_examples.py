"""The examples of docs/add-a-backend.md and docs/add-a-component.md are complete.

Written to files unchanged, they sweep a new component on a new backend.
"""

import json
import sys
from pathlib import Path

import pytest
from lab import shorten_clocks
from page_examples import files_of, write_files
from records import bakeoff

from bakeoff.record.store import load_all

FILES = files_of("add-a-backend.md", "add-a-component.md")


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """The pages' python blocks as files, each named by its first line."""
    folder = tmp_path / "mine" / "code"
    write_files(folder, FILES)
    return folder


def test_examples_are_a_component_and_a_backend() -> None:
    assert FILES.keys() == {"aot_eager.py", "mine/spec.py", "mine/network.py"}


def test_examples_run_as_typed(examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_clocks(monkeypatch)
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # another page's mine.py
    more = ("--backends", "eager,aot_eager.py:BACKEND", "--device", "cpu", "--dtype", "fp32", "--json")
    ran = bakeoff("sweep", "mine.spec:SPEC", *more, cwd=examples)
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)
    found = {stored.id: stored.record for stored in load_all(tmp_path / "runs").current}
    eager, aot_eager = (found[name] for name in said["records"])
    assert [made.variant.backends[0].name for made in (eager, aot_eager)] == ["eager", "aot-eager"]
    for made in (eager.measurement, aot_eager.measurement):
        # other tests run beside this one, so the host may be too busy for a ranked row
        assert made.status in ("ok", "unstable"), made.reason
        assert made.parity is not None
        assert made.parity.passed
    assert aot_eager.measurement.proof is not None
    assert aot_eager.measurement.proof.graphs == 1
