"""Calls on inputs that an engine has not seen: whether it computes, or remembers what it once computed."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from bakeoff.backends.backend import Call, Engine, Outputs
from bakeoff.worker.checks.outputs import copied
from bakeoff.worker.clocks.timing import TimingConfig, timed
from bakeoff.worker.subject import synchronise

_ROUNDS = 4
_SLOWER = 1.5
_LEAST_BIND_NS = 1_000_000
_REPEATED = 2
_LEAST_SAVED_NS = 20_000


@dataclass(frozen=True, slots=True)
class _Try:
    bind_ns: int
    call_ns: int
    again_ns: int
    """Of a second call on the same values."""
    outputs: Outputs


@dataclass(frozen=True, slots=True)
class FreshInputsResult:
    outputs: Outputs
    """Of the second set's values in the first set's memory."""
    seen: tuple[_Try, ...]
    """Calls on values that it was called with before."""
    fresh: tuple[_Try, ...]
    """Calls on values that it sees for the first time, each a little different from the last, in the same memory."""

    @property
    def alarm(self) -> str:
        """What a call does not compute itself, or ""."""
        old, new = ([entry.call_ns for entry in tries] for tries in (self.seen, self.fresh))
        if min(new) > _SLOWER * max(old):
            return f"a call takes {_ms(old)} on inputs that it has seen, {_ms(new)} on new ones: it remembers"
        tries = (*self.seen, *self.fresh)
        first, again = min(entry.call_ns for entry in tries), max(entry.again_ns for entry in tries)
        if first > max(_REPEATED * again, again + _LEAST_SAVED_NS):
            return f"the first call on inputs takes {_ms([first])}, the next {_ms([again])}: it remembers"
        if any(_same(entry.outputs, self.outputs) for entry in self.fresh):
            return "inputs that differ by a few per cent give the very same outputs: it returns what it remembers"
        bind_ns = min(entry.bind_ns for entry in tries)
        if bind_ns > max(_LEAST_BIND_NS, max(new)):
            return f"binding inputs takes {_ms([bind_ns])}, a call {_ms(new)}: it computes in bind"
        return ""


def call_with_fresh_inputs(
    engine: Engine, sets: Sequence[Mapping[str, Tensor]], config: TimingConfig
) -> FreshInputsResult:
    """Put other values where the first set lies, bind and call; changes `sets[0]`, so it comes last."""
    place, values = sets[0], sets[1]
    bind = _binder(engine, place)
    first = _rebound(bind, place, values, config)
    seen, fresh = [], []
    for number in range(_ROUNDS):
        seen.append(_rebound(bind, place, values, config))
        scale = 1 - 2.0 ** -(4 + number)  # changes bf16 too, and leaves values alike
        fresh.append(_rebound(bind, place, {name: tensor * scale for name, tensor in values.items()}, config))
    return FreshInputsResult(first.outputs, tuple(seen), tuple(fresh))


def _binder(engine: Engine, place: Mapping[str, Tensor]) -> Callable[[], Call]:
    """What binds the place: anew for each try, or once and for all, and called, where inputs are recorded.

    Recording takes longer than a call, which is neither computing in bind nor remembering: it is replays that compute.
    """
    if not engine.captures():
        return lambda: engine.bind(place)
    call = engine.bind(place)
    call()
    return lambda: call


def _rebound(
    bind: Callable[[], Call], place: Mapping[str, Tensor], values: Mapping[str, Tensor], config: TimingConfig
) -> _Try:
    for name, tensor in place.items():
        tensor.copy_(values[name])
    synchronise(config.device)
    started = time.perf_counter_ns()
    call = bind()
    synchronise(config.device)
    bind_ns = time.perf_counter_ns() - started
    call_ns, outputs = timed(call, config)
    kept = copied(outputs)
    return _Try(bind_ns, call_ns, timed(call, config)[0], kept)


def _ms(samples_ns: Sequence[int]) -> str:
    return f"{median(samples_ns) / 1e6:.4f} ms"


def _same(outputs: Outputs, others: Outputs) -> bool:
    """Whether all outputs are equal bit for bit."""
    return all(
        isinstance(mine, Tensor) and isinstance(theirs, Tensor) and torch.equal(mine, theirs)
        for mine, theirs in zip(outputs, others, strict=True)
    )


def changed_inputs(sets: Sequence[Mapping[str, Tensor]], drawn: Sequence[Mapping[str, Tensor]]) -> str:
    """The first input that is not what was drawn any more, as `name (inputs 2)`; "" if all are."""
    for index, (inputs, original) in enumerate(zip(sets, drawn, strict=True)):
        for name, tensor in inputs.items():
            if not torch.equal(tensor, original[name].to(device=tensor.device, dtype=tensor.dtype)):
                return f"{name} (inputs {index})"
    return ""
