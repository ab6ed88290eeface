"""Checks, with inputs that an engine has not seen, that calls compute instead of returning stored results.

Values of bound inputs are changed between two calls, both for engines that read them in place and for engines that copy
them. Some engines may store results only once a binding is hot, so values are also changed after many calls on one
binding.
"""

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from statistics import median

import torch
from torch import Tensor

from bakeoff.backends.backend import Call, Engine, Outputs
from bakeoff.backends.torch_internals import copier
from bakeoff.record.finding import Finding, new_finding
from bakeoff.worker.checks.outputs import copied, same
from bakeoff.worker.clocks.clock import TimingConfig, now_ns, time_call, time_often
from bakeoff.worker.reference.parity import Reference
from bakeoff.worker.subject import LoadedSubject, altered, cast_inputs, changed_inputs, synchronise

Inputs = Mapping[str, Tensor]
_ROUNDS = 4
_SLOW_ROUNDS, _FAST_HOT_ROUNDS = 2, 8
SLOW_NS = 1_000_000_000
"""Calls slower than this are tried in fewer rounds."""
_FAST_NS = 2_000_000
"""Calls faster than this are tried in more rounds when hot: other processes delay a few of them."""
_MOST_HOT, _HOT_S = 50, 0.5
"""Number of calls on one binding after which an engine counts as hot, and the most seconds that they may take."""
_SLOWER = 1.5
"""Ratio of call times on new values to those on known values above which results count as stored."""
_SLOWER_WHEN_HOT = 1.3
"""`_SLOWER` for calls on one hot binding, where known and new values are written in the same way, in turn."""
_LEAST_TIMED = 3
"""Fewest rounds on a hot binding whose times are compared, since a machine may change its speed between two rounds."""
_LEAST_BIND_NS = 1_000_000
_REPEATED = 2
_LEAST_SAVED_NS = 20_000


@dataclass(frozen=True, slots=True)
class ChangeableInputs:
    """One set of inputs whose values can be changed between two calls."""

    index: int
    call: Call
    """Bound call that is timed for this set."""
    tensors: Inputs
    """Tensors to write values to: the set's own, or the buffers of the engine's port."""
    changed: Inputs
    """Changed values, for which reference outputs exist."""
    rebind: Callable[[], Call] | None = None
    """Binds the tensors again; set only if the engine's calls read copies that were made when the inputs were bound."""

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
    copier(tensors, values)()


def find_changeable(
    engine: Engine,
    sets: Sequence[Inputs],
    calls: Sequence[Call],
    changed: Sequence[Inputs],
    names: Sequence[str],
    reference: Reference,
    device: str,
) -> tuple[ChangeableInputs, ...]:
    """Find out how the values of the first input sets can be changed; return one entry for each of `changed`.

    This calls the engine. Its calls may read the tensors that they were bound to, or copies of them (`Engine.bind`).
    The outputs for changed values show which: if calls read copies, the outputs are nearer to the reference of the
    former values. The buffers of the engine's port are tried next. If calls do not read these either, changed values
    need a new binding (`rebind`). An entry's `call` must be timed in place of the set's own, because it differs for a
    port. `names` are the names of the outputs.
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
    loaded: LoadedSubject, changes: Sequence[float], dtype: str, device: str
) -> tuple[dict[str, Tensor], ...]:
    """Return the values of the first sets, each changed by its factor in `changes`, in `dtype` and on `device`."""
    changed = (changed_inputs(loaded, index, change) for index, change in enumerate(changes))
    return tuple(cast_inputs(loaded.workload, values, dtype, device) for values in changed)


def _through_port(engine: Engine, entry: ChangeableInputs, names: Sequence[str]) -> ChangeableInputs:
    port = engine.port(entry.tensors, names)

    def call() -> Outputs:
        port.call()
        return tuple(port.outputs.values())

    return ChangeableInputs(entry.index, call, port.inputs, entry.changed)


def _reads_changes(entry: ChangeableInputs, reference: Reference, device: str) -> bool:
    """Return whether outputs for changed values are nearer to their own reference than to that of the former values.

    True for outputs that cannot be compared, because these are wrong whichever values the call reads.
    """
    with entry.changed_values() as call:
        outputs = call()
        synchronise(device)
        new = reference.changed_differences(entry.index, outputs)
        old = reference.differences(entry.index, outputs)
    return sum(entry.rel_l2 for entry in new) <= sum(entry.rel_l2 for entry in old)


@dataclass(frozen=True, slots=True)
class TimedBinding:
    """Times of one binding of inputs and of two calls on it."""

    bind_ns: int
    call_ns: int
    again_ns: int
    """Time of a second call on the same values."""
    repeats: bool
    """Whether the first call's outputs equal those for the second set's values bit for bit; False if not compared."""


@dataclass(frozen=True, slots=True)
class HotRound:
    """Times of calls on one binding that was called many times, in nanoseconds."""

    typical_ns: int
    """Median of the later half of the calls on unchanged values."""
    known_ns: int
    """Time of a call after the same values were written again, which does not change a tensor's version counter."""
    changed_ns: int
    """Time of a call after other values were written."""
    repeats: bool
    """Whether the outputs for the new values equal those for the former values bit for bit."""


