"""Runs a command of bakeoff as a child of a user's process: progress to stderr, JSON from stdout, errors raised."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

from bakeoff.models.errors import BakeoffError, ErrorCode
from bakeoff.process.environment import IN_WORKER
from bakeoff.process.guard import CALLER

COMMAND = (sys.executable, "-P", "-m", "bakeoff")
_ERROR = re.compile(r"bakeoff: (?P<text>.*?)(?: \[(?P<code>[a-z-]+)\])?")
_WITH_RESULT = (0, 1, 3)
"""Exit codes of a command that did its work, whatever came of it."""


def refuse_in_workers() -> None:
    """Raise BakeoffError in a worker: a file that sweeps whenever it is imported would sweep in every worker again."""
    if os.environ.get(IN_WORKER):
        raise BakeoffError(
            "bakeoff.sweep was called while a worker of a sweep imported this file; put the call below "
            'if __name__ == "__main__":',
            code="bad-user-code",
        )


def run_command(arguments: Sequence[str]) -> Any:
    """Run `bakeoff ARGUMENTS` and return the JSON that it prints.

    Raises BakeoffError with the text and code of the command's error, and KeyboardInterrupt after Ctrl-C, once the
    child and its workers have ended.
    """
    with tempfile.TemporaryFile() as output:
        command = [*COMMAND, *arguments]
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.PIPE,
                env={**os.environ, CALLER: str(os.getpid())},
            )
        except OSError as error:
            text = f"{command[0]} cannot be started: {error.strerror}; run bakeoff sweep in a shell instead"
            raise BakeoffError(text, code="os-error") from error
        with child:
            last, interrupted = _wait(child)
        output.seek(0)
        content = output.read()
    if interrupted:
        raise KeyboardInterrupt("the sweep was stopped and its workers have ended; resume=True runs what is left")
    if child.returncode in _WITH_RESULT:
        with suppress(ValueError):
            return json.loads(content)
    raise _error(last, child.returncode)


def _wait(child: "subprocess.Popen[bytes]") -> tuple[str, bool]:
    """Pass its stderr on until it has ended; returns the last line that is bakeoff's own, and whether Ctrl-C came."""
    last, interrupted = "", False
    assert child.stderr is not None
    while True:
        try:
            for line in child.stderr:
                text = line.decode(errors="replace")
                last = text if text.startswith("bakeoff: ") else last
                _say(text)
            child.wait()
            return last, interrupted
        except KeyboardInterrupt:
            interrupted = True
            child.send_signal(signal.SIGINT)  # one that it has from the terminal too is of no effect


def _say(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _error(line: str, code: int) -> BakeoffError:
    found = _ERROR.fullmatch(line.rstrip("\n"))
    if found is None:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return BakeoffError(f"the sweep {how}; its output above says why", code="worker-failed")
    return BakeoffError(found["text"], code=cast(ErrorCode, found["code"] or ""))
