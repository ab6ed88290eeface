"""Every command that measures or computes waits for a process that measures, and says for which; nothing else waits."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from records import UNSUPPORTED, bakeoff

from bakeoff.machine.locks import device_lock

EAGER, INDUCTOR, CUDA_GRAPHS = (
    f"toy:tiny.world/{backend}/fp32@cpu" for backend in ("eager", "inductor", "inductor[mode=reduce-overhead]")
)
COMMANDS = {
    "sweep": ("sweep", "toy", "--backends", "eager", "--device", "cpu"),
    "compare": ("compare", EAGER, INDUCTOR),
    "export": ("export", "toy", "--backend", "onnxruntime", "--device", "cpu"),
    "ceilings": ("doctor", "--ceilings", "--device", "cpu"),
    "selftest": ("selftest", "--device", "cpu"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_it_waits_and_names_the_process(tmp_path: Path, name: str) -> None:
    with device_lock("cpu", print):
        process = subprocess.Popen(
            [sys.executable, "-m", "bakeoff", *COMMANDS[name]], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        waiting = next(line for line in process.stderr if "waiting for" in line)
        assert f"pid {os.getpid()} of" in waiting
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=60)[1]
    assert (process.returncode, errors) == (128 + signal.SIGTERM, "bakeoff: interrupted\n")


MINE = """
def pipe():
    return 0
"""
NO_WAIT = {
    "a folder that exists": (
        (*COMMANDS["export"], "--to", "full"),
        "exists",
    ),
    "a folder nobody can write": (
        (*COMMANDS["export"], "--to", "/proc/art"),
        "cannot be written",
    ),
    "no unfinished sweep": (("sweep", "toy", "--device", "cpu", "--resume"), "no unfinished run"),
    "no unfinished run": (("pipeline", "toy_loops:Toy", "--device", "cpu", "--resume"), "no unfinished run"),
    "no unfinished profile": (("profile", "toy_loops:Toy", "--device", "cpu", "--resume"), "no unfinished run"),
    "no function": (("inspect", "mine.py:nope"), "has no 'nope'"),
    "no artifact": (("verify", "full"), "manifest.json"),
    "a row that cannot run": (
        ("compare", EAGER, "toy:tiny.world/inductor[mode=reduce-overhead]/fp32@cpu"),
        "unsupported",
    ),
}


@pytest.mark.parametrize("name", NO_WAIT)
def test_what_needs_no_measuring_does_not_wait(tmp_path: Path, name: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious").touch()
    (tmp_path / "mine.py").write_text(MINE)
    words, says = NO_WAIT[name]
    with device_lock("cpu", print):
        ran = bakeoff(*words, cwd=tmp_path)
    assert ran.code == 2
    assert says in ran.said[-1]
    assert "waiting" not in ran.err


def test_rows_of_which_none_can_run_do_not_wait(tmp_path: Path) -> None:
    with device_lock("cpu", print):
        ran = bakeoff(*UNSUPPORTED, cwd=tmp_path)
    assert (ran.code, "waiting" in ran.err) == (3, False)
    assert "unsupported" in ran.out