@dataclass(frozen=True, slots=True)
class FreshInputsResult:
    """Times and outputs of calls on known and on new values.

    Only the outputs of two calls are kept, to be compared with references, because outputs may take gigabytes each.
    """

    outputs: Outputs
    """Outputs for the second set's values, written into the first set's tensors."""
    known: tuple[TimedBinding, ...]
    """Calls on values that the engine was called with before."""
    fresh: tuple[TimedBinding, ...]
    """Calls in the same tensors on values that are new to the engine and slightly different from the known ones."""
    hot: tuple[HotRound, ...] = ()
    """Rounds of calls on one binding. The last round's new values are the changed ones of the first set, which the
    engine was called with before. Empty for engines whose calls read copies of the inputs."""
    hot_outputs: Outputs | None = None
    """Outputs for the changed values of the first set, from the last round of `hot`; None if `hot` is empty."""

    @property
    def problem(self) -> str | None:
        """Evidence that calls do not compute their outputs from their inputs, as a sentence; None if there is none."""
        return self._problem_of_outputs() or self.problem_of_times()

    def problem_of_times(self) -> str | None:
        """Return evidence from times alone that calls do not compute their outputs; None if there is none."""
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
        apart = _slower(known, changed, _SLOWER_WHEN_HOT) if len(timed) >= _LEAST_TIMED else None
        if apart is not None:
            return f"after many calls one takes {apart[0]}, and {apart[1]} or more on new inputs: results are stored"
        # Threads that slept wake late on a busy machine, so calls after a pause are no evidence on their own.
        again = [entry.again_ns for entry in (*self.known, *self.fresh)] + changed
        return repeats_are_faster(again, max(entry.typical_ns for entry in self.hot)) or None

    def _problem_of_bindings(self) -> str | None:
        old, new = ([entry.call_ns for entry in entries] for entries in (self.known, self.fresh))
        apart = _slower(old, new, _SLOWER)
        if apart is not None:
            return f"a call takes {apart[0]} on known inputs and {apart[1]} or more on new ones: results are stored"
        entries = (*self.known, *self.fresh)
        first, again = min(entry.call_ns for entry in entries), max(entry.again_ns for entry in entries)
        if _is_slower(first, again, _REPEATED):
            text = f"the first call on inputs takes {_ms(first)} or more, the next {_ms(again)} or less"
            return f"{text}: results are stored"
        bind_ns = min(entry.bind_ns for entry in entries)
        if bind_ns > max(_LEAST_BIND_NS, longest := max(new)):
            text = f"binding inputs takes {_ms(bind_ns)} or more, a call {_ms(longest)} or less"
            return f"{text}: work is done in bind, which is not timed"
        return None

    def alarms(self) -> list[Finding]:
        """Return the problem as a finding that makes the row unstable; an empty list if there is no problem."""
        return [new_finding("memoised", self.problem)] if self.problem is not None else []


def fresh_steps(seed: int, attempt: int) -> list[float]:
    """Return eight relative changes of values for attempt 0 or 1, drawn between 0.02 and 0.26 from the row's seed.

    They differ from run to run, so that no engine can have the results from an earlier one. Any two of a seed's are at
    least 1/128 apart, and 1/256 from those of CHANGES, so that the values differ in bf16 too.
    """
    draw = random.Random(seed)
    steps = [(2 * part + 0.5 + draw.random()) / 128 for part in draw.sample(range(1, 17), 16)]
    return steps[8 * attempt :][:8]


