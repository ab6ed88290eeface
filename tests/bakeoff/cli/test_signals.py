"""Signals that come before the command line has imported its libraries, or with nobody left to read."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from lab import wait_until

SLOW_IMPORT = """
import sys, time
from pathlib import Path

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "bakeoff.cli":
            Path(sys.argv[1]).touch()
            time.sleep(60)

sys.meta_path.insert(0, Slow())
from bakeoff.__main__ import main
main()
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_the_imports_gives_no_traceback(tmp_path: Path, ending: signal.Signals) -> None:
    importing = tmp_path / "importing"
    process = subprocess.Popen([sys.executable, "-c", SLOW_IMPORT, str(importing)], stderr=subprocess.PIPE, text=True)
    wait_until(importing.exists, "the imports to begin")
    process.send_signal(ending)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (128 + ending, "bakeoff: interrupted\n")


def test_a_signal_that_was_ignored_stays_ignored(tmp_path: Path) -> None:
    """As with nohup."""
    importing = tmp_path / "importing"
    process = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", SLOW_IMPORT, str(importing)],
        stderr=subprocess.DEVNULL,
    )
    wait_until(importing.exists, "the imports to begin")
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.kill()
    process.wait()


def test_a_terminal_that_is_closed_ends_a_waiting_command(tmp_path: Path) -> None:
    """The kernel sends SIGHUP, and nothing can be printed any more."""
    from bakeoff.machine.locks import device_lock

    ours, theirs = os.openpty()
    with device_lock("cpu", print):
        process = subprocess.Popen(
            ["setsid", "--ctty", sys.executable, "-m", "bakeoff", "doctor", "--ceilings", "--device", "cpu"],
            cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        said = b""
        while b"waiting for pid" not in said:
            said += os.read(ours, 1 << 16)
        os.close(ours)
        assert process.wait(120) == 128 + signal.SIGHUP
