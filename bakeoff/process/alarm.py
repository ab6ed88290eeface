"""Defers the alarm (SIGALRM) of a sweep's budget while it would do harm, and keeps it from being lost."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def alarm_waits() -> Iterator[None]:
    """Defer an alarm that rings within the block to the end of the block.

    A signal mask would not do: another thread of this process would take the signal.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are handled in the main thread
        yield
        return
    rang: list[int] = []
    handler = signal.signal(signal.SIGALRM, lambda number, _frame: rang.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, handler)
        if rang:
            signal.raise_signal(signal.SIGALRM)


@contextmanager
def raised_again(error: type[KeyboardInterrupt]) -> Iterator[None]:
    """Raise `error` once more, 10 ms later, if a signal's handler raised it within a callback that drops errors.

    Python prints and drops what is raised in a weak reference's callback or in a `__del__` (sys.unraisablehook), and
    any line of the main thread may be in one when the signal comes.
    """
    before = sys.unraisablehook

    def handler(_number: int, _frame: FrameType | None) -> None:
        raise error

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if unraisable.exc_type is not error:
            before(unraisable)
            return
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.01)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
