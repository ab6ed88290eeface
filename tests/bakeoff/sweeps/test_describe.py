"""The work of a sweep's calls: counted by one worker, once."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from lab import Recorder

from bakeoff.machine import paths
from bakeoff.models.component import Work
from bakeoff.models.errors import BakeoffError
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.process.jobs import Subject
from bakeoff.sweeps.describe import works_of

EAGER = {"backends": ("eager",), "dtypes": ("fp32",), "device": "cpu"}


def counted(request: Request, progress: Recorder) -> dict[Subject, Work]:
    return works_of(make_plan(request), paths.cache_folder(), progress)


def own(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> str:
    """A component in a module of the user's, where workers find it too."""
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    return f"{name}:SPEC"


def test_one_worker_counts_all_calls_of_a_plan_once() -> None:
    progress = Recorder()
    request = Request("toy", workloads=("world", "picture"), batches=(1, 2), **EAGER)
    works = counted(request, progress)
    assert [(one.workload, one.batch, work.flops) for one, work in works.items()] == [
        ("world", 1, 294_912),
        ("world", 2, 589_824),
        ("picture", 1, 6_488_064),
        ("picture", 2, 12_976_128),
    ]
    assert counted(request, progress) == works
    assert counted(replace(request, batches=(1, 2, 3)), progress).items() > works.items()
    started = [what for event, what in progress.told if event == "start"]
    assert started == ["describing toy (4 calls)", "describing toy (2 calls)"]


def test_another_number_of_parameters_than_stated_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from dataclasses import replace\nfrom bakeoff.models.toy.spec import SPEC\n"
    text += "SPEC = replace(SPEC, presets=tuple(replace(one, parameters=5) for one in SPEC.presets))\n"
    component = own(tmp_path, monkeypatch, "miscounted", text)
    with pytest.raises(BakeoffError, match=r"tiny states 5 parameters, and its network has 24,451; correct") as caught:
        counted(Request(component, **EAGER), Recorder())
    assert caught.value.code == "bad-config"


def test_a_network_that_fails_has_no_work_and_says_so() -> None:
    progress = Recorder()
    (work,) = counted(Request("broken:RAISES", **EAGER), progress).values()
    assert work == Work(0, 0, 2 * 16 * 32 + 1 + 2 * 64 * 32)
    said = [what for event, what in progress.told if event == "say"]
    assert said == ["The work of a call is unknown: toy:tiny.world: RuntimeError: this component never worked."]
