"""Starts the process that carries out an order, and hands on what that writes; on a cluster as an actor of Ray.

There it is sent by value and imports nothing of this project, so that a node without it, or with another version,
answers with a sentence; and Ray's own process stays idle while the node measures.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

_WAIT_S = 2.0
"""In which a call waits for lines."""
_PAUSE_S = 0.2
"""Between the first line and reading, so that lines come in batches."""
_END_S = 60.0
"""In which a process that is stopped keeps what it has and ends its workers."""
_SHOWN = 600
"""Characters of what a process that failed wrote last."""


class Relay:
    """Starts processes for orders, one after the other; each ends when this one does."""

    def ready(self) -> tuple[list[bytes], bool]:
        """Return no lines, and that no order is carried out."""
        return [], False

    def begin(self, order: bytes, command: Sequence[str], caller: str, variables: Mapping[str, str]) -> None:
        """Start the process of an order with these environment variables.

        `caller` is the variable that binds the process to this one's life.
        """
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by take()
        self._rest = b""
        self._kill_at = float("inf")
        self._child = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {caller: str(os.getpid())} | dict(variables),
            start_new_session=True,
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self.output = self._child.stdout.fileno()
        with suppress(BrokenPipeError):  # it ended, and says why
            self._child.stdin.write(order)
            self._child.stdin.close()

    def take(self) -> tuple[list[bytes], bool]:
        """Return lines of the process, and whether more may follow; the last line states how it ended."""
        assert self._child.stdout is not None
        if time.monotonic() > self._kill_at:
            self._child.kill()  # its guards end its workers
        if not select.select([self._child.stdout], [], [], _WAIT_S)[0]:
            return [], True
        time.sleep(_PAUSE_S)
        data = os.read(self._child.stdout.fileno(), 1 << 20)
        if data:
            *lines, self._rest = (self._rest + data).split(b"\n")
            return lines, True
        with self._child.stdout, self._errors:
            self._child.wait()
            self._errors.seek(0)
            last = self._errors.read().decode(errors="replace").strip()[-_SHOWN:]
            return [json.dumps(["ended", self._child.returncode, last]).encode()], False

    def stop(self) -> None:
        """Stop the process as Ctrl-C does; its last lines are still to be taken."""
        self._child.terminate()
        self._kill_at = time.monotonic() + _END_S
