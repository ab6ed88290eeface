"""Sentences on stderr, from within somebody's pipeline."""

import contextlib
import sys


def say(text: str) -> None:
    """Print one line. A process without stderr, or whose log is on a full disk, goes on without it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: it was closed
            print(f"bakeoff: {text}", file=sys.stderr)
