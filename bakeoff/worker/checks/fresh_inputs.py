"""Calls with inputs that an engine has not seen: whether each call computes, or returns stored results.

Values of bound inputs are changed between two calls, of engines that read them in place and of those that copy. Engines
may store results only once a binding is hot, so that changed values also follow many calls on one binding.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from statistics import median

import torch
from torch import Tensor

from bakeoff.backends.backend import Call, Engine, Outputs
from bakeoff.record.schema import Finding, new_finding
from bakeoff.worker.checks.outputs import copied, same
from bakeoff.worker.clocks.clock import TimingConfig, now_ns, time_call, time_often
from bakeoff.worker.reference.load import Reference
from bakeoff.worker.subject import LoadedSubject, altered, cast_inputs, changed_inputs, synchronise

Inputs = Mapping[str, Tensor]
_ROUNDS = 4
_SLOW_ROUNDS, _FAST_HOT_ROUNDS = 2, 8
_SLOW_NS = 1_000_000_000
"""Calls slower than this are tried in fewer rounds."""
_FAST_NS = 2_000_000
"""Calls faster than this are tried in more rounds when hot: other processes delay a few of them."""
_MOST_HOT, _HOT_S = 50, 0.5
"""Calls on one binding after which an engine is taken to be hot, and the time that they may take."""
_SLOWER = 1.5
"""Calls on new values that take longer than this many times those on known ones do work that known values save."""
_SLOWER_WHEN_HOT = 1.3
"""The same for calls on one binding, where known and new values are written in the same way, in turn."""
_LEAST_TIMED = 3
"""Rounds on a hot binding from which times are compared: a machine may change its speed between two."""
_LEAST_BIND_NS = 1_000_000
_REPEATED = 2
_LEAST_SAVED_NS = 20_000


@dataclass(frozen=True, slots=True)
class ChangeableInputs:
    """One set of inputs whose values can be changed between two calls."""

    index: int
    call: Call
    """The set's timed call."""
    tensors: Inputs
    """Tensors to write values to: the set's own, or the buffers of the engine's port."""
    changed: Inputs
    """The changed values, for which there is a reference."""
    rebind: Callable[[], Call] | None = None
    """Binds the tensors again, where the engine's calls read copies that were made when they were bound."""

    @contextmanager
    def changed_values(self) -> Iterator[Call]:
        """Write the changed values, yield a call that reads them, and write back what was there before."""
        before = {name: tensor.clone() for name, tensor in self.tensors.items()}
        write(self.tensors, self.changed)
        try:
            yield self.call if self.rebind is None else self.rebind()
        finally:
            write(self.tensors, before)


def write(tensors: Inputs, values: Inputs) -> None:
    """Copy values into tensors of the same names."""
    for name, tensor in tensors.items():
        tensor.copy_(values[name])


def find_changeable(
    engine: Engine,
    sets: Sequence[Inputs],
    calls: Sequence[Call],
    changed: Sequence[Inputs],
    names: Sequence[str],
    reference: Reference,
    device: str,
) -> tuple[ChangeableInputs, ...]:
    """Find how the values of the first sets can be changed, one entry for each of `changed`; calls the engine to find
    out.

    `names` are those of the outputs. An engine's call may read the tensors that it was bound to, or copies
    (`Engine.bind`). The outputs for changed values show which: those of an engine that copies are nearer to the
    reference of the former values. Its port's buffers are tried next, and where these are not read either, changed
    values need another bind. An entry's `call` is to be timed in place of the set's own: it differs for a port.
    """
    if not changed:
        return ()
    in_place = tuple(ChangeableInputs(index, calls[index], sets[index], new) for index, new in enumerate(changed))
    if _reads_changes(in_place[0], reference, device):
        return in_place
    first = _through_port(engine, in_place[0], names)
    if _reads_changes(first, reference, device):
        return (first, *(_through_port(engine, entry, names) for entry in in_place[1:]))
    return tuple(replace(entry, rebind=partial(engine.bind, entry.tensors)) for entry in in_place)


def changed_values(
    loaded: LoadedSubject, change: float, count: int, dtype: str, device: str
) -> tuple[dict[str, Tensor], ...]:
    """Return the changed values of the first `count` sets, in a variant's dtype and on its device."""
    changed = (changed_inputs(loaded, index, change) for index in range(count))
    return tuple(cast_inputs(loaded.workload, values, dtype, device) for values in changed)


def _through_port(engine: Engine, entry: ChangeableInputs, names: Sequence[str]) -> ChangeableInputs:
    port = engine.port(entry.tensors, names)

    def call() -> Outputs:
        port.call()
        return tuple(port.outputs.values())

    return ChangeableInputs(entry.index, call, port.inputs, entry.changed)


def _reads_changes(entry: ChangeableInputs, reference: Reference, device: str) -> bool:
    """Return whether the outputs for changed values are nearer to their own reference than to that of the former
    values. True for outputs that cannot be compared: these are wrong however the inputs are read."""
    with entry.changed_values() as call:
        outputs = call()
        synchronise(device)
        new = reference.changed_differences(entry.index, outputs)
        old = reference.differences(entry.index, outputs)
    return sum(entry.rel_l2 for entry in new) <= sum(entry.rel_l2 for entry in old)


