"""Makes the page and JSON report of a session in a short-lived process.

They need Jinja and the library that draws figures, which would cost the pipeline's process a second and 150 MiB.

As a program, `python -m bakeoff.profile.reporting RECORD FILE...` writes these files from a record.
"""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from bakeoff.machine.terminal import one_line
from bakeoff.models.errors import BakeoffError
from bakeoff.profile.files import PAGE, read_session
from bakeoff.profile.plain import say

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

PATIENCE_S = 30.0
"""Longest run of the process; then it is killed, so that the exit of a user's program does not wait for it."""


@cache
def _pool() -> "ThreadPoolExecutor":
    """Return two threads that wait for processes, and for which the interpreter waits before it exits.

    Raises RuntimeError if it is exiting already.
    """
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(2, "bakeoff reports")


def start_reports(record: Path, paths: Sequence[Path]) -> "Future[tuple[Path, ...]]":
    """Start a process that makes these files from a record's file; the result is what `make_reports` returns."""
    try:
        return _pool().submit(make_reports, record, paths)
    except RuntimeError:
        made = Future[tuple[Path, ...]]()
        made.set_result(make_reports(record, paths))
        return made


def make_reports(record: Path, paths: Sequence[Path]) -> tuple[Path, ...]:
    """Make these files in a process, wait for it, and return those that are there. If it fails, a line on stderr says
    so."""
    command = [sys.executable or "python3", "-P", "-m", __name__, *(str(each.absolute()) for each in (record, *paths))]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            start_new_session=True,  # Ctrl-C at the terminal is not for it
            check=False,
        )
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        why = (lines or [f"its process ended with code {done.returncode}"])[-1] if done.returncode else ""
    except subprocess.TimeoutExpired:
        why = f"its process took longer than {PATIENCE_S:.0f} s"
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = f"its process did not start ({error})"
    if why:
        command_text = f"bakeoff session show {quote(str(record))} --html"
        say(f"a session has no report: {one_line(why)}; to make it: {command_text}")
    return tuple(path for path in paths if path.exists())


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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
