"""Modules of a user's pipeline: recorded by `inspect`, or found in a loop, and swept one after the other."""

import json
import re
import signal
from pathlib import Path

import pytest
from lab import command_line, shorten_clocks
from records import bakeoff

from bakeoff.record.store import load_all

SOURCE = """\
import torch
from torch import nn

class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, t):
        return self.layer(x) * t

class Strange(nn.Module):
    def forward(self, x, what):
        return x + 1

def pipe():
    first, second, strange = Steps().eval(), nn.Linear(4, 4).eval(), Strange()
    @torch.inference_mode()
    def run():
        for step in range(6):
            first(torch.randn(2, 4), torch.tensor(step + 0.5))
        for size in range(1, 7):
            second(torch.randn(size, 4))
        strange(torch.ones(1), object())
    return run
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


def test_recorded_modules_are_folders_that_a_sweep_takes(folder: Path) -> None:
    record = ("--record", "strange,first,second", "--passes", "2", "--threads", "1", "--json")
    done = bakeoff("inspect", "mine.py:pipe", *record, cwd=folder)
    assert done.code == 1, done.err
    document = json.loads(done.out)
    assert document["worth_sweeping"]
    strange, *others = document["inspection"]["recorded"]
    assert (strange["name"], strange["folder"]) == ("strange", "")
    assert strange["problem"].startswith("what is a builtins.object")
    assert [(one["name"], len(one["sets"])) for one in others] == [("first", 1), ("second", 6)]
    plan = ("--backends", "eager", "--dtype", "fp32", "--dry-run", "--json")
    swept = bakeoff("sweep", *(one["folder"] for one in others), *plan, cwd=folder)
    assert swept.code == 0, swept.err
    assert [len(told["lines"]) for told in json.loads(swept.out).values()] == [1, 6]


LOOP = """\
import torch
from torch import nn

from bakeoff import Pipeline

class Deaf(nn.Module):
    def forward(self, x):
        return 1 + 1e-6 * x

class Loop(Pipeline):
    def modules(self):
        return {"first": nn.Linear(4, 4).eval(), "last": Deaf().eval()}

    def given(self, unit, draw):
        return {"x": draw("x", (1, 4))}

    def step(self, state, given, run):
        return state, {"y": run.last(run.first(given["x"]))}
"""


def test_what_is_wrong_with_one_of_several_components_is_said_before_the_first_is_measured(tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text(LOOP + "\n\ndef model():\n    return Deaf().eval(), torch.randn(1, 4)\n")
    short = ("--backends", "eager", "--dtype", "fp32", "--device", "cpu", "--no-final", "--threads", "1")
    for other, said in (("deaf.py:model", "deaf.call: output differs by"), ("nope", "no component 'nope'")):
        swept = bakeoff("sweep", "toy", other, *short, cwd=tmp_path)
        assert swept.code == 2
        assert said in swept.err
        assert not (tmp_path / "runs").exists() or not load_all(tmp_path / "runs").current


def test_one_command_resumes_the_sweeps_of_a_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A finished module is not measured again, the interrupted one goes on, and those that had not begun follow."""
    loop = (
        LOOP.replace("Deaf()", "nn.Linear(4, 4)").replace("run.last(", "run.last(run.middle(").replace("]))}", "])))}")
    )
    loop = loop.replace('"last":', '"middle": nn.Linear(4, 4).eval(), "last":')
    (tmp_path / "mine.py").write_text(loop, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAKELEVEL", raising=False)
    typed = ["--runs", "my runs", "sweep", "mine.py:Loop", "--backends", "eager,torch.export", "--dtype", "fp32"]
    typed += ["--threads", "1", "--time-limit", "20m", "--no-final"]
    with command_line(typed) as process:
        assert process.stderr is not None
        names = []
        for line in process.stderr:
            names += re.findall(r"^bakeoff: sweep \d of 3: (\w+)", line)
            if len(names) == 2 and line.startswith("[1/") and "started" not in line:
                break
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, rest
    (said,) = [line for line in rest.splitlines() if "interrupted; not run: " in line]
    assert said.endswith("last; the same command with --resume runs them")
    before = {stored.id for stored in load_all(Path("my runs")).current}
    shorten_clocks(monkeypatch)
    done, words = bakeoff(*typed, "--resume", "--dry-run", "--json", cwd=tmp_path), [*typed, "--resume"]
    left = json.loads(done.out)
    assert set(left) == {"first", "middle", "last"} - {names[0]}
    assert len(left[names[1]]["lines"]) < len(left[({*left} - {*names}).pop()]["lines"])
    resumed = bakeoff(*words, cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    assert any(line.startswith(f"bakeoff: {names[0]} is finished: sweep ") for line in resumed.said)
    records = load_all(Path("my runs")).current
    assert before < {stored.id for stored in records}
    found = sorted((one.record.variant.component, str(one.record.variant.backend)) for one in records)
    assert len(found) == len(set(found))
    assert {component for component, _ in found} == {"mine.first", "mine.middle", "mine.last"}
    assert len({one.record.sweep for one in records}) == 3
    again = bakeoff(*words, cwd=tmp_path)
    assert (again.code, load_all(Path("my runs")).current) == (0, records)
