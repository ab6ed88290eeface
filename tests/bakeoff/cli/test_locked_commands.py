"""Every command that measures or computes waits for a process that measures, and says for which."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bakeoff.machine.locks import device_lock

EAGER, INDUCTOR = (f"toy:tiny.world/{backend}/fp32@cpu" for backend in ("eager", "inductor"))
COMMANDS = {
    "sweep": ("sweep", "toy", "--backends", "eager", "--device", "cpu"),
    "compare": ("compare", EAGER, INDUCTOR),
    "export": ("export", "toy", "--backend", "onnxruntime", "--device", "cpu"),
    "ceilings": ("ceilings", "--device", "cpu"),
    "golden": ("golden", "none.safetensors"),
    "selftest": ("selftest", "--quick", "--device", "cpu"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_it_waits_and_names_the_process(tmp_path: Path, name: str) -> None:
    with device_lock("cpu", "verify art", print):
        process = subprocess.Popen(
            [sys.executable, "-m", "bakeoff", *COMMANDS[name]], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        waiting = next(line for line in process.stderr if "waiting for" in line)
        assert f"pid {os.getpid()}: bakeoff verify art, since " in waiting
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=60)[1]
    assert (process.returncode, errors) == (128 + signal.SIGTERM, "bakeoff: interrupted\n")