def call_with_fresh_inputs(
    engine: Engine,
    sets: Sequence[Mapping[str, Tensor]],
    config: TimingConfig,
    seed: int,
    changeable: Sequence[ChangeableInputs] = (),
    held: Collection[str] = (),
    hot_calls: int = _MOST_HOT,
) -> FreshInputsResult:
    """Call the engine on values that are new to it, on new bindings and on a hot one, and return times and outputs.

    If the times suggest stored results, everything is repeated with other values, and the second result is returned: a
    machine may change its speed between two calls, but an engine that stores results does so again. The new values are
    drawn from `seed`. `changeable` says how values of a binding can be changed. `held` names inputs whose values must
    not be changed. `hot_calls` is the number of calls on a set in the window: an engine that was not hot there need not
    be hot here. Overwrites `sets[0]`, so nothing that needs its values may follow.
    """
    result = _try(engine, sets, config, changeable, held, hot_calls, fresh_steps(seed, 0))
    if result.problem_of_times() is None:
        return result
    del result  # with its outputs
    return _try(engine, sets, config, changeable, held, hot_calls, fresh_steps(seed, 1))


def _try(
    engine: Engine,
    sets: Sequence[Mapping[str, Tensor]],
    config: TimingConfig,
    changeable: Sequence[ChangeableInputs],
    held: Collection[str],
    hot_calls: int,
    steps: Sequence[float],
) -> FreshInputsResult:
    """Make an attempt of `call_with_fresh_inputs` with new values that differ by these `steps` from known ones."""
    tensors, values = sets[0], sets[1]
    bind = _binder(engine, tensors)
    first, outputs = _rebound(bind, tensors, values, config)
    rounds = _SLOW_ROUNDS if first.call_ns > SLOW_NS else _ROUNDS
    known, fresh = [], []
    for step in steps[:rounds]:
        known.append(_rebound(bind, tensors, values, config, outputs)[0])
        fresh.append(_rebound(bind, tensors, altered(values, 1 - step, held), config, outputs)[0])
    hot: list[HotRound] = []
    hot_outputs: Outputs | None = None
    if changeable and changeable[0].rebind is None:
        entry = changeable[0]
        own = entry.tensors is tensors
        call, target = (bind(), tensors) if own else (entry.call, entry.tensors)
        count = _FAST_HOT_ROUNDS if first.again_ns < _FAST_NS else rounds
        new_values = (altered(values, 1 + step, held) for step in steps[: count - 1])
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
    """Write the values, call until the binding is hot, at most `count` times; return the nanoseconds of each call."""
    write(tensors, values)
    return time_often([call], config, 1, min(count, _MOST_HOT), _HOT_S)


def _binder(engine: Engine, tensors: Mapping[str, Tensor]) -> Callable[[], Call]:
    """Return a function that binds the tensors anew each time, or only once if the engine captures its inputs.

    For an engine that captures, the one binding is called here to capture. Capturing takes longer than a call, but it
    is neither work that is hidden in `bind` nor a sign of stored results, because replays compute.
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
    """Write `values`, bind and call twice; return the times and a copy of the first call's outputs.

    `known` are outputs to compare the copy with, if given.
    """
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


def _slower(known_ns: Sequence[int], new_ns: Sequence[int], ratio: float) -> tuple[str, str] | None:
    """Return a known and a new call's time, as text, if the new takes `ratio` times as long and 20 us more; else None.

    Other processes only make calls longer, so the shortest call on new values is compared with the lower quartile of
    calls on known values, or with the longest of these if there are fewer than four. A machine that changes its speed
    delays calls on known values as well, so most pairs of consecutive calls must show the same.
    """
    known = sorted(known_ns)[len(known_ns) // 4 if len(known_ns) >= 4 else -1]
    pairs = [_is_slower(new, old, ratio) for old, new in zip(known_ns, new_ns, strict=True)]
    shows = _is_slower(min(new_ns), known, ratio) and 2 * sum(pairs) > len(pairs)
    return (_ms(known), _ms(min(new_ns))) if shows else None


def repeats_are_faster(new_ns: Sequence[int], typical_ns: float) -> str:
    """Return that results are stored, as a sentence, if each call on new inputs takes far longer than `typical_ns`."""
    least = min(new_ns)
    if not _is_slower(least, typical_ns, _REPEATED):
        return ""
    return f"calls on new inputs take {_ms(least)} or more, repeated ones {_ms(typical_ns)}: results are stored"


def _is_slower(new_ns: float, known_ns: float, ratio: float) -> bool:
    return new_ns > max(ratio * known_ns, known_ns + _LEAST_SAVED_NS)


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:.4f} ms"


def changed_input(sets: Sequence[Mapping[str, Tensor]], drawn: Sequence[Mapping[str, Tensor]]) -> str | None:
    """Return the first input whose values differ from the drawn ones, as `name (inputs 2)`; None if none differs."""
    for index, (inputs, original) in enumerate(zip(sets, drawn, strict=True)):
        for name, tensor in inputs.items():
            if not torch.equal(tensor, original[name].to(device=tensor.device, dtype=tensor.dtype)):
                return f"{name} (inputs {index})"
    return None
