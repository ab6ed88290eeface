"""A signal whose exception a callback of Python's swallows ends the block all the same."""

import os
import signal
import time
import weakref

import pytest

from bakeoff.plan.costs import Costs
from bakeoff.plan.history import history_of
from bakeoff.plan.plan import make_plan
from bakeoff.plan.request import Request
from bakeoff.process.signals import ending_signals, first_signal_waits
from bakeoff.sweeps.time_limit import TimeIsUpError, TimeLimit


class HeldLocks:
    """Something that a weak reference can point at."""


def send_in_a_callback(number: int) -> None:
    """The signal comes while a weak reference's callback runs, and would end there unseen."""
    held = HeldLocks()
    weakref.finalize(held, lambda: None)
    kept = weakref.ref(held, lambda _: os.kill(os.getpid(), number))
    del held
    assert kept() is None


def work_through(number: int) -> None:
    send_in_a_callback(number)
    end = time.monotonic() + 5
    while time.monotonic() < end:
        time.sleep(0.005)


def limited() -> TimeLimit:
    plan = make_plan(
        Request("toy", backends=("eager",), dtypes=("fp32",), device="cpu", threads=1, time_limit_s=3600.0)
    )
    return TimeLimit(plan, Costs(history_of([])), time.monotonic())


def test_a_time_limit_ends() -> None:
    with pytest.raises(TimeIsUpError), limited().enforced():
        work_through(signal.SIGALRM)
    assert signal.getitimer(signal.ITIMER_REAL)[0] < 1800


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_ends(number: int) -> None:
    with pytest.raises(KeyboardInterrupt), ending_signals() as received:
        work_through(number)
    assert received == [number]


def test_an_alarm_that_comes_while_a_worker_is_ended_rings_when_it_has_ended() -> None:
    rang: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _frame: rang.append(number))
    try:
        with first_signal_waits():
            signal.raise_signal(signal.SIGALRM)
            assert rang == []
        assert rang == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("order", [(signal.SIGINT, signal.SIGALRM), (signal.SIGALRM, signal.SIGINT)])
def test_both_kinds_of_signals_wait_and_the_command_ends(order: tuple[int, int]) -> None:
    rang, reached = list[int](), False
    before = signal.signal(signal.SIGALRM, lambda number, _frame: rang.append(number))
    try:
        with pytest.raises(KeyboardInterrupt), ending_signals(), first_signal_waits():  # noqa: PT012
            for number in order:
                signal.raise_signal(number)
            assert rang == []
            reached = True
        assert reached
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_signal_that_waits_is_not_lost_with_an_error() -> None:
    """A caller may go on after the error: a final that cannot be run ends no sweep."""
    with pytest.raises(KeyboardInterrupt) as ended, ending_signals(), first_signal_waits():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        raise OSError("no process is to be had")
    assert isinstance(ended.value.__context__, OSError)
