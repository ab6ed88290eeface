"""The command inspect with somebody's own Python: what is wrong is one line, and nothing is left behind."""

import signal
from pathlib import Path

import pytest
from lab import command_line, processes_with, wait_until
from records import bakeoff

from bakeoff.bring.inspect import inspect_file

SOURCE = """\
import os, sys, time
import torch
from torch import nn
import bakeoff

linear = nn.Linear(2, 2)

def pipe():
    def run():
        return linear(torch.ones(1, 2))
    return run

def raises():
    def run():
        linear(torch.ones(3))
    return run

def dies():
    os.kill(os.getpid(), 11)

class Loop(bakeoff.Pipeline):
    pass

def endless():
    def run():
        print("looping", flush=True)
        time.sleep(1000)
        linear(torch.ones(1, 2))
    return run
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("missing.py:pipe",), "bad-user-code", "missing.py"),
        (("mine.py:Loop",), "bad-user-code", "mine.py:Loop is a pipeline; its phases"),
        (("mine.py:raises",), "bad-user-code", "(mine.py, line 15)"),
        (("mine.py:dies",), "worker-failed", "SIGSEGV"),
        (("mine.py:endless",), "worker-failed", "2 s"),
        (("mine.py:pipe", "--record", "nothing"), "unknown-name", "called are linear"),
        (("mine.py:pipe", "--passes", "1"), "bad-option", "--passes 1"),
        (("mine.py:pipe", "--depth", "-1"), "bad-option", "--depth -1"),
        ((".", "--record", "linear"), "bad-option", "artifact's folder"),
        (("mine.py:",), "bad-option", "FILE.py:NAME"),
        (("mine.py",), "bad-option", "FILE.py:NAME"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_what_is_wrong_is_one_line(
    folder: Path, arguments: tuple[str, ...], code: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "mine.py:endless" in arguments:
        monkeypatch.setitem(inspect_file.__kwdefaults__, "seconds", 2.0)
    done = bakeoff("inspect", *arguments, cwd=folder)
    assert done.code == 2
    assert done.out == ""
    (line,) = done.said
    assert said in line
    assert line.endswith(f"[{code}]")
    assert "Traceback" not in done.err


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_it(folder: Path, monkeypatch: pytest.MonkeyPatch, ending: signal.Signals) -> None:
    monkeypatch.setenv("BAKEOFF_TEST_MARKER", folder.name)
    with command_line(["inspect", str(folder / "mine.py:endless")]) as process:
        log = folder / "cache" / "logs" / "inspect" / "mine-endless.log"
        wait_until(lambda: log.is_file() and "looping" in log.read_text(encoding="utf-8"), "the pass")
        process.send_signal(ending)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + ending
    assert said.splitlines()[-1] == "bakeoff: interrupted"
    assert processes_with(folder.name) == []
