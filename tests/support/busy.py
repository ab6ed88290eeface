"""A load beside a measurement: processes that keep a core busy."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loaded(processes: int) -> Iterator[None]:
    """Keep this many processes busy within the block."""
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in burning:
            each.kill()
            each.wait()
