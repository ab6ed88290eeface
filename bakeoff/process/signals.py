"""Handles the signals that end a command or a sweep's time, so that workers end and their folders are removed."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_signals() -> Iterator[list[int]]:
    """Raise KeyboardInterrupt at SIGINT, SIGTERM and SIGHUP, which are ignored afterwards until the block ends.

    The yielded list gets the number of the signal that came.
    A second signal would interrupt the clean-up; SIGKILL still ends the process. A signal that was ignored before, as
    nohup(1) does with SIGHUP, stays ignored. Signals that come earlier are handled in bakeoff.__main__.
    """
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        signal.setitimer(signal.ITIMER_REAL, 0)  # the alarm of a budget would interrupt the clean-up too
        for each in handled:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    handled = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    before = [signal.signal(each, stop) for each in handled]
    try:
        with raised_again(KeyboardInterrupt):
            yield received
    finally:
        for each, handler in zip(handled, before, strict=True):
            signal.signal(each, handler)


@contextmanager
def first_signal_waits() -> Iterator[Callable[[], bool]]:
    """Defer the alarm of a time limit, and the first signal that would end the command, to the end of the block; a
    second such signal ends it at once.

    The yielded function returns whether a signal came. Signals that have no handler keep their effect. A signal mask
    would not do: another thread of this process would take the signal.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are handled in the main thread
        yield lambda: False
        return
    came: list[int] = []
    waiting = (*_ENDING, signal.SIGALRM)
    before = {number: handler for number in waiting if callable(handler := signal.getsignal(number))}

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        if number != signal.SIGALRM:
            restore(_ENDING)

    def restore(numbers: Sequence[int]) -> None:
        for number in before.keys() & {*numbers}:
            signal.signal(number, before[number])

    for number in before:
        signal.signal(number, note)
    try:
        yield lambda: bool(came)
    finally:
        restore(waiting)
        if came:  # even if the block ended with an error, which a caller may go on after
            signal.raise_signal(next((number for number in came if number != signal.SIGALRM), signal.SIGALRM))


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
