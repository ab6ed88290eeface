"""Keeps the alarm of a sweep's budget from ringing in the middle of what must not be left half done."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def alarm_waits() -> Iterator[None]:
    """An alarm that rings within the block rings at its end.

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
