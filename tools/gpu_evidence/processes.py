"""A command with its output in a log, which ends at a time limit or at Ctrl-C as if it had been interrupted itself."""

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

GRACE_S = 20.0
"""From SIGINT to SIGKILL; an interrupted sweep ends its worker and writes its last record."""
POLL_S = 0.5
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


def end_with_reader(only_prints: bool) -> None:
    """Have a process that only prints end without a word when its reader has read enough, as `head` has."""
    if only_prints:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    log: Path,
    seconds: float | None,
    show: Callable[[str], None],
) -> Ended:
    """Run a command in a session of its own, its output appended to `log`, for at most `seconds`.

    Each line of output is given to `show` within `POLL_S`. At KeyboardInterrupt the command is ended as well, and the
    exception goes on.
    """
    with log.open("ab") as output, log.open("rb") as reader:
        reader.seek(0, os.SEEK_END)
        process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        lines = _Lines(reader, show)
        try:
            return _wait(process, None if seconds is None else time.monotonic() + seconds, lines)
        except KeyboardInterrupt:
            _end(process)
            raise
        finally:
            lines.show_new()


def _die_with_parent() -> None:
    """Have the kernel end this process when the one that started it is killed (prctl(2), PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


@dataclass(slots=True)
class _Lines:
    """The lines of a file that grows."""

    reader: BinaryIO
    show: Callable[[str], None]
    begun: bytes = b""
    """Of a line that has not ended yet."""

    def show_new(self) -> None:
        *whole, self.begun = (self.begun + self.reader.read()).split(b"\n")
        for line in whole:
            self.show(line.decode(errors="replace"))


def _wait(process: "subprocess.Popen[bytes]", deadline: float | None, lines: _Lines) -> Ended:
    while True:
        left = POLL_S if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return Ended(_end(process), late=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return Ended(process.wait(min(left, POLL_S)))
        lines.show_new()


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