@dataclass(frozen=True, slots=True)
class TimedBinding:
    """One binding of inputs with two calls on it."""

    bind_ns: int
    call_ns: int
    again_ns: int
    """A second call on the same values."""
    repeats: bool
    """The outputs of the first call equal those for the second set's values, bit for bit."""


@dataclass(frozen=True, slots=True)
class HotRound:
    """Calls on one binding that was called many times, in nanoseconds."""

    typical_ns: int
    """Median of the calls on unchanged values."""
    known_ns: int
    """A call after the same values were written again, which moves no version counter."""
    changed_ns: int
    """A call after other values were written."""
    repeats: bool
    """The outputs for the new values equal those for the former ones, bit for bit."""


@dataclass(frozen=True, slots=True)
class FreshInputsResult:
    """Times and outputs of calls on known and on new values.

    Of many calls only two keep their outputs, which are compared with references: outputs may be gigabytes each.
    """

    outputs: Outputs
    """For the second set's values, written into the first set's tensors."""
    known: tuple[TimedBinding, ...]
    """Calls on values that the engine was called with before."""
    fresh: tuple[TimedBinding, ...]
    """Calls on values that it was never called with, each a few per cent off the last, in the same tensors."""
    hot: tuple[HotRound, ...] = ()
    """Calls on one binding; the last round's new values are the changed ones of the first set, which the engine was
    called with before. Empty for engines whose calls read copies of the inputs."""
    hot_outputs: Outputs | None = None
    """For the changed values of the first set, from the last round of `hot`."""

    @property
    def problem(self) -> str | None:
        """Reason why a call does not compute its outputs from its inputs; None if it does."""
        return self._problem_of_outputs() or self.problem_of_times()

    def problem_of_times(self) -> str | None:
        """The same, where what calls took is the only evidence."""
        return self._problem_of_bindings() or self._problem_when_hot()

    def _problem_of_outputs(self) -> str | None:
        if any(entry.repeats for entry in self.fresh):
            return "inputs that differ by a few per cent give identical outputs: results are stored"
        if any(entry.repeats for entry in self.hot):
            return "inputs that changed after many calls give identical outputs: results are stored"
        return None

    def _problem_when_hot(self) -> str | None:
        if not self.hot:
            return None
        timed = self.hot[:-1]
        known, changed = [entry.known_ns for entry in timed], [entry.changed_ns for entry in timed]
        if len(timed) >= _LEAST_TIMED and _slower(known, changed, _SLOWER_WHEN_HOT):
            return f"after many calls one takes {_ms(known)}, and {_ms(changed)} on new inputs: results are stored"
        # Threads that slept wake late on a busy machine, so calls after a pause are no evidence on their own.
        again = min([entry.again_ns for entry in (*self.known, *self.fresh)] + changed)
        typical = max(entry.typical_ns for entry in self.hot)
        if again > max(_REPEATED * typical, typical + _LEAST_SAVED_NS):
            return (
                f"calls on new inputs take {_ms([again])} or more, repeated ones {_ms([typical])}: results are stored"
            )
        return None

    def _problem_of_bindings(self) -> str | None:
        old, new = ([entry.call_ns for entry in entries] for entries in (self.known, self.fresh))
        if _slower(old, new, _SLOWER):
            return f"a call takes {_ms(old)} on known inputs and {_ms(new)} on new ones: results are stored"
        entries = (*self.known, *self.fresh)
        first, again = min(entry.call_ns for entry in entries), max(entry.again_ns for entry in entries)
        if first > max(_REPEATED * again, again + _LEAST_SAVED_NS):
            return f"the first call on inputs takes {_ms([first])}, the next {_ms([again])}: results are stored"
        bind_ns = min(entry.bind_ns for entry in entries)
        if bind_ns > max(_LEAST_BIND_NS, max(new)):
            return f"binding inputs takes {_ms([bind_ns])}, a call {_ms(new)}: work is done in bind, which is not timed"
        return None

    def alarms(self) -> list[Finding]:
        """Return the problem as a finding that makes the row unstable."""
        return [new_finding("memoised", self.problem)] if self.problem is not None else []


def call_with_fresh_inputs(
    engine: Engine,
    sets: Sequence[Mapping[str, Tensor]],
    config: TimingConfig,
    changeable: Sequence[ChangeableInputs] = (),
    held: Collection[str] = (),
    hot_calls: int = _MOST_HOT,
) -> FreshInputsResult:
    """Write other values into the tensors of the first set, bind and call; then change values on a hot binding.

    Where what calls took is the only evidence of stored results, all is done once more with other values, and the
    second result is returned: a machine changes its speed between two calls, an engine that stores results does it
    again. `changeable` says how values of a binding are changed, `held` names inputs whose values must not be,
    and `hot_calls` is how often a set was called in the window: an engine that was not hot there need not be here.
    Overwrites `sets[0]`, so nothing that needs its values may follow.
    """
    result = _try(engine, sets, config, changeable, held, hot_calls, 0)
    if result.problem_of_times() is None:
        return result
    del result  # with its outputs
    return _try(engine, sets, config, changeable, held, hot_calls, 1)


