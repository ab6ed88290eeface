"""Predicts what a unit takes under a schedule before its timed units run, and checks that this changes no value.

The prediction follows from units whose lanes run one after the other, and from pairs of programs that are called beside
each other: how much longer each then takes.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import fmean, median

import torch
from torch import Tensor

from bakeoff.models.pipelines.pipeline import OPENING, Key, Loop
from bakeoff.models.pipelines.schedule import SEQUENTIAL, predicted, run_beside
from bakeoff.record.pipeline import Forecast
from bakeoff.record.statistics import trimmed
from bakeoff.trace.timeline import Segment
from bakeoff.worker.clocks.clock import now_ns
from bakeoff.worker.pipeline.account import UnitSample
from bakeoff.worker.pipeline.lanes import Lane, Order
from bakeoff.worker.pipeline.runner import LoopRunner
from bakeoff.worker.reference.error import apart

_UNITS_NS, _FEWEST, _MOST = 1_500_000_000, 5, 200
_PAIR_NS, _ROUNDS = 100_000_000, 3
_MORE_UNITS = 2
"""Units beyond those of the loop's check that are compared with sequential ones."""


def unlike(runner: LoopRunner, loop: Loop) -> str:
    """Return which value of the first units differs if they run as scheduled; "" if no bit does.

    Where sequential units are not repeatable themselves, twice their own difference is allowed.
    """
    units = min(loop.checked_units + _MORE_UNITS, loop.max_units or loop.checked_units + _MORE_UNITS)
    first, found = (_values(runner, units, order) for order in ("sequential", "beside"))
    if (where := _furthest(first, found))[1] == 0:
        return ""
    own = _furthest(first, _values(runner, units, "sequential"))[1]
    if where[1] <= 2 * own:
        return ""
    text = f"{where[0]} differs from a sequential unit's by {where[1]:.1e} (relative L2)"
    return f"the schedule changes values: {text}"


def _values(runner: LoopRunner, units: int, order: Order) -> list[Mapping[str, Tensor]]:
    """Return the outputs of the first units of a session, and its state after them."""
    runner.ordered(order)
    runner.session, found = OPENING, list[Mapping[str, Tensor]]()
    runner.open()

    def take() -> None:
        found.append({name: value.clone() for name, value in runner.outputs.items()})

    for _ in range(units):
        runner.unit()
        if runner.outputs:
            take()
    if runner.settle():
        take()
    found.append({f"state {name}": value for name, value in runner.state().items()})
    runner.session = OPENING
    return found


def _furthest(first: Sequence[Mapping[str, Tensor]], other: Sequence[Mapping[str, Tensor]]) -> tuple[str, float]:
    """Return the value of two runs that is the furthest apart, and its relative L2; 0 if all bits are the same."""
    worst = "", 0.0
    for unit, (one, two) in enumerate(zip(first, other, strict=True)):
        for name, value in one.items():
            if not torch.equal(value, two[name]):
                distance = apart(value.double(), two[name].double())
                worst = max(worst, (f"{name} of unit {unit}", distance or 1e-300), key=lambda entry: entry[1])
    return worst


def promised(runner: LoopRunner, loop: Loop, lane: Lane | None) -> Forecast:
    """Return what a unit will take, by units whose lanes run one after the other and by pairs of programs; without the
    names of slots.

    The runner has no open session afterwards. Raises what a program raises.
    """
    samples = _alone(runner, loop)
    alone = {str(key): _ms([_of(sample, key) // sample.calls[key] for sample in samples]) for key in loop.calls()}
    between = (
        _ms([_outside(sample.segments) for sample in samples]),
        _ms([_outside(sample.beside) for sample in samples]),
    )
    name, slow = SEQUENTIAL if lane is None else lane.schedule.name, dict[tuple[str, str], float]()
    if lane is not None:
        for one, other in product(sorted(run_beside(loop, name)), sorted(lane.programs)):
            pair = str(one), str(other)
            slow[pair], slow[pair[::-1]] = _slowdowns(runner, lane, one, other)
    ms, latency_ms = predicted(loop, name, alone, between, slow)
    runner.session = OPENING
    return Forecast(
        slots="",
        ms=ms,
        memory_bytes=runner.added_bytes(),
        sqnr_db=None,
        latency_ms=latency_ms,
        alone_ms={**alone, "": sum(between)},
        slowdowns={f"{one} beside {other}": factor for (one, other), factor in slow.items()},
    )


def _alone(runner: LoopRunner, loop: Loop) -> list[UnitSample]:
    """Return steady units whose lanes ran one after the other."""
    runner.ordered("alone")
    runner.session, found, until_ns = OPENING, list[UnitSample](), now_ns() + _UNITS_NS
    full = max(loop.filling, len(loop.opening) + 1)  # the first steady unit computes at once what it does not know yet
    full = min(full, (loop.max_units or full + 1) - 1)
    while len(found) < _FEWEST or (now_ns() < until_ns and len(found) < _MOST):
        if runner.at_end:
            runner.open()
        number, sample = runner.next_unit, runner.unit()
        if number >= full:
            found.append(sample)
    return found


def _of(sample: UnitSample, key: Key) -> int:
    both = [*sample.segments.items(), *sample.beside.items()]
    return sum(ns for segment, ns in both if (segment.slot, segment.program) == key)


def _outside(segments: Mapping[Segment, int]) -> int:
    return sum(ns for segment, ns in segments.items() if not segment.program and segment.kind != "idle")


def _ms(ns: Sequence[int]) -> float:
    return fmean(trimmed(ns)) / 1e6


def _slowdowns(runner: LoopRunner, lane: Lane, one: Key, other: Key) -> tuple[float, float]:
    """Return how many times as long a program takes beside one of the second lane, and that one beside it."""
    runner.prepare(one)
    calls = runner.port(one).call, runner.port(other).call
    ratios = list[tuple[float, float]]()
    for _ in range(_ROUNDS):
        alone = _timed(calls[0], _once()), lane.do(partial(_timed, calls[1], _once()))
        begun, ended = threading.Event(), threading.Event()
        second = lane.start(partial(_timed, calls[1], partial(_is_open, ended), begun))
        begun.wait()
        try:
            first = _timed(calls[0], _once())
        finally:
            ended.set()
        ratios.append((first / alone[0], second.result() / alone[1]))
    return max(1.0, median(one for one, _ in ratios)), max(1.0, median(two for _, two in ratios))


def _is_open(ended: threading.Event) -> bool:
    return not ended.is_set()


def _once() -> Callable[[], bool]:
    """Return a function that is true for the time of one measurement."""
    until_ns = now_ns() + _PAIR_NS
    return lambda: now_ns() < until_ns


def _timed(call: Callable[[], object], goes_on: Callable[[], bool], begun: threading.Event | None = None) -> float:
    """Return the mean nanoseconds of calls after a first one, as long as `goes_on`, and of one at least."""
    wait = torch.cuda.current_stream().synchronize if torch.cuda.is_initialized() else (lambda: None)
    try:
        call()
        wait()
    finally:
        if begun is not None:
            begun.set()
    started, count = now_ns(), 0
    while count < 1 or goes_on():
        call()
        wait()
        count += 1
    return (now_ns() - started) / count
