"""Makes the page and JSON report of a session in a short-lived process.

They need Jinja and the library that draws figures, which would cost the pipeline's process a second and 150 MiB.

As a program, `python -m bakeoff.profile.reporting RECORD FILE...` writes these files from a record.
"""

import atexit
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from threading import Lock
from time import monotonic

from bakeoff.machine.terminal import one_line
from bakeoff.models.errors import BakeoffError
from bakeoff.profile.files import PAGE, read_session
from bakeoff.profile.plain import say

PATIENCE_S = 30.0
"""Longest run of the process; then it is killed, so that the exit of a user's program does not wait for it."""
MOST_AT_ONCE = 2
"""Largest number of processes; a session that ends while so many run waits for the oldest one."""
_running: "list[Reports]" = []


class Reports:
    """Handle of a process that makes files from a record. Thread-safe; raises nothing."""

    def __init__(self, record: Path, paths: Sequence[Path]) -> None:
        self._record, self._paths = record, tuple(paths)
        self._lock = Lock()
        self._owner = os.getpid()
        self._deadline_s = monotonic() + PATIENCE_S
        self._process: subprocess.Popen[bytes] | None = None
        files = [str(each.absolute()) for each in (record, *paths)]
        try:
            self._process = subprocess.Popen(
                [sys.executable or "python3", "-P", "-m", __name__, *files],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C at the terminal is not for it
            )
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            self._tell(f"its process did not start ({error})")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait(self) -> tuple[Path, ...]:
        """Wait for the process and return the files that it made. If it failed, a line on stderr says so."""
        if os.getpid() != self._owner:  # a forked child leaves the process to its parent
            return ()
        with self._lock:
            process, self._process = self._process, None
            if process is not None:
                self._end(process)
        return tuple(path for path in self._paths if path.exists())

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        # Once its timeout is over, communicate() takes even a process that has ended for late.
        left_s = max(1.0 if process.poll() is not None else 0.0, self._deadline_s - monotonic())
        try:
            _, said = process.communicate(timeout=left_s)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
            process.kill()
            process.communicate()
            if isinstance(error, KeyboardInterrupt):
                raise
            self._tell(f"its process took longer than {PATIENCE_S:.0f} s")
            return
        if process.returncode:
            lines = said.decode(errors="replace").strip().splitlines()
            self._tell(lines[-1] if lines else f"its process ended with code {process.returncode}")

    def _tell(self, why: str) -> None:
        command = f"bakeoff session show {quote(str(self._record))} --html"
        say(f"a session has no report: {one_line(why)}; to make it: {command}")


def start_reports(record: Path, paths: Sequence[Path]) -> Reports:
    """Start a process that makes these files from a record's file; the interpreter waits for it at exit."""
    for each in [each for each in _running if not each.is_running]:
        _collect(each)
    while len(_running) >= MOST_AT_ONCE:
        _collect(_running[0])
    if not _running:
        atexit.unregister(_finish)
        atexit.register(_finish)
    made = Reports(record, paths)
    _running.append(made)
    return made


def write_reports(record: Path, paths: Sequence[Path]) -> None:
    """Make these files from a record's file in this process. Raises BakeoffError if one cannot be made."""
    import msgspec

    from bakeoff.machine.files import write_atomically
    from bakeoff.record.codec import encode_json
    from bakeoff.report.pages.session import as_json, document
    from bakeoff.report.render import html

    made = read_session(record)
    for path in paths:
        if path.name.endswith(PAGE):
            write_atomically(path, html.render(document(made)).encode())
        else:
            write_atomically(path, msgspec.json.format(encode_json(as_json(made)), indent=1) + b"\n")


def main(arguments: Sequence[str]) -> int:
    """Write the files and return 0; return 1, with a sentence on stderr, if one cannot be made."""
    record, *paths = map(Path, arguments)
    try:
        write_reports(record, paths)
    except Exception as error:  # noqa: BLE001  # whatever fails is one sentence
        text = str(error)
        print(one_line(text if isinstance(error, BakeoffError) else f"{type(error).__name__}: {text}"), file=sys.stderr)
        return 1
    return 0


def _collect(reports: Reports) -> None:
    reports.wait()
    if reports in _running:
        _running.remove(reports)


def _finish() -> None:
    try:
        while _running:
            _collect(_running[0])
    except KeyboardInterrupt:
        return  # the second Ctrl-C of somebody who wants to leave


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