def _try(
    engine: Engine,
    sets: Sequence[Mapping[str, Tensor]],
    config: TimingConfig,
    changeable: Sequence[ChangeableInputs],
    held: Collection[str],
    hot_calls: int,
    attempt: int,
) -> FreshInputsResult:
    """One attempt, 0 or 1, with values of its own."""
    tensors, values = sets[0], sets[1]
    bind = _binder(engine, tensors)
    first, outputs = _rebound(bind, tensors, values, config)
    rounds = _SLOW_ROUNDS if first.call_ns > _SLOW_NS else _ROUNDS
    steps = [(2 * (number + attempt * _ROUNDS) + 3) / 128 for number in range(rounds)]  # change bf16, and little
    known, fresh = [], []
    for step in steps:
        known.append(_rebound(bind, tensors, values, config, outputs)[0])
        fresh.append(_rebound(bind, tensors, altered(values, 1 - step, held), config, outputs)[0])
    hot: list[HotRound] = []
    hot_outputs: Outputs | None = None
    if changeable and changeable[0].rebind is None:
        entry = changeable[0]
        own = entry.tensors is tensors
        call, target = (bind(), tensors) if own else (entry.call, entry.tensors)
        count = _FAST_HOT_ROUNDS if first.again_ns < _FAST_NS else rounds
        steps = [(2 * (number + attempt * _FAST_HOT_ROUNDS) + 3) / 128 for number in range(count - 1)]
        new_values = (altered(values, 1 + step, held) for step in steps)
        former: Outputs | None = None
        for changed in chain(new_values, [entry.changed]):
            hot_outputs = None  # the last round's, before another is made
            samples = _call_often(call, target, values, hot_calls, config)
            write({name: tensor.data for name, tensor in target.items()}, values)  # `data` has a version of its own
            known_ns, known_outputs = time_call(call, config)
            if former is None:
                former = copied(known_outputs)
                _call_often(call, target, values, hot_calls, config)  # the copy is no idle gap before new values
            del known_outputs
            write(target, changed)
            changed_ns, hot_outputs = time_call(call, config)
            hot_outputs = copied(hot_outputs)
            typical_ns = round(median(samples[len(samples) // 2 :]))
            hot.append(HotRound(typical_ns, known_ns, changed_ns, same(hot_outputs, former)))
    return FreshInputsResult(outputs, tuple(known), tuple(fresh), tuple(hot), hot_outputs)


def _call_often(call: Call, tensors: Inputs, values: Inputs, count: int, config: TimingConfig) -> list[int]:
    """Write the values, and call until the binding is hot; returns the samples."""
    write(tensors, values)
    return time_often([call], config, 1, min(count, _MOST_HOT), _HOT_S)


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
    bind: Callable[[], Call],
    tensors: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    config: TimingConfig,
    known: Outputs | None = None,
) -> tuple[TimedBinding, Outputs]:
    """Bind `values` and call twice; also returns the first call's outputs, compared with the `known` ones if given."""
    write(tensors, values)
    synchronise(config.device)
    started = now_ns()
    call = bind()
    synchronise(config.device)
    bind_ns = now_ns() - started
    call_ns, outputs = time_call(call, config)
    kept = copied(outputs)
    del outputs
    again_ns = time_call(call, config)[0]
    return TimedBinding(bind_ns, call_ns, again_ns, known is not None and same(kept, known)), kept


def _slower(known_ns: Sequence[int], new_ns: Sequence[int], ratio: float) -> bool:
    """Return whether calls on new values take `ratio` times as long as those on known ones, and 20 us longer.

    Other processes only make calls longer, so the shortest new one is compared with the lower quartile of the known
    ones, or with their longest where there are fewer than four. A machine that changes its speed delays known ones as
    well, so most pairs of consecutive calls must say the same.
    """
    known = sorted(known_ns)[len(known_ns) // 4 if len(known_ns) >= 4 else -1]
    pairs = [_is_slower(new, old, ratio) for old, new in zip(known_ns, new_ns, strict=True)]
    return _is_slower(min(new_ns), known, ratio) and 2 * sum(pairs) > len(pairs)


def _is_slower(new_ns: float, known_ns: float, ratio: float) -> bool:
    return new_ns > max(ratio * known_ns, known_ns + _LEAST_SAVED_NS)


def _ms(samples_ns: Sequence[int]) -> str:
    return f"{median(samples_ns) / 1e6:.4f} ms"


def changed_input(sets: Sequence[Mapping[str, Tensor]], drawn: Sequence[Mapping[str, Tensor]]) -> str | None:
    """Return the first input whose values are no longer the drawn ones, as `name (inputs 2)`; None if all are."""
    for index, (inputs, original) in enumerate(zip(sets, drawn, strict=True)):
        for name, tensor in inputs.items():
            if not torch.equal(tensor, original[name].to(device=tensor.device, dtype=tensor.dtype)):
                return f"{name} (inputs {index})"
    return None
