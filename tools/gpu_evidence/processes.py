"""A command with its output in a log, which ends at a time limit or at Ctrl-C as if it had been interrupted itself."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 20.0
"""From SIGINT to SIGKILL; an interrupted sweep ends its worker and writes its last record."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    late: bool = False
    """It was interrupted at its limit."""


def interrupt_on_signals() -> None:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt too: a host that ends a command sends one of these.

    SIGHUP stays ignored under nohup. SIGINT, ignored in a shell's background, is not: children would ignore it as well.
    """

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    for number in SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def run(command: Sequence[str], environment: Mapping[str, str], cwd: Path, log: Path, seconds: float | None) -> Ended:
    """Run a command in a session of its own, its output appended to `log`, for at most `seconds`.

    At KeyboardInterrupt it is ended as well, and the exception goes on.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return Ended(process.wait(seconds))
    except subprocess.TimeoutExpired:
        return Ended(_end(process), late=True)
    except KeyboardInterrupt:
        _end(process)
        raise


def _end(process: "subprocess.Popen[bytes]") -> int:
    """Interrupt the command, wait for it, and kill what is left of its process group; returns its exit code."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()
