"""Calls with inputs that an engine has not seen: whether each call computes, or returns stored results."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from bakeoff.backends.backend import Call, Engine, Outputs
from bakeoff.record.schema import Finding, new_finding
from bakeoff.worker.checks.outputs import copied
from bakeoff.worker.clocks.clock import TimingConfig, time_call
from bakeoff.worker.subject import synchronise

_ROUNDS = 4
_SLOWER = 1.5
"""Calls on new values that take longer than this many times those on known ones do work that known values save."""
_LEAST_BIND_NS = 1_000_000
_REPEATED = 2
_LEAST_SAVED_NS = 20_000


@dataclass(frozen=True, slots=True)
class TimedBinding:
    """One binding of inputs with two calls on it."""

    bind_ns: int
    call_ns: int
    again_ns: int
    """A second call on the same values."""
    outputs: Outputs
    """Of the first call."""


@dataclass(frozen=True, slots=True)
class FreshInputsResult:
    """What calls on known and on new values took and returned."""

    outputs: Outputs
    """For the second set's values, written into the first set's tensors."""
    known: tuple[TimedBinding, ...]
    """Calls on values that the engine was called with before."""
    fresh: tuple[TimedBinding, ...]
    """Calls on values that it was never called with, each a few per cent off the last, in the same tensors."""

    @property
    def problem(self) -> str | None:
        """Why a call does not compute its outputs from its inputs; None if it does."""
        old, new = ([entry.call_ns for entry in entries] for entries in (self.known, self.fresh))
        if min(new) > _SLOWER * max(old):
            return f"a call takes {_ms(old)} on known inputs and {_ms(new)} on new ones: results are stored"
        entries = (*self.known, *self.fresh)
        first, again = min(entry.call_ns for entry in entries), max(entry.again_ns for entry in entries)
        if first > max(_REPEATED * again, again + _LEAST_SAVED_NS):
            return f"the first call on inputs takes {_ms([first])}, the next {_ms([again])}: results are stored"
        if any(_same(entry.outputs, self.outputs) for entry in self.fresh):
            return "inputs that differ by a few per cent give identical outputs: results are stored"
        bind_ns = min(entry.bind_ns for entry in entries)
        if bind_ns > max(_LEAST_BIND_NS, max(new)):
            return f"binding inputs takes {_ms([bind_ns])}, a call {_ms(new)}: work is done in bind, which is not timed"
        return None

    def alarms(self) -> list[Finding]:
        """The problem as a finding that makes the row unstable."""
        return [new_finding("unseen", self.problem)] if self.problem is not None else []


def call_with_fresh_inputs(
    engine: Engine, sets: Sequence[Mapping[str, Tensor]], config: TimingConfig
) -> FreshInputsResult:
    """Write other values into the tensors of the first set, bind and call.

    Overwrites `sets[0]`, so nothing that needs its values may follow.
    """
    tensors, values = sets[0], sets[1]
    bind = _binder(engine, tensors)
    first = _rebound(bind, tensors, values, config)
    known, fresh = [], []
    for number in range(_ROUNDS):
        known.append(_rebound(bind, tensors, values, config))
        scale = 1 - 2.0 ** -(4 + number)  # large enough to change bf16, small enough to leave values alike
        scaled = {name: tensor * scale for name, tensor in values.items()}
        fresh.append(_rebound(bind, tensors, scaled, config))
    return FreshInputsResult(first.outputs, tuple(known), tuple(fresh))


def _binder(engine: Engine, tensors: Mapping[str, Tensor]) -> Callable[[], Call]:
    """Binds the tensors: again for each try, or where inputs are captured, once, with a first call to capture them.

    Capturing takes longer than a call, which is neither work done in bind nor a stored result: replays compute.
    """
    if not engine.captures():
        return lambda: engine.bind(tensors)
    call = engine.bind(tensors)
    call()
    return lambda: call


def _rebound(
    bind: Callable[[], Call], tensors: Mapping[str, Tensor], values: Mapping[str, Tensor], config: TimingConfig
) -> TimedBinding:
    for name, tensor in tensors.items():
        tensor.copy_(values[name])
    synchronise(config.device)
    started = time.perf_counter_ns()
    call = bind()
    synchronise(config.device)
    bind_ns = time.perf_counter_ns() - started
    call_ns, outputs = time_call(call, config)
    kept = copied(outputs)
    return TimedBinding(bind_ns, call_ns, time_call(call, config)[0], kept)


def _ms(samples_ns: Sequence[int]) -> str:
    return f"{median(samples_ns) / 1e6:.4f} ms"


def _same(outputs: Outputs, others: Outputs) -> bool:
    """Whether all outputs are equal bit for bit."""
    return all(
        isinstance(mine, Tensor) and isinstance(theirs, Tensor) and torch.equal(mine, theirs)
        for mine, theirs in zip(outputs, others, strict=True)
    )


def changed_input(sets: Sequence[Mapping[str, Tensor]], drawn: Sequence[Mapping[str, Tensor]]) -> str | None:
    """The first input whose values are no longer the drawn ones, as `name (inputs 2)`; None if all are."""
    for index, (inputs, original) in enumerate(zip(sets, drawn, strict=True)):
        for name, tensor in inputs.items():
            if not torch.equal(tensor, original[name].to(device=tensor.device, dtype=tensor.dtype)):
                return f"{name} (inputs {index})"
    return None
