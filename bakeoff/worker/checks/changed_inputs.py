"""Changes the values of bound inputs between two calls, of engines that read them in place and of those that copy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from bakeoff.backends.backend import Call, Engine, Outputs
from bakeoff.worker.reference.load import Reference
from bakeoff.worker.subject import LoadedSubject, cast_inputs, changed_inputs, synchronise

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class ChangeableInputs:
    """One set of inputs whose values can be changed between two calls."""

    index: int
    call: Call
    """The set's timed call."""
    tensors: Inputs
    """Where values are written: the set's own tensors, or the buffers of the engine's port."""
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
    """How the values of the first sets can be changed, one entry for each of `changed`; calls the engine to find out.
    `names` are those of the outputs.

    An engine's call may read the tensors that it was bound to, or copies (`Engine.bind`). The outputs for changed
    values show which: those of an engine that copies are nearer to the reference of the former values. Its port's
    buffers are tried next, and where these are not read either, changed values need another bind. An entry's `call`
    is to be timed in place of the set's own: it differs for a port.
    """
    if not changed:
        return ()
    in_place = tuple(ChangeableInputs(index, calls[index], sets[index], new) for index, new in enumerate(changed))
    if _reads_changes(in_place[0], reference, device):
        return in_place
    first = _through_port(engine, in_place[0], names)
    if _reads_changes(first, reference, device):
        return (first, *(_through_port(engine, entry, names) for entry in in_place[1:]))
    return tuple(
        ChangeableInputs(entry.index, entry.call, entry.tensors, entry.changed, _binder(engine, entry.tensors))
        for entry in in_place
    )


def changed_values(
    loaded: LoadedSubject, change: float, count: int, dtype: str, device: str
) -> tuple[dict[str, Tensor], ...]:
    """The changed values of the first `count` sets, in a variant's dtype and on its device."""
    changed = (changed_inputs(loaded, index, change) for index in range(count))
    return tuple(cast_inputs(loaded.workload, values, dtype, device) for values in changed)


def _binder(engine: Engine, tensors: Inputs) -> Callable[[], Call]:
    return lambda: engine.bind(tensors)


def _through_port(engine: Engine, entry: ChangeableInputs, names: Sequence[str]) -> ChangeableInputs:
    port = engine.port(entry.tensors, names)

    def call() -> Outputs:
        port.call()
        return tuple(port.outputs.values())

    return ChangeableInputs(entry.index, call, port.inputs, entry.changed)


def _reads_changes(entry: ChangeableInputs, reference: Reference, device: str) -> bool:
    """Whether the outputs for changed values are nearer to their own reference than to that of the former values.

    True as well for outputs that cannot be compared: these are wrong however the inputs are read.
    """
    with entry.changed_values() as call:
        outputs = call()
        synchronise(device)
        new = reference.changed_differences(entry.index, outputs)
        old = reference.differences(entry.index, outputs)
    return sum(entry.rel_l2 for entry in new) <= sum(entry.rel_l2 for entry in old)
